# release.sh: the releases of releases.tsv. Sourced by setup.sh and setup-torch.sh, which set HERE and define die.
DEFAULT=2.11.0
releases() { grep -v '^#' "$HERE/releases.tsv" | cut -f1; }

# choose RELEASE DIR: sets ROW, its columns and CUDA, and makes DIR the absolute folder of that release: DIR for the default one,
# DIR/torch-RELEASE for the others.
choose() {
  ROW=$(awk -F '\t' -v r="$1" '$1 == r || index($1, r ".") == 1 && r ~ /^[0-9]+\.[0-9]+$/' \
    "$HERE/releases.tsv")
  [ -n "$ROW" ] || die "unknown release $1; expected one of: $(releases | tr '\n' ' ')"
  DIR=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/coalesce-oracle}
  # shellcheck disable=SC2086
  set -- $ROW
  TORCH_V=$1 CUDART_V=$2 STD=$3 ABI=$4 SHA_C10=$5 SHA_C10_CUDA=$6
  CUDA=${CUDART_V%%.*}
  mkdir -p "$DIR"
  BASE=$(cd "$DIR" && pwd -P)
  DIR=$BASE
  [ "$TORCH_V" = "$DEFAULT" ] || DIR=$DIR/torch-$TORCH_V
  mkdir -p "$DIR"
}
