#!/usr/bin/env bash
# Builds the page and uses it in a headless Chromium. Installs what is missing: Chromium from Debian's packages,
# playwright from PyPI. `check.sh FOLDER` keeps the pictures of the page there; else they are in the target folder.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null; then
  as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
  as_root apt-get update -qq
  as_root apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core
fi
version=1.65.2
playwright=${XDG_CACHE_HOME:-$HOME/.cache}/coalesce-playwright-$version
if [ ! -d "$playwright" ]; then
  # A folder that exists is complete.
  python3 -m pip install --quiet --disable-pip-version-check --only-binary :all: \
    --target "$playwright.unfinished" "playwright==$version"
  mv "$playwright.unfinished" "$playwright"
fi

page=$(scripts/page/build)
cargo build --quiet --release --bin coalesce
target=$(dirname "$page")
PYTHONPATH=$playwright scripts/page/check.py "$page" --coalesce "$target/release/coalesce" --shots "${1:-$target/page-shots}"
