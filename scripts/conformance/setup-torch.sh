#!/bin/sh
# setup-torch.sh [--torch RELEASE] [--transformers] [--trainers] [DIR]: sets up full Python torch on the fake device.
#
# On top of setup.sh (called first, same arguments): a virtual environment with torch
# (no NVIDIA wheels), its pure-Python needs and numpy, and stand-ins for
# all NVIDIA libraries. Prints as its last line the path of a python that runs
# "cuda" code without a GPU (a two-line wrapper that sets LD_LIBRARY_PATH).
# Needs a python3.11 besides what setup.sh needs; 1.5 to 2 GB in DIR.
#   --torch RELEASE as for setup.sh
#   --transformers  also install transformers (and what it needs, without torch)
#   --trainers      also install the trainers of transformers and of Lightning
#   PYTHON=...      the python 3.11 to use
set -eu
HERE=$(cd "$(dirname "$0")" && pwd -P)

die() {
  echo "setup-torch.sh: $1" >&2
  exit 1
}

. "$HERE/release.sh"

WANTED=$DEFAULT DIR='' TRANSFORMERS=0 TRAINERS=0
while [ $# -gt 0 ]; do
  case $1 in
    --torch)
      [ $# -ge 2 ] || die "--torch needs a release"
      WANTED=$2
      shift
      ;;
    --torch=*) WANTED=${1#--torch=} ;;
    --transformers) TRANSFORMERS=1 ;;
    --trainers) TRANSFORMERS=1 TRAINERS=1 ;;
    -*) die "unknown option $1; usage: setup-torch.sh [--torch RELEASE] [--transformers] [--trainers] [DIR]" ;;
    *) DIR=$1 ;;
  esac
  shift
done
choose "$WANTED" "$DIR"
V=$DIR/venv
WRAP=$DIR/torch-python
# The fake CUDA depends on all of the allocator's sources.
RUST=$(find "$HERE/../../allocator/src" "$HERE/../../allocator/simcuda/src" \
  "$HERE/../../allocator/simcuda/standins" -type f | LC_ALL=C sort)
# shellcheck disable=SC2086 # several files
KEY=$(cat "$HERE/setup-torch.sh" "$HERE/../../Cargo.lock" $RUST | sha256sum | cut -d' ' -f1)
ready() {
  [ -e "$V/.done" ] && [ -x "$WRAP" ] && [ "$(cat "$DIR/standins/.key" 2>/dev/null)" = "$KEY" ] &&
    { [ $TRANSFORMERS = 0 ] || [ -e "$V/.transformers" ]; } &&
    { [ $TRAINERS = 0 ] || [ -e "$V/.trainers" ]; }
}
done_if_ready() {
  if ready; then
    echo "$WRAP"
    exit 0
  fi
}
done_if_ready

PYTHON=${PYTHON:-$(command -v python3.11 || command -v python3)}
[ "$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" = 3.11 ] ||
  die "needs python 3.11 (set PYTHON)"
if [ -e "$V/.done" ]; then
  sh "$HERE/setup.sh" --torch "$TORCH_V" "$BASE" >&2
else
  KEEP_WHEEL=1 sh "$HERE/setup.sh" --torch "$TORCH_V" "$BASE" >&2
fi

exec 9>"$DIR/.lock"
flock 9 || die "cannot lock $DIR/.lock"
done_if_ready
rm -rf "$DIR"/.tmp.*  # left by an interrupted call; we hold the lock
TMP=$(mktemp -d "$DIR/.tmp.XXXXXX")
export TMPDIR="$TMP"
trap 'rm -rf "$TMP"' EXIT
trap 'exit 130' INT TERM HUP
pipv() {
  "$PYTHON" -m pip --python "$V/bin/python" --disable-pip-version-check --quiet install --no-compile "$@" >&2
}
if [ ! -e "$V/.done" ]; then
  echo "installing torch into a virtual environment" >&2
  rm -rf "$V"
  "$PYTHON" -m venv --without-pip "$V"
  # at most numpy 2.4, the version that was tested
  pipv numpy==2.4.6 filelock 'typing-extensions>=4.10.0' 'sympy>=1.13.3' networkx jinja2 \
    'fsspec>=0.8.5' 'setuptools<82'
  pipv --no-deps "$DIR"/wheels/torch-"$TORCH_V"-*.whl
  touch "$V/.done"
  rm -rf "$DIR/wheels"
fi
if [ $TRANSFORMERS = 1 ] && [ ! -e "$V/.transformers" ]; then
  pipv transformers
  touch "$V/.transformers"
fi
if [ $TRAINERS = 1 ] && [ ! -e "$V/.trainers" ]; then
  # Without their needs, which would bring torch's and so NVIDIA's wheels.
  pipv --no-deps accelerate lightning pytorch-lightning torchmetrics lightning-utilities
  pipv psutil
  touch "$V/.trainers"
fi
STANDINS=$DIR/standins
if [ "$(cat "$STANDINS/.key" 2>/dev/null)" != "$KEY" ]; then
  echo "compiling the stand-ins" >&2
  rm -rf "$STANDINS"
  "$HERE/../../allocator/simcuda/standins/build" "$STANDINS" >&2
  "$HERE/../../allocator/simcuda/standins/names.py" --check "$V/lib/python3.11/site-packages/torch/lib" >&2
fi
# The headers of CUDA are those that PyTorch's own package would bring.
CUDA_HOME=$DIR/nvidia/cu$CUDA
[ "$CUDA" != 12 ] || CUDA_HOME=$DIR/nvidia/cuda_runtime
printf '#!/bin/sh\nexec env LD_LIBRARY_PATH="%s" CUDA_HOME="%s" "%s" "$@"\n' \
  "$STANDINS:$STANDINS/cuda$CUDA" "$CUDA_HOME" "$V/bin/python" > "$WRAP.tmp"
chmod +x "$WRAP.tmp"
mv "$WRAP.tmp" "$WRAP"
TEST='import torch; x = torch.ones(3, device="cuda"); assert torch.cuda.memory_allocated() == 512'
"$WRAP" -c "$TEST" || die "torch does not run on the fake device"
echo "$KEY" > "$STANDINS/.key"
echo "use: $WRAP script.py   (or LD_LIBRARY_PATH=$STANDINS:$STANDINS/cuda$CUDA $V/bin/python script.py)" >&2
echo "$WRAP"
