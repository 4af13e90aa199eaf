#!/bin/sh
# A wrong candidate, on which the tools must fail: the oracle with one change.
#   ORACLE=... conformance.py --candidate "tests/broken.sh KIND" ...
# KIND  addr    every address that ends in 400000 becomes ...400200
#       retry   num_alloc_retries one too high once there is one
#       gc      the garbage collector's setting in the environment is ignored
#       lost    the last TRC line is missing
#       status  correct output, wrong exit status
#       use_on_oom, no_split, empty   the op U, N or C does nothing
set -eu
k=$1
shift
[ -n "${ORACLE:-}" ] || { echo "broken.sh: set ORACLE" >&2; exit 9; }

without() { # op, oracle's arguments; 's' prints nothing where --stats prints a line anyway
  op=$1
  shift
  sed "s/^$op .*/s/" | "$ORACLE" "$@"
}

case $k in
  addr) "$ORACLE" "$@" | sed 's/^\(A .*\)400000$/\1400200/' ;;
  retry) "$ORACLE" "$@" | awk '$1=="S" && $8>0 {$8++} {print}' ;;
  gc)
    PYTORCH_CUDA_ALLOC_CONF=$(echo "${PYTORCH_CUDA_ALLOC_CONF:-}" |
      sed 's/garbage_collection_threshold:[0-9.]*/garbage_collection_threshold:0.99/')
    export PYTORCH_CUDA_ALLOC_CONF
    exec "$ORACLE" "$@"
    ;;
  lost) "$ORACLE" "$@" | awk '/^TRC/{if(p)print p;p=$0;next} {if(p && !/^TRC/){p=""} print}' ;;
  status)
    "$ORACLE" "$@" || :
    exit 4
    ;;
  use_on_oom) without U "$@" ;;
  no_split) without N "$@" ;;
  empty) without C "$@" ;;
  *) echo "broken.sh: unknown kind $k" >&2; exit 9 ;;
esac
