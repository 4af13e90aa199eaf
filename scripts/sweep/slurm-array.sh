#!/usr/bin/env bash
# Runs one share of a sweep in each task of a Slurm job array, and merges the shares:
#
#   sbatch --array=1-8 scripts/sweep/slurm-array.sh benches/sweeps/default.toml OUT
#   sbatch --dependency=afterok:JOB scripts/sweep/slurm-array.sh --merge OUT
#
# OUT is a folder that all nodes share. A requeued task resumes where it stopped.
#SBATCH --job-name=coalesce-sweep
#SBATCH --cpus-per-task=4
#SBATCH --time=01:00:00
#SBATCH --requeue
set -euo pipefail

coalesce=${COALESCE:-target/release/coalesce}
if [ "$1" = --merge ]; then
  exec "$coalesce" merge "$2"/share-*.csv --out "$2/sweep.csv"
fi
sweep=$1 out=$2
mkdir -p "$out"
exec "$coalesce" sweep "$sweep" --out "$out/share-$SLURM_ARRAY_TASK_ID.csv" \
  --partition "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
