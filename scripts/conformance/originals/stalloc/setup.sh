#!/bin/sh
# setup.sh [DIR]: builds STAlloc's unchanged planner and allocator without a GPU.
#
# Takes STAlloc from its repository, CUDA's headers from their wheels, and compiles its allocator over the
# fake CUDA runtime, allocator/simcuda; its planner needs some Python packages. DIR (default
# ${XDG_CACHE_HOME:-~/.cache}/coalesce-stalloc) is printed at the end; it then has `alloc.so` and
# `venv/bin/python`. Needs git, python3 with pip, venv and headers, make, cargo and g++.
#   STALLOC=FOLDER   a checkout of https://github.com/infinigence/STAlloc to take
set -eu
CONFORMANCE=$(cd "$(dirname "$0")/../.." && pwd -P)
DIR=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/coalesce-stalloc}
mkdir -p "$DIR"
cd "$DIR"
COMMIT=3a9f97f

if [ ! -d STAlloc ]; then
  git clone --quiet "${STALLOC:-https://github.com/infinigence/STAlloc}" clone >&2
  git -C clone checkout --quiet $COMMIT
  mv clone STAlloc
fi
if [ ! -x venv/bin/python ]; then
  python3 -m venv venv
  venv/bin/pip install --quiet --disable-pip-version-check numpy scikit-learn matplotlib \
    pybind11 >&2
fi
if [ ! -d nvidia ]; then
  python3 -m pip download --quiet --disable-pip-version-check --no-deps -d wheels \
    nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88 >&2
  for wheel in wheels/*.whl; do
    python3 -m zipfile -e "$wheel" .
  done
  rm -r wheels
fi
INCLUDE="-Invidia/cu13/include $(venv/bin/python -m pybind11 --includes)"
COMPILE="g++ -O2 -fPIC -shared -std=c++17 $INCLUDE"
"$CONFORMANCE/../../allocator/simcuda/standins/build" "$PWD/standins"
# shellcheck disable=SC2016 # the loader expands $ORIGIN
$COMPILE -w STAlloc/Allocator/main.cpp STAlloc/Allocator/CUDACachingAllocator.cpp \
  standins/cuda13/libcudart.so.13 standins/libcuda.so.1 -Wl,-rpath,'$ORIGIN/standins:$ORIGIN/standins/cuda13' -o alloc.so
pwd
