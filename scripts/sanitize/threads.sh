#!/usr/bin/env bash
# Runs the tests of the library for PyTorch that have threads under ThreadSanitizer. About two
# minutes on 2 cores. Linux on x86-64.
#
# The standard library comes compiled without the sanitizer, so the harness of tests is left out (threads.supp).
set -euo pipefail
cd "$(dirname "$0")/../.."

target=$(cargo metadata --no-deps --format-version 1 |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
# Stable Rust brings the sanitizer's library, but the flag only so.
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"
export TSAN_OPTIONS="suppressions=$PWD/scripts/sanitize/threads.supp halt_on_error=1"
cargo test -p coalesce-torch --lib \
  --target x86_64-unknown-linux-gnu --target-dir "$target/threads" -- threads waiting
