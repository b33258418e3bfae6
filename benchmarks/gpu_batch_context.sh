#!/usr/bin/env bash
# Batch-level context at base size on a whole corpus, in two stages, the same budget for each system: for a GPU.
#
#   DATA=../shared/data OUT=runs/mix UPDATES=20000 bash benchmarks/gpu_batch_context.sh
#   RUNS="doc2doc docflat-c docflat-d" ... bash benchmarks/gpu_batch_context.sh      some of the recipes docflat/...
#   BEFORE="0 1 2 5 9" ...                     Doc2Doc and DocFlat by local context, figures 1 and 5
#   NEIGHBOURS="1 2 4 8 16 32" ...             DocFlat by inference batch, figure 6
#
# Shares the prepared corpus of gpu_focused_concatenation.sh. Stage I is the sentence model, from which all others
# start and which makes the first pass. Batch-level systems translate in both schedules: sequentially, and in
# parallel behind the first pass; Doc2Doc with and without the first pass. Steps that are done are not repeated, so
# that the script can be stopped and started again at any moment. Updates a second follow from each run's
# metrics.jsonl.
set -euo pipefail
DATA=${DATA:-../shared/data}
OUT=${OUT:-runs/mix}
UPDATES=${UPDATES:-20000}
FINETUNE=${FINETUNE:-$((UPDATES / 2))}
SIZE=${SIZE:-base}
VOCABULARY=${VOCABULARY:-32000}
PRECISION=${PRECISION:-bf16}
MAX_TOKENS=${MAX_TOKENS:-16000}
RUNS=${RUNS:-doc2doc flat-transformer mbe abd docflat-c docflat-d docflat-i}
BEFORE=${BEFORE:-}
NEIGHBOURS=${NEIGHBOURS:-}
mix=$DATA/mix-ende
ted=$DATA/maruf/ted
sent=$OUT/docflat-sent2sent
mkdir -p "$OUT"

[ -d "$OUT/data" ] || cotext prepare --vocabulary "$VOCABULARY" --out "$OUT/data" \
  --source "$mix/train.en.xz" --target "$mix/train.de.xz" \
  --dev-source "$mix/dev.en.xz" --dev-target "$mix/dev.de.xz"

train() {  # run recipe updates overrides...
  local run=$1 recipe=$2 updates=$3
  shift 3
  cotext train "$recipe" --data "$OUT/data" --out "$run" --size "$SIZE" \
    train.max_updates="$updates" train.max_tokens="$MAX_TOKENS" train.accumulate=1 train.precision="$PRECISION" \
    train.validate_every=$((updates / 10)) train.warmup_updates=$((updates / 5)) "$@"
}

score() {  # run name settings...
  local run=$1 name=$2
  shift 2
  local settings=()
  for setting in "$@"; do settings+=(--set "$setting"); done
  for set in mix ted; do
    if [ "$set" = mix ]; then source=$mix/test.en.xz reference=$mix/test.de.xz hypothesis=$run/$set-$name.de.xz
    else source=$ted/test.en reference=$ted/test.de hypothesis=$run/$set-$name.de; fi
    [ -f "$hypothesis" ] ||
      cotext translate "$run" "$source" --out "$hypothesis" --set max_tokens=60000 "${settings[@]}"
    echo "$run $set $name"
    cotext evaluate --source "$source" --hypothesis "$hypothesis" --reference "$reference" \
      --protocol s-bleu --protocol d-bleu --protocol chrf
  done
}

contrast() {  # run
  [ -f "$1/contrapro.json" ] ||
    cotext contrastive "$1" "$DATA/contrapro/contrapro-ctx1.jsonl.xz" --out "$1/contrapro.json"
}

train "$sent" docflat/sent2sent "$UPDATES"
score "$sent" alone
contrast "$sent"

for name in $RUNS; do
  run=$OUT/docflat-$name
  train "$run" "docflat/$name" "$FINETUNE" --init "$sent"
  score "$run" sequential
  case $name in
    doc2doc*) score "$run" two-passes first_pass="$sent" ;;
    docflat-*|mbe|abd*) score "$run" parallel schedule=simultaneous first_pass="$sent" ;;
  esac
  contrast "$run"
  case $name in
    docflat-*|abd*) cotext attention "$run" "$ted/test.en" --target "$ted/test.de" --out "$run/attention" ;;
  esac
done

for before in $BEFORE; do
  for name in doc2doc docflat-c docflat-d; do
    run=$OUT/docflat-$name-before-$before
    train "$run" "docflat/$name" "$FINETUNE" view.before="$before" --init "$sent"
    score "$run" sequential
  done
done

for count in $NEIGHBOURS; do
  for name in docflat-c docflat-d; do
    score "$OUT/docflat-$name" "neighbours-$count" neighbours="$count"
  done
done
