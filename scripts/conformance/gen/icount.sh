#!/bin/sh
# icount.sh [TRACES]: instructions per malloc+free pair inside the timed loop
# (callgrind), a measure that does not depend on how busy the machine is.
# Includes the warm-up replay and the ~10 instructions of the loop itself.
set -eu
command -v valgrind >/dev/null || { echo "icount.sh: valgrind is missing" >&2; exit 1; }
G=$(cd "$(dirname "$0")" && pwd -P)
DIR=${DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/coalesce-oracle}
. "$G/bench_traces.sh"
T=$(mktemp)
trap 'rm -f "$T"' EXIT
[ $# -gt 0 ] || set -- hot_4k mix frag gpt_real decode_real record_stream
for t; do
  [ -e "$DIR/bench/$t.txt" ] || continue
  head -60000 "$DIR/bench/$t.txt" > "$T"
  n=$(grep -c ^a "$T")
  o=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null \
    --toggle-collect='*bench_raw<false*' "$DIR/build/oracle" --bench 3 --single-thread \
    < "$T" 2>&1 >/dev/null | sed -n 's/.*Collected : \([0-9]*\).*/\1/p')
  i=$(awk -v o="$o" -v n="$n" 'BEGIN{printf "%.0f", o/(4*n)}')
  echo "$t: $i instructions per allocation (pairs: $n, 4 replays)"
done
