#!/usr/bin/env bash
# CASA at base size on a whole corpus: teachers, their translations of the training data, what learns from them, and
# what it is compared with, the same budget for each system: for a GPU.
#
#   DATA=../shared/data OUT=runs/mix UPDATES=50000 bash benchmarks/gpu_casa.sh
#   RUNS="casa latent" KD="raw doc" ... bash benchmarks/gpu_casa.sh      some of the recipes casa/..., on some data
#   GPUS=4 ...                                                           teachers translate on so many at once
#   SPEED= ...                                                           without the time of decoding
#
# Shares the prepared corpus of gpu_focused_concatenation.sh and the teachers of gpu_document_to_document.sh: g-sent,
# the sentence model (sent-KD), and g-finetune, the document model that starts from it (doc-KD). Steps that are done
# are not repeated, so that the script can be stopped and started again at any moment. Curves are in each run's
# metrics.jsonl. Hours on one GPU, if all is to be done; RUNS=casa KD=doc is the shortest way to the paper's main row.
set -euo pipefail
DATA=${DATA:-../shared/data}
OUT=${OUT:-runs/mix}
UPDATES=${UPDATES:-50000}
TEACHER_UPDATES=${TEACHER_UPDATES:-20000}
SIZE=${SIZE:-base}
VOCABULARY=${VOCABULARY:-32000}
PRECISION=${PRECISION:-bf16}
MAX_TOKENS=${MAX_TOKENS:-16000}
DECODE_TOKENS=${DECODE_TOKENS:-60000}
KD=${KD:-raw sent doc}
RUNS=${RUNS:-casa latent glat glat-ctc latent-glat}
RIVALS=${RIVALS:-shadow-10-2 shadow-8-4 2to2}
GPUS=${GPUS:-1}
SPEED=${SPEED-1}
mix=$DATA/mix-ende
ted=$DATA/maruf/ted
mkdir -p "$OUT"

[ -d "$OUT/data" ] || cotext prepare --vocabulary "$VOCABULARY" --out "$OUT/data" \
  --source "$mix/train.en.xz" --target "$mix/train.de.xz" \
  --dev-source "$mix/dev.en.xz" --dev-target "$mix/dev.de.xz"

train() {  # run recipe data updates options...
  local run=$1 recipe=$2 data=$3 updates=$4
  shift 4
  cotext train "$recipe" --data "$data" --out "$run" --size "$SIZE" \
    train.max_updates="$updates" train.max_tokens="$MAX_TOKENS" train.accumulate=1 train.precision="$PRECISION" \
    train.validate_every=$((updates / 10)) "$@"
}

score() {  # run
  local run=$1
  for set in mix ted; do
    if [ "$set" = mix ]; then source=$mix/test.en.xz reference=$mix/test.de.xz hypothesis=$run/mix.de.xz
    else source=$ted/test.en reference=$ted/test.de hypothesis=$run/ted.de; fi
    [ -f "$hypothesis" ] || cotext translate "$run" "$source" --out "$hypothesis" --set max_tokens="$DECODE_TOKENS"
    echo "$hypothesis"
    cotext evaluate --source "$source" --hypothesis "$hypothesis" --reference "$reference" \
      --protocol s-bleu --protocol d-bleu --protocol chrf
  done
  [ -f "$run/contrapro.json" ] ||
    cotext contrastive "$run" "$DATA/contrapro/contrapro-ctx1.jsonl.xz" --out "$run/contrapro.json"
}

teach() {  # sent or doc
  train "$OUT/g-sent" g-transformer/sent "$OUT/data" "$TEACHER_UPDATES" \
    train.warmup_updates=$((TEACHER_UPDATES / 5))
  [ "$1" = sent ] || train "$OUT/g-finetune" g-transformer/finetune "$OUT/data" "$TEACHER_UPDATES" \
    --init "$OUT/g-sent" train.warmup_updates=$((TEACHER_UPDATES / 5))
}

distill() {  # sent or doc
  local teacher=$OUT/g-sent out=$OUT/data-$1-kd shard workers=()
  [ "$1" = sent ] || teacher=$OUT/g-finetune
  [ ! -d "$out" ] || return 0
  if [ "$GPUS" -gt 1 ]; then
    for shard in $(seq "$GPUS"); do
      CUDA_VISIBLE_DEVICES=$((shard - 1)) cotext distill "$teacher" --data "$OUT/data" --out "$out" \
        --set beam=5 --set max_tokens="$DECODE_TOKENS" --shard "$shard/$GPUS" &
      workers+=($!)
    done
    wait "${workers[@]}"
  fi
  cotext distill "$teacher" --data "$OUT/data" --out "$out" --set beam=5 --set max_tokens="$DECODE_TOKENS"
}

for data in $KD; do
  folder=$OUT/data
  if [ "$data" != raw ]; then
    teach "$data"
    distill "$data"
    folder=$OUT/data-$data-kd
  fi
  for name in $RUNS; do
    run=$OUT/casa-$name-$data
    train "$run" "casa/$name" "$folder" "$UPDATES" train.warmup_updates=$((UPDATES * 2 / 25))
    score "$run"
  done
done
for run in "$OUT/g-sent" "$OUT/g-finetune"; do
  [ ! -f "$run/model.safetensors" ] || score "$run"
done
for name in $RIVALS; do
  train "$OUT/$name" "casa/$name" "$OUT/data" "$TEACHER_UPDATES" train.warmup_updates=$((TEACHER_UPDATES / 5))
  score "$OUT/$name"
done

[ -z "$SPEED" ] || python -m benchmarks.parallel length --size base | tee "$OUT/casa-length.txt"
