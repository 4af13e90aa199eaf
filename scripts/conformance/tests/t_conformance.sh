#!/bin/sh
# Tests the tools: the oracle as the candidate passes everything, and wrong candidates
# (broken.sh) are found. Usage: t_conformance.sh [ORACLE]
set -eu
cd "$(dirname "$0")/.."
ORACLE=${1:-${ORACLE:-${XDG_CACHE_HOME:-$HOME/.cache}/coalesce-oracle/build/oracle}}
export ORACLE
bad=0
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
# another heap layout, and freed memory overwritten: shows what depends on it
P="env MALLOC_PERTURB_=77 MALLOC_TOP_PAD_=123456 $ORACLE"

passes() { # what, command
  what=$1
  shift
  if "$@" > "$T/o" 2>&1 && ! grep -q SKIPPED "$T/o"; then
    echo "ok   $what: $(tail -1 "$T/o")"
  else
    echo "FAIL $what"
    tail -5 "$T/o"
    bad=1
  fi
}
fails() { # what, command
  what=$1
  shift
  if "$@" > "$T/o" 2>&1; then
    echo "FAIL $what was not detected"
    bad=1
  elif ! tail -1 "$T/o" | grep -q '^[0-9]* passed, [1-9][0-9]* failed$'; then
    echo "FAIL $what: the tool itself fails"
    tail -5 "$T/o"
    bad=1
  else
    echo "ok   $what: $(grep -o 'shrunk from [0-9]* to [0-9]* ops' "$T/o" || :) $(tail -1 "$T/o")"
  fi
}
says() { # what, pattern: in the output of the last command
  if grep -q "$2" "$T/o"; then
    echo "ok   $1"
  else
    echo "FAIL $1"
    tail -5 "$T/o"
    bad=1
  fi
}

for f in "" --pools --multi-record "--args=" "--args=--no-final --no-oom-msg"; do
  passes "oracle as candidate ${f:-(default)}" \
    ./conformance.py --candidate "$P" --seeds 0..2 "${f:---addr=up,down,firstfit}"
done
passes "--seeds random:2 --seconds 1000" \
  ./conformance.py --candidate "$P" --seeds random:2 --seconds 1000 --configs 'gc-*'
says "the first line names the seeds" '^seeds [0-9]*\.\.[0-9]*$'
says "--seconds says that all was run" '^all 18 scripts run$'
passes "--seconds 2" ./conformance.py --candidate "$P" --seeds 0..999 --seconds 2
says "--seconds says where it stopped" '^stopped after 2 s: '
# every release with an oracle in the default folder; 2.6 to 2.8 read freed memory
for r in $(./setup.sh --list); do
  o=${XDG_CACHE_HOME:-$HOME/.cache}/coalesce-oracle/torch-$r/build/oracle
  [ -x "$o" ] || continue
  for f in --addr=up,down --pools; do
    passes "torch $r as candidate $f" \
      ./conformance.py --torch "$r" --candidate "env MALLOC_TOP_PAD_=123456 $o" --seeds 0..0 $f
  done
  passes "goldens.py --check-oracle --torch $r" ./goldens.py --check-oracle --all --torch "$r"
done
for k in addr retry gc lost status; do
  fails "broken candidate ($k)" ./conformance.py --candidate "tests/broken.sh $k" \
    --seeds 0..1 --addr up --max-failures 1 --keep "$T/$k"
  says "FAIL lines name the seed ($k)" '^FAIL .* seed='
done
for k in use_on_oom no_split empty; do
  fails "broken candidate ($k)" ./conformance.py --candidate "tests/broken.sh $k" --pools \
    --seeds 0..1 --addr up --max-failures 1 --keep "$T/$k"
done
passes "settings.py, oracle as candidate" ./settings.py --candidate "$P" --seeds 0..2
fails "settings.py, broken candidate (gc)" \
  ./settings.py --candidate "tests/broken.sh gc" --seeds 0..4
passes "goldens.py --check-oracle" ./goldens.py --check-oracle --all
fails "goldens.py, broken candidate (addr)" ./goldens.py --candidate "tests/broken.sh addr"
exit $bad
