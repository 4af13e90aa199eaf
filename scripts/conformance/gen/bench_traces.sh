# Sourced by icount.sh and ../../speed/speed.py (G: this folder, DIR: setup.sh's): the traces.
: "${G:?}" "${DIR:?}"
mkdir -p "$DIR/bench"
gen() { # name, gen_trace.py arguments
  f=$DIR/bench/$1.txt
  shift
  [ -e "$f" ] || { python3 "$G/gen_trace.py" "$@" > "$f.tmp" && mv "$f.tmp" "$f"; }
}
gen hot_4k hot --size 4096
gen hot_4m hot --size 4194304
gen mix mix --seed 1
gen mix_small mix --seed 1 --max 1048576
gen frag frag --seed 1
gen transformer transformer --seed 1 --iters 200 --flash --vary
gen record_stream random --seed 5 --ops 400000 --dist repeated --streams 4 --record-prob 0.2 \
  --live-cap 1000 --drain
for t in gpt decode; do
  if [ -e "$DIR/rec/$t.txt" ]; then cp "$DIR/rec/$t.txt" "$DIR/bench/${t}_real.txt"; fi
done
