#!/usr/bin/env bash
# MCN at base size on a whole corpus, the rows of tables 3 and 4, the same budget for each system: for a GPU.
#
#   DATA=../shared/data OUT=runs/mix UPDATES=20000 bash benchmarks/gpu_mcn.sh
#   RUNS="sent final" ... bash benchmarks/gpu_mcn.sh                 some of the recipes mcn/...
#   SIZE=ted ... bash benchmarks/gpu_mcn.sh                          the paper's small size
#   CONTEXT=1 ...                                                    figure 3 of the final system, on TED talks
#
# Shares the prepared corpus of gpu_focused_concatenation.sh. Every system translates whole documents and, as
# documents of one, their sentences (table 2). Steps that are done are not repeated, so that the script can be stopped
# and started again at any moment. Speed follows from tokens_per_second in each run's metrics.jsonl.
set -euo pipefail
DATA=${DATA:-../shared/data}
OUT=${OUT:-runs/mix}
UPDATES=${UPDATES:-20000}
FINETUNE=${FINETUNE:-$((UPDATES / 2))}
SIZE=${SIZE:-base}
VOCABULARY=${VOCABULARY:-32000}
PRECISION=${PRECISION:-bf16}
MAX_TOKENS=${MAX_TOKENS:-16000}
RUNS=${RUNS:-sent docnmt doc2sent doc2sent-reset doc2sent-reset-segment doc2sent-relative doc2sent-gate sent2doc final final-sent final-source-tl final-tl}
CONTEXT=${CONTEXT:-}
mix=$DATA/mix-ende
ted=$DATA/maruf/ted
mkdir -p "$OUT"

[ -d "$OUT/data" ] || cotext prepare --vocabulary "$VOCABULARY" --out "$OUT/data" \
  --source "$mix/train.en.xz" --target "$mix/train.de.xz" \
  --dev-source "$mix/dev.en.xz" --dev-target "$mix/dev.de.xz"

run_of() {  # recipe
  echo "$OUT/mcn-$1$([ "$SIZE" = base ] || echo "-$SIZE")"
}

train() {  # recipe updates options...
  local name=$1 updates=$2
  shift 2
  cotext train "mcn/$name" --data "$OUT/data" --out "$(run_of "$name")" --size "$SIZE" \
    train.max_updates="$updates" train.max_tokens="$MAX_TOKENS" train.accumulate=1 train.precision="$PRECISION" \
    train.validate_every=$((updates / 10)) train.warmup_updates=$((updates / 5)) "$@"
}

translate() {  # run source reference hypothesis
  [ -f "$4" ] || cotext translate "$1" "$2" --out "$4" --set max_tokens=60000
  echo "$4"
  cotext evaluate --source "$2" --hypothesis "$4" --reference "$3" \
    --protocol s-bleu --protocol d-bleu --protocol chrf
}

# The talks, every sentence a document: an empty line behind each, and no line that opens a document.
for side in en de; do
  [ -f "$OUT/ted-sentences.$side" ] ||
    sed -e '/^<d>/d' -e '/^$/d' -e 's/$/\n/' "$ted/test.$side" > "$OUT/ted-sentences.$side"
done

for name in $RUNS; do
  run=$(run_of "$name")
  case $name in
    *-tl) train "$name" "$FINETUNE" --init "$(run_of final-sent)" ;;
    *) train "$name" "$UPDATES" ;;
  esac
  translate "$run" "$mix/test.en.xz" "$mix/test.de.xz" "$run/mix.de.xz"
  translate "$run" "$ted/test.en" "$ted/test.de" "$run/ted.de"
  translate "$run" "$OUT/ted-sentences.en" "$OUT/ted-sentences.de" "$run/ted-sentences.de"
  [ -f "$run/contrapro.json" ] ||
    cotext contrastive "$run" "$DATA/contrapro/contrapro-ctx1.jsonl.xz" --out "$run/contrapro.json"
  case $name in
    final*) [ -f "$run/attention/attention.json" ] ||
      cotext attention "$run" "$ted/test.en" --target "$ted/test.de" --out "$run/attention" ;;
  esac
done

# The talks as a prepared test set, for figure 3.
if [ -n "$CONTEXT" ]; then
  mkdir -p "$OUT/ted"
  python -c 'import sys; from pathlib import Path; from cotext.data.formats import read_parallel, write_parallel; \
write_parallel(Path(sys.argv[3]), None, read_parallel(Path(sys.argv[1]), Path(sys.argv[2])), "jsonl")' \
    "$ted/test.en" "$ted/test.de" "$OUT/ted/test.jsonl"
  python -m benchmarks.mcn context "$(run_of final)" "$OUT/ted"
fi
