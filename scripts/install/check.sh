#!/usr/bin/env bash
# Installs the program as a user does, and runs it in an empty folder where no checkout can be found.
set -euo pipefail
cd "$(dirname "$0")/../.."
checkout=$PWD

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# The target folder is shared, so that an up-to-date build is not repeated.
target=$(cargo metadata --format-version 1 --no-deps |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
cargo install --quiet --locked --path benches/cli --root "$scratch" --target-dir "$target"
cp workloads/traces/example_interleaved_free.csv.gz "$scratch/trace.csv.gz"
mkdir "$scratch/empty"
cd "$scratch/empty"
coalesce=$scratch/bin/coalesce

"$coalesce" --version | grep -qx 'coalesce [0-9.]*'
"$coalesce" policies | grep -q pytorch
"$coalesce" workloads | grep -q transformer
"$coalesce" replay ../trace.csv.gz --json | grep -q '"peak_reserved_bytes"'
"$coalesce" advise ../trace.csv.gz --capacity 120MiB >/dev/null
# The results are in a checkout, so this has to say what is missing.
if "$coalesce" report 2>error; then
  echo "report succeeds without results" >&2
  exit 1
fi
grep -q results error
if grep -aqF "$checkout/" "$coalesce"; then
  echo "the program contains the path of the checkout" >&2
  exit 1
fi
[ -z "$(find . -mindepth 1 ! -name error)" ]
echo "1 passed, 0 failed"
