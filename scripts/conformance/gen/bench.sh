#!/bin/sh
# bench.sh [RUNS] [ROUNDS]: throughput of the real allocator on the benchmark scripts.
# Prints, per trace and configuration, the median over ROUNDS processes of each
# process's median over RUNS timed replays (ns per malloc+free pair).
# DIR: setup.sh's folder; the traces are generated into DIR/bench on first use.
# gpt_real and decode_real need the full torch (gen/rec.sh gpt record_gpt.py
# --amp --vary --steps 8; gen/rec.sh decode record_misc.py decode).
set -eu
G=$(cd "$(dirname "$0")" && pwd -P)
DIR=${DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/coalesce-oracle}
. "$G/bench_traces.sh"
R=${1:-7} K=${2:-5} CPU=${CPU:-1}

# Busy and idle ticks of all CPUs.
ticks() { awk '/^cpu /{print $2+$3+$4+$7+$8+$9, $5+$6}' /proc/stat; }

# Wait (at most 120 s) until the machine is idle: under 10 % busy for 0.5 s.
quiet() {
  i=0
  while [ $i -lt "${WAIT:-240}" ]; do
    a=$(ticks)
    sleep 0.5
    b=$(ticks)
    echo "$a $b" | awk '{u=$3-$1; t=u+$4-$2; exit !(u < 0.10*t)}' && return
    i=$((i+1))
  done
  echo "# machine not idle" >&2
}

one() { # label, env conf, trace, args
  for _ in $(seq "$K"); do
    quiet
    # shellcheck disable=SC2086 # several arguments
    PYTORCH_CUDA_ALLOC_CONF=$2 taskset -c "$CPU" "$DIR/build/oracle" --bench "$R" $4 \
      < "$DIR/bench/$3.txt" | tail -1
  done | awk '
    {
      for (i = 1; i <= NF; i++) { split($i, kv, "="); v[kv[1]] = kv[2] }
      print v["median_ns_per_pair"], v["min"], v["max"], v["median_cpu"], v["min_cpu"]
    }' | sort -n | awk -v label="$1" -v trace="$3" '
    {
      m[NR] = $1
      if (NR == 1 || $2 < min) min = $2
      if ($3 > max) max = $3
      if (NR == 1 || $5 < cpu) cpu = $5
    }
    END {
      printf "%-16s %-12s median %7.1f ns/pair  (min %.1f, max %.1f, ", \
        trace, label, m[int((NR+1)/2)], min, max
      printf "process medians %.1f..%.1f, min cpu %.1f)\n", m[1], m[NR], cpu
    }'
}

for t in hot_4k hot_4m mix mix_small frag transformer gpt_real decode_real record_stream; do
  if [ -e "$DIR/bench/$t.txt" ]; then one raw "" $t ""; fi
done
one dataptr "" hot_4k "--api dataptr"
one dataptr "" mix "--api dataptr"
one expandable expandable_segments:True hot_4k ""
one expandable expandable_segments:True mix ""
one expandable expandable_segments:True frag ""
one cold "" mix "--cold"
one cold "" frag "--cold"
one history "" hot_4k "--history"
CPU=0,1
one threads2 "" hot_4k "--threads 2"
