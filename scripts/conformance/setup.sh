#!/bin/sh
# setup.sh [DIR]: builds the oracle on a machine without a GPU.
#
# Downloads three wheels with pip, unpacks the few parts that are needed into
# DIR (default ${XDG_CACHE_HOME:-~/.cache}/coalesce-oracle), compiles there and
# prints the path of the oracle binary as its last line. A second call returns
# at once; a call after a change of the sources rebuilds; an interrupted call can
# be repeated. Needs sh, flock, make, gcc, g++ (C++17), cargo, python3 with pip.
#   PIP="..."      pip command to use (default: python3 -m pip)
#   KEEP_WHEEL=1   leave the torch wheel (506 MiB) in DIR/wheels
set -eu
HERE=$(cd "$(dirname "$0")" && pwd -P)
DIR=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/coalesce-oracle}
mkdir -p "$DIR"
DIR=$(cd "$DIR" && pwd -P)
TORCH_V=2.11.0 CUDART_V=13.0.96 CRT_V=13.0.88
# the libraries all results were recorded with (PyPI, torch 2.11.0+cu130, cp311)
SHA_C10=be5e17cd7752a6af003978706379384c3108f6b68916bb1949e610f6397bb640
SHA_C10_CUDA=962b69f3dec6cacf6e7d5f9d4c79becd34ca379d7abd2571b2eb4c1c153d168b

die() {
  echo "setup.sh: $1" >&2
  exit 1
}

# The fake CUDA depends on all of the allocator's sources.
RUST=$(find "$HERE/../../allocator/src" "$HERE/../../allocator/simcuda/src" \
  "$HERE/../../allocator/simcuda/include" -type f | LC_ALL=C sort)
KEY=$(cat "$HERE"/src/*.cpp "$HERE"/src/*.map "$HERE/Makefile" "$HERE/../../Cargo.lock" $RUST |
  sha256sum | cut -d' ' -f1)
BIN=$DIR/build/oracle
have_wheel() { ls "$DIR"/wheels/torch-$TORCH_V-*.whl >/dev/null 2>&1; }
ready() {
  [ -x "$BIN" ] && [ "$(cat "$DIR/build/.key" 2>/dev/null)" = "$KEY" ] &&
    { [ "${KEEP_WHEEL:-0}" = 0 ] || have_wheel; }
}
done_if_ready() {
  if ready; then
    echo "$BIN"
    exit 0
  fi
}
done_if_ready

exec 9>"$DIR/.lock"
flock 9 || die "cannot lock $DIR/.lock"
done_if_ready
for t in make gcc g++ python3 sha256sum cargo; do
  command -v $t >/dev/null ||
    die "$t is missing (Debian: apt-get install build-essential python3 python3-pip; Rust: rustup.rs)"
done
PIP=${PIP:-python3 -m pip}
rm -rf "$DIR"/.tmp.*  # left by an interrupted call; we hold the lock
TMP=$(mktemp -d "$DIR/.tmp.XXXXXX")
export TMPDIR="$TMP"  # of pip and gcc too: a killed call leaves nothing elsewhere
trap 'rm -rf "$TMP"' EXIT
trap 'exit 130' INT TERM HUP

get() { # requirement -> the wheel's path; for any python, whatever the local one is
  $PIP download --quiet --disable-pip-version-check --no-deps -d "$TMP/dl" "$1" \
    --python-version 3.11 --implementation cp --abi cp311 --abi none --abi abi3 \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 --only-binary=:all: >&2
  ls "$TMP"/dl/"$2"-*.whl
}
unpack() { # wheel, destination, prefixes...
  python3 - "$@" <<'PY'
import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
names = [n for n in z.namelist() if n.startswith(tuple(sys.argv[3:]))]
assert names, "nothing to unpack in " + sys.argv[1]
z.extractall(sys.argv[2], names)
PY
}

if ! have_wheel && { [ ! -d "$DIR/torch/lib" ] || [ "${KEEP_WHEEL:-0}" != 0 ]; }; then
  echo "downloading torch $TORCH_V (506 MiB)" >&2
  W=$(get torch==$TORCH_V torch)
  mkdir -p "$DIR/wheels"
  mv "$W" "$DIR/wheels/"
fi
if [ ! -d "$DIR/torch/lib" ]; then
  W=$(ls "$DIR"/wheels/torch-$TORCH_V-*.whl)
  unpack "$W" "$TMP/t" torch/include/c10/ torch/include/torch/headeronly/ \
    torch/lib/libc10.so torch/lib/libc10_cuda.so
  {
    echo "$SHA_C10  $TMP/t/torch/lib/libc10.so"
    echo "$SHA_C10_CUDA  $TMP/t/torch/lib/libc10_cuda.so"
  } | sha256sum -c --quiet >&2 ||
    die "this wheel's libc10 is not the one the goldens were recorded with"
  rm -rf "$DIR/torch"
  mv "$TMP/t/torch" "$DIR/torch"
fi
[ "${KEEP_WHEEL:-0}" != 0 ] || rm -rf "$DIR/wheels"
if [ ! -d "$DIR/nvidia/cu13/include" ]; then
  echo "downloading CUDA 13.0 headers (2.3 MiB)" >&2
  W=$(get nvidia-cuda-runtime==$CUDART_V nvidia_cuda_runtime)
  unpack "$W" "$TMP/n" nvidia/cu13/include/
  W=$(get nvidia-cuda-crt==$CRT_V nvidia_cuda_crt)
  unpack "$W" "$TMP/n" nvidia/cu13/include/
  rm -rf "$DIR/nvidia"
  mv "$TMP/n/nvidia" "$DIR/nvidia"
fi
rm -rf "$DIR/build/.key" "$DIR/build/oracle" "$DIR/build/lib"
echo "compiling" >&2
make -s -C "$HERE" -f "$HERE/Makefile" DIR="$DIR" all >&2
printf 'a x 1048577 0\nf x\n' | "$BIN" | grep -q '^A x 0x20000000000$' ||
  die "the built oracle does not run"
echo "$KEY" > "$TMP/key"
mv "$TMP/key" "$DIR/build/.key"
echo "$BIN"
