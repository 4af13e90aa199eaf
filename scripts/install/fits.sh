#!/usr/bin/env bash
# fits.sh [WHEEL]: runs `coalesce fits` and the pytest plugin beside PyTorch wheels from PyPI, for CUDA 12 and 13, as the Python
# package installs them.
#
# Without WHEEL, builds it. Downloads gigabytes. Each program of programs/ must get an answer that names the release. A PyTorch
# that cannot be used, and none at all, must be named in one sentence. The programs must request what memory.txt beside them accepts.
#
# One release is installed as pip does. The other comes without NVIDIA's packages, as the stand-ins take their place.
set -euo pipefail
wheel=${1:+$(realpath "$1")}
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$scratch/uv" uv
export PATH=$scratch/uv/bin:$PATH UV_PYTHON_DOWNLOADS=never
if [ -z "$wheel" ]; then
  python3 -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$scratch/dist" .
  wheel=$(echo "$scratch"/dist/*.whl)
fi
megabytes=$(($(stat -c %s "$wheel") >> 20))
[ "$megabytes" -lt 25 ] || { echo "the wheel has $megabytes MiB, and should stay below 25" >&2; exit 1; }

# An environment with the wheel and more packages.
install() {
  rm -rf "$scratch/venv"
  uv venv --quiet --seed --python python3 "$scratch/venv"
  # A cache would keep gigabytes.
  uv pip install --quiet --no-cache --python "$scratch/venv" "$wheel" "$@"
}
# PyTorch, and of its dependencies those in Python.
pytorch_alone() {
  uv pip install --quiet --no-cache --python "$scratch/venv" --no-deps "torch==$1"
  uv pip install --quiet --no-cache --python "$scratch/venv" \
    filelock typing-extensions sympy networkx jinja2 fsspec setuptools
}
# With nothing of this shell.
clean() { env -i HOME="$scratch" PATH="$scratch/venv/bin:/usr/bin:/bin" "$@"; }
fits() { clean coalesce --quiet fits --device l4 "$@"; }
passed=0
cd "$scratch"
for release in 2.8.0 2.15.0; do
  install numpy pytest pytest-xdist
  # NVIDIA's packages take 5 GB, and more while they are unpacked.
  free=$(df --output=avail -k "$scratch" | tail -n 1)
  if [ "$release" = 2.8.0 ]; then
    pytorch_alone "$release"
  elif [ "$free" -lt $((9 << 20)) ]; then
    echo "NOT TRIED with NVIDIA's packages: PyTorch $release; $((free >> 20)) of 9 GiB are free" >&2
    pytorch_alone "$release"
  else
    uv pip install --quiet --no-cache --python "$scratch/venv" "torch==$release"
  fi
  clean pytest -q -p no:cacheprovider "$here/../../python/tests/test_gpu_memory.py"
  clean pytest -q -p no:cacheprovider --rootdir "$here/programs" --gpu-memory \
    --gpu-memory-baseline "$here/programs/memory.txt" "$here/programs"
  passed=$((passed + 2))
  for program in "$here"/programs/{convolutions,spawned,transformer}.py; do
    fits --json=answer.json -- python "$program" >text
    python3 - "$release" text <<'PY'
import json, sys
answer = json.load(open("answer.json"))
assert answer["torch"].startswith(sys.argv[1] + "+cu"), answer["torch"]
assert answer["verdict"] == {"kind": "fits"}, answer["verdict"]
assert answer["steps"] > 3, answer["steps"]
assert answer["peak_reserved_bytes"] >= answer["peak_requested_bytes"] > 50 << 20, answer
PY
    echo "PyTorch $release, $(basename "$program"): $(head -n 1 text)"
    passed=$((passed + 1))
  done
done

refused() { # a part of the sentence
  if fits -- python -c "import torch" 2>error; then
    echo "an answer without a PyTorch that can be used" >&2
    exit 1
  fi
  grep -q "$1" error || { cat error >&2; exit 1; }
  passed=$((passed + 1))
}
install
refused "has no PyTorch"
# All that is looked at before a PyTorch is imported.
mkdir torch
touch torch/__init__.py
echo "__version__, cuda, hip = '2.11.0+cpu', None, None" >torch/version.py
refused "built for the CPU alone"
echo "__version__, cuda, hip = '2.11.0+rocm6.4', None, '6.4.4'" >torch/version.py
refused "built for AMD's ROCm"
echo "$passed passed, 0 failed"
