#!/bin/sh
# rec.sh NAME SCRIPT ARGS...: records a real model on the fake device (full torch,
# setup-torch.sh), converts and replays it in the oracle, and compares every address.
# Results go to $DIR/rec/NAME.{pickle,txt,out}. Environment (FAKE_*, PYTORCH_*)
# applies to both. DIR: setup.sh's folder (default its default).
#   rec.sh gpt record_gpt.py --layers 2 --amp --steps 3
#   rec.sh decode record_misc.py decode
set -eu
G=$(cd "$(dirname "$0")" && pwd -P)
DIR=${DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/coalesce-oracle}
n=$1 s=$2
shift 2
mkdir -p "$DIR/rec"
R=$DIR/rec/$n
rm -f "$R".*
case $s in
  record_gpt.py) set -- "$R.pickle" "$@" ;;
  *) set -- "$1" "$R.pickle" ;;
esac
"$DIR/torch-python" "$G/$s" "$@"
"$DIR/torch-python" "$G/snapshot_to_trace.py" "$R.pickle" "$R.addrs" > "$R.txt"
"$DIR/build/oracle" < "$R.txt" > "$R.out"
grep ^A "$R.out" | cmp - "$R.addrs"
echo "$n: all $(wc -l < "$R.addrs") addresses identical in the replay ($R.txt)"
