#!/bin/sh
# setup.sh [DIR]: builds GMLake's unchanged allocator on a machine without a GPU.
#
# Takes GMLake's two files from its repository, PyTorch 2.0.1's headers and libc10.so from its wheel
# (591 MiB downloaded, 10 MiB kept), CUDA's headers from theirs, and compiles them over the fake CUDA
# runtime, allocator/simcuda. DIR (default ${XDG_CACHE_HOME:-~/.cache}/coalesce-gmlake) is printed at the
# end; it then has `replay`, and `replay-checked`, which stops at the errors of GMLake: when it reads freed
# memory (detected by AddressSanitizer), or returns memory of a block in use (detected by one added
# statement). Needs git, python3 with pip, make, cargo and g++.
#   GLAKE=FOLDER   a checkout of https://github.com/antgroup/glake to take the files from
set -eu
HERE=$(cd "$(dirname "$0")" && pwd -P)
ROOT=$HERE/../../../..
DIR=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/coalesce-gmlake}
mkdir -p "$DIR"
cd "$DIR"
COMMIT=fb24ee8

wheel() { # requirement, prefixes to unpack...
  python3 -m pip download --quiet --disable-pip-version-check --no-deps -d wheels "$1" \
    --python-version 3.11 --only-binary=:all: --platform manylinux1_x86_64 \
    --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 >&2
  python3 - "$@" <<'PY'
import glob, sys, zipfile
[path] = glob.glob("wheels/*.whl")
z = zipfile.ZipFile(path)
z.extractall(".", [n for n in z.namelist() if n.startswith(tuple(sys.argv[2:]))])
PY
  rm -r wheels
}

if [ ! -d glake ]; then
  if [ -z "${GLAKE:-}" ]; then
    git clone --quiet https://github.com/antgroup/glake clone
    git -C clone checkout --quiet $COMMIT
    GLAKE=clone
  fi
  mkdir -p glake.tmp/c10/cuda
  cp "$GLAKE/GMLake/src/CUDACachingAllocator.cpp" glake.tmp
  cp "$GLAKE/GMLake/include/cuda_vmm_allocator.h" glake.tmp/c10/cuda
  mv glake.tmp glake
fi
[ -d torch ] || wheel torch==2.0.1 torch/include/c10/ torch/lib/libc10.so
if [ ! -d nvidia ]; then
  wheel nvidia-cuda-runtime==13.0.96 nvidia/cu13/include/
  wheel nvidia-cuda-crt==13.0.88 nvidia/cu13/include/
fi

INCLUDE="-Iglake -Itorch/include -Invidia/cu13/include -I$ROOT/allocator/simcuda/include"
COMPILE="g++ -O2 -g -std=c++17 -D_GLIBCXX_USE_CXX11_ABI=0 $INCLUDE"
"$ROOT/allocator/simcuda/standins/build" "$PWD/standins"
$COMPILE -Wall -c "$HERE/replay.cpp" -o main.o
build() { # name, source, further flags
  name=$1
  source=$2
  shift 2
  [ -e "$name.o" ] || $COMPILE -w "$@" -c "$source" -o "$name.o"
  # shellcheck disable=SC2016 # the loader expands $ORIGIN
  g++ "$@" main.o "$name.o" -Ltorch/lib -lc10 standins/cuda13/libcudart.so.13 standins/libcuda.so.1 -pthread \
    -Wl,-rpath,'$ORIGIN/standins:$ORIGIN/standins/cuda13:$ORIGIN/torch/lib' -o "$name"
}
sed 's/active_fused_blocks_to_gc\.insert(/abort(); &/' glake/CUDACachingAllocator.cpp \
  > glake/checked.cpp
build replay glake/CUDACachingAllocator.cpp
build replay-checked glake/checked.cpp -fsanitize=address
printf 'a x 1048577 0\n' | ./replay | grep -q '^a x 1048577 0 0x20000000000$' ||
  { echo "setup.sh: the built program does not run" >&2; exit 1; }
pwd
