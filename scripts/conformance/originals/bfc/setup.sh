#!/bin/sh
# setup.sh [DIR] [--tensorflow]: sets up what record.py needs, without a GPU.
#
# Downloads the released binaries that contain the BFC allocator into DIR (default
# ${XDG_CACHE_HOME:-~/.cache}/coalesce-bfc), compiles the driver there and prints the arguments of
# record.py as its last line. JAX's (135 MB, 400 MB unpacked) has both policies; TensorFlow's (250 MB,
# 850 MB unpacked) only bfc. Needs g++ (C++17), unzip, python3 with pip.
#   PIP="..."   pip command to use (default: python3 -m pip)
set -eu
HERE=$(cd "$(dirname "$0")" && pwd -P)
DIR=${XDG_CACHE_HOME:-$HOME/.cache}/coalesce-bfc TENSORFLOW=
for word; do
  case $word in
    --tensorflow) TENSORFLOW=yes ;;
    *) DIR=$word ;;
  esac
done
PIP=${PIP:-python3 -m pip}
mkdir -p "$DIR"
DIR=$(cd "$DIR" && pwd -P)

get() { # requirement, python version, files of the wheel: unpacks them into DIR
  requirement=$1 python=$2
  shift 2
  for file; do
    [ -e "$DIR/${file##*/}" ] || missing=yes
  done
  [ -n "${missing:-}" ] || return 0
  rm -rf "$DIR/wheel"
  $PIP download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --python-version "$python" --dest "$DIR/wheel" "$requirement" >&2
  unzip -q -o -j "$DIR"/wheel/*.whl "$@" -d "$DIR" >&2
  rm -rf "$DIR/wheel"
}

get jax-cuda13-pjrt==0.12.0.1 3.13 jax_plugins/xla_cuda13/xla_cuda_plugin.so
ARGUMENTS="$DIR/bfc --jax $DIR/xla_cuda_plugin.so"
if [ -n "$TENSORFLOW" ]; then
  get tensorflow-cpu==2.21.0 3.11 \
    tensorflow/libtensorflow_cc.so.2 tensorflow/libtensorflow_framework.so.2
  ARGUMENTS="$ARGUMENTS --tensorflow $DIR/libtensorflow_framework.so.2"
fi
g++ -O2 -std=c++17 -Wall -Wextra -o "$DIR/bfc" "$HERE/bfc.cpp" -ldl
echo "$ARGUMENTS"
