#!/usr/bin/env bash
# The steps of the action in this folder; their inputs are environment variables.
#
#   run.sh locate    where the program is, or where to install it
#   run.sh install   builds it from the sources of the action, unless the cache had it
#   run.sh compare   compares two tables
set -euo pipefail

sources=$(cd "$(dirname "$0")/../../.." && pwd)

output() { echo "$1=$2" >>"${GITHUB_OUTPUT:-/dev/stdout}"; }

case $1 in
  locate)
    if [ -n "${PROGRAM:-}" ]; then
      output path "$PROGRAM"
      exit
    fi
    digest=$(cd "$sources" && find . -path ./target -prune -o \
      \( -name '*.rs' -o -name Cargo.toml -o -name Cargo.lock \) -print0 |
      LC_ALL=C sort -z | (cd "$sources" && xargs -0 cat) | git hash-object --stdin)
    folder=${RUNNER_TOOL_CACHE:-$HOME/.cache}/coalesce/$digest
    output key "coalesce-${RUNNER_OS:-$(uname -s)}-${RUNNER_ARCH:-$(uname -m)}-$digest"
    output folder "$folder"
    output path "$folder/bin/coalesce"
    ;;
  install)
    if [ ! -x "${FOLDER:?}/bin/coalesce" ]; then
      # There, no toolchain file of the caller's repository applies.
      cd "$sources"
      cargo install --locked --path benches/cli --root "$FOLDER" \
        --target-dir "${RUNNER_TEMP:-/tmp}/coalesce-target"
    fi
    "$FOLDER/bin/coalesce" --version
    ;;
  compare)
    read -ra more <<<"${ARGUMENTS:-}"
    for change in ${ALLOW:-}; do
      more+=(--allow "$change")
    done
    status=0
    text=$("$PROGRAM" compare "$OLD" "$NEW" ${more[@]+"${more[@]}"} 2>&1) || status=$?
    case $status in
      0) result=same ;;
      1) result=changed ;;
      *) result=broken ;;
    esac
    printf '%s\n' "$text"
    {
      printf '### %s: %s\n\n' "$TITLE" "$result"
      echo "<code>$NEW</code> compared with <code>$OLD</code>${ALLOW:+, allowed: $ALLOW}"
      echo
      printf '~~~~text\n%s\n~~~~\n' "$text"
    } >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}"
    output result "$result"
    if [ "$result" = broken ] || { [ "$result" = changed ] && [ "$FAIL" != false ]; }; then
      echo "::error title=$TITLE::$NEW: $result, compared with $OLD"
      exit "$status"
    fi
    ;;
  *)
    echo "run.sh: unknown step $1; expected one of: locate, install, compare" >&2
    exit 2
    ;;
esac
