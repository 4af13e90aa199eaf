#!/usr/bin/env bash
# Runs one share of a sweep in each task of a Slurm job array, and merges the shares:
#
#   job=$(sbatch --parsable --array=1-8 scripts/sweep/slurm-array.sh benches/sweeps/default.toml OUT)
#   sbatch --dependency=afterok:"$job" scripts/sweep/slurm-array.sh --merge OUT
#
# OUT is a folder that all nodes share. A requeued task resumes where it stopped. To run single tasks of
# an array again, name the number of shares: sbatch --array=3,5 --export=ALL,SHARES=8 ...
# COALESCE is the program (default target/release/coalesce, from the folder of the submission).
#SBATCH --job-name=coalesce-sweep
#SBATCH --cpus-per-task=4
#SBATCH --time=01:00:00
#SBATCH --requeue
set -euo pipefail

coalesce=${COALESCE:-target/release/coalesce}
if [ $# != 2 ] || [ -z "${SLURM_JOB_ID:-}" ]; then
  echo "usage: sbatch --array=1-N slurm-array.sh SWEEP.toml OUT, or sbatch slurm-array.sh --merge OUT" >&2
  exit 2
fi
if [ "$1" = --merge ]; then
  exec "$coalesce" merge "$2"/share-*.csv --out "$2/sweep.csv"
fi
sweep=$1 out=$2
: "${SLURM_ARRAY_TASK_ID:?submit it with --array=1-N}"
share=$SLURM_ARRAY_TASK_ID shares=${SHARES:-$SLURM_ARRAY_TASK_COUNT}
if [ "$share" -lt 1 ] || [ "$share" -gt "$shares" ]; then
  echo "task $share of $shares shares; submit with --array=1-N, or set SHARES to the number of shares" >&2
  exit 2
fi
mkdir -p "$out"
exec "$coalesce" sweep "$sweep" --out "$out/share-$share.csv" --partition "$share/$shares"
