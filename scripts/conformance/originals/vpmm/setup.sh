#!/bin/sh
# setup.sh [DIR]: builds OpenVM's unchanged pool over the simulated device of coalesce-alloc.
#
# Takes vm_pool.rs from its repository. DIR (default ${XDG_CACHE_HOME:-~/.cache}/coalesce-vpmm) is printed at the end;
# it then has release/vpmm-recorder. Needs git and cargo.
#   STARK_BACKEND=FOLDER   a clone of https://github.com/openvm-org/stark-backend to take the file from
set -eu
HERE=$(cd "$(dirname "$0")" && pwd -P)
DIR=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/coalesce-vpmm}
mkdir -p "$DIR"
cd "$DIR"
COMMIT=bf161ed44072fa86789391cbda8c5cf077f37779

if [ ! -e vm_pool.rs ]; then
  if [ -z "${STARK_BACKEND:-}" ]; then
    git clone --quiet --filter=blob:none --no-checkout \
      https://github.com/openvm-org/stark-backend clone
    STARK_BACKEND=clone
  fi
  git -C "$STARK_BACKEND" show \
    $COMMIT:crates/cuda-common/src/memory_manager/vm_pool.rs > vm_pool.rs.tmp
  mv vm_pool.rs.tmp vm_pool.rs
fi
VPMM=$PWD/vm_pool.rs cargo build --quiet --release --target-dir "$PWD" \
  --manifest-path "$HERE/Cargo.toml" >&2
pwd
