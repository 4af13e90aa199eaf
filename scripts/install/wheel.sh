#!/usr/bin/env bash
# wheel.sh [WHEEL]: installs the Python package as users do, where there is no Rust, and tests it on files.
#
# Without WHEEL, builds the sdist and, from it alone, a wheel: a few minutes. Tests the oldest and the newest Python
# that the package supports, as far as they are installed, else python3; then uvx and pipx.
set -euo pipefail
wheel=${1:+$(realpath "$1")}
cd "$(dirname "$0")/../.."
checkout=$PWD

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$scratch/uv" uv
export PATH=$scratch/uv/bin:$scratch/tools/bin:$PATH UV_PYTHON_DOWNLOADS=never
uv venv --quiet --python python3 "$scratch/tools"
uv pip install --quiet --python "$scratch/tools" build pipx twine

if [ -z "$wheel" ]; then
  target=$(cargo metadata --format-version 1 --no-deps |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
  # The wheel is built from the unpacked sdist, outside of the checkout. Packages that cargo has built are reused.
  CARGO_TARGET_DIR=$target python -m build --installer uv --outdir "$scratch/dist" >"$scratch/log" 2>&1 ||
    { cat "$scratch/log" >&2; exit 1; }
  wheel=$(echo "$scratch"/dist/*.whl)
  twine check --strict "$scratch"/dist/*
fi

# What an installed package sees: no Rust, no checkout, no settings of this shell.
clean() { env -i HOME="$scratch" PATH="$1/bin:/usr/bin:/bin" COALESCE_H200="${COALESCE_H200:-}" "${@:2}"; }
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
mkdir "$scratch/empty"
cd "$scratch/empty"

pythons=()
for version_wanted in 3.9 3.13; do
  found=
  for python in "python$version_wanted" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version_wanted".*/bin/python; do
    # pyenv's python3.9 may exist and not run.
    if [ -z "$found" ] && "$python" -c '' 2>/dev/null; then
      found=$("$python" -c 'import sys; print(sys.executable)')
      pythons+=("$found")
    fi
  done
  [ -n "$found" ] || echo "Python $version_wanted: not installed, so the wheel is NOT TESTED with it" >&2
done
[ ${#pythons[@]} -gt 0 ] || pythons=("$(command -v python3)")
for python in "${pythons[@]}"; do
  venv=$scratch/venv
  rm -rf "$venv"
  uv venv --quiet --seed --python "$python" "$venv"
  # --no-index: it needs no other package.
  clean "$venv" pip install --quiet --no-index --disable-pip-version-check "$wheel"
  for command in coalesce coalesce-gpu "python -m coalesce"; do
    clean "$venv" sh -c "$command --version" | grep -qx "coalesce $version"
  done
  clean "$venv" python -W error "$checkout/python/tests/test_files.py"
  clean "$venv" python -W error "$checkout/python/tests/test_record.py"
  clean "$venv" python -W error "$checkout/python/tests/test_schedule.py"
  if [ "$(uname -s)" = Linux ]; then
    uv pip install --quiet --python "$venv" pytest pytest-xdist
    clean "$venv" python -W error "$checkout/python/tests/test_cache.py"
    clean "$venv" pytest -q -p no:cacheprovider "$checkout"/python/tests/test_{pytest,comment}.py
    packages=$(clean "$venv" python -c 'import coalesce, os; print(os.path.dirname(coalesce.__path__[0]))')
    clean "$venv" python -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1]).coalesce_malloc' \
      "$packages/coalesce_torch/libcoalesce_torch.so"
    # Compiled where PyTorch is.
    test -f "$packages/coalesce_torch/cpp/cuda_allocator.cpp"
    test -f "$packages/coalesce_torch/cpp/without_nvcc/crt/host_defines.h"
  fi
  clean "$venv" pip uninstall --quiet --yes coalesce-gpu
  if clean "$venv" sh -c 'command -v coalesce || command -v coalesce-gpu' >/dev/null; then
    echo "the program remains after pip uninstall" >&2
    exit 1
  fi
done
uvx --quiet --offline --from "$wheel" coalesce --version | grep -qx "coalesce $version"
uvx --quiet --no-index --find-links "$(dirname "$wheel")" coalesce-gpu --version | grep -qx "coalesce $version"
export PIPX_HOME=$scratch/pipx PIPX_BIN_DIR=$scratch/pipx-bin PIPX_MAN_DIR=$scratch/pipx-man
pipx run --spec "$wheel" coalesce --version | grep -qx "coalesce $version"
pipx install --quiet "$wheel" >/dev/null
"$PIPX_BIN_DIR/coalesce" --version | grep -qx "coalesce $version"
rmdir "$scratch/empty"
echo "1 passed, 0 failed"
