#!/usr/bin/env bash
# Document to document at base size on a whole corpus, the same budget for each system: for a GPU.
#
#   DATA=../shared/data OUT=runs/mix UPDATES=20000 bash benchmarks/gpu_document_to_document.sh
#   RUNS="transformer-doc p-doc" ... bash benchmarks/gpu_document_to_document.sh      some of the rows
#   LENGTHS="128 256 512 1024" ...                      d-BLEU by input length, of the two systems of figure 7
#
# Shares the prepared corpus of gpu_focused_concatenation.sh. Steps that are done are not repeated, so that the
# script can be stopped and started again at any moment. The time of an epoch follows from tokens_per_second in each
# run's metrics.jsonl; recovered documents are in RUN/mix-free.log.
set -euo pipefail
DATA=${DATA:-../shared/data}
OUT=${OUT:-runs/mix}
UPDATES=${UPDATES:-20000}
SIZE=${SIZE:-base}
VOCABULARY=${VOCABULARY:-32000}
PRECISION=${PRECISION:-bf16}
RUNS=${RUNS:-transformer-sent transformer-doc p-sent p-ctx+sent p-doc p-doc+sent g-sent g-randinit g-finetune mr-doc2doc}
LENGTHS=${LENGTHS:-}
mix=$DATA/mix-ende
mkdir -p "$OUT"

[ -d "$OUT/data" ] || cotext prepare --vocabulary "$VOCABULARY" --out "$OUT/data" \
  --source "$mix/train.en.xz" --target "$mix/train.de.xz" \
  --dev-source "$mix/dev.en.xz" --dev-target "$mix/dev.de.xz"

train() {  # run recipe overrides...
  local run=$1 recipe=$2
  shift 2
  cotext train "$recipe" --data "$OUT/data" --out "$run" --size "$SIZE" \
    train.max_updates="$UPDATES" train.max_tokens=16000 train.accumulate=1 train.precision="$PRECISION" \
    train.validate_every=$((UPDATES / 10)) train.warmup_updates=$((UPDATES / 5)) "$@"
}

score() {  # run
  local run=$1
  for set in mix ted; do
    if [ "$set" = mix ]; then source=$mix/test.en.xz reference=$mix/test.de.xz
    else source=$DATA/maruf/ted/test.en reference=$DATA/maruf/ted/test.de; fi
    hypothesis=$run/$set.de
    [ "$set" = ted ] || hypothesis=$hypothesis.xz
    [ -f "$hypothesis" ] || cotext translate "$run" "$source" --out "$hypothesis" --set max_tokens=60000
    cotext evaluate --source "$source" --hypothesis "$hypothesis" --reference "$reference" \
      --protocol s-bleu --protocol d-bleu --protocol chrf
  done
}

for name in $RUNS; do
  case $name in
    transformer-*) recipe=p-transformer/$name ;;
    p-*) recipe=p-transformer/${name#p-} ;;
    g-*) recipe=g-transformer/${name#g-} ;;
    mr-*) recipe=mr/${name#mr-} ;;
  esac
  run=$OUT/$name
  init=()
  [ "$name" != g-finetune ] || init=(--init "$OUT/g-sent")
  train "$run" "$recipe" "${init[@]}"
  score "$run"
  case $name in
    *doc*)  # how many documents come back whole when nothing forces them to
      [ -f "$run/mix-free.de.xz" ] || cotext translate "$run" "$mix/test.en.xz" --out "$run/mix-free.de.xz" \
        --set align=free --set max_tokens=60000 | tee "$run/mix-free.log" ;;
  esac
  [ -f "$run/contrapro.json" ] ||
    cotext contrastive "$run" "$DATA/contrapro/contrapro-ctx1.jsonl.xz" --out "$run/contrapro.json"
done

for length in $LENGTHS; do
  for system in transformer-doc doc; do
    run=$OUT/$system-$length
    train "$run" "p-transformer/$system" view.max_tokens="$length"
    score "$run"
    cotext probe "$run" --task absolute
  done
done
