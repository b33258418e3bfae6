#!/usr/bin/env bash
# Focused concatenation at base size on a whole corpus, the same budget for each system: for a GPU.
#
#   DATA=../shared/data OUT=runs/mix UPDATES=20000 bash benchmarks/gpu_focused_concatenation.sh
#
# Steps that are done are not repeated, so that the script can be stopped and started again at any moment.
set -euo pipefail
DATA=${DATA:-../shared/data}
OUT=${OUT:-runs/mix}
UPDATES=${UPDATES:-20000}
SIZE=${SIZE:-base}
VOCABULARY=${VOCABULARY:-32000}
PRECISION=${PRECISION:-bf16}
mix=$DATA/mix-ende
mkdir -p "$OUT"

[ -d "$OUT/data" ] || cotext prepare --vocabulary "$VOCABULARY" --out "$OUT/data" \
  --source "$mix/train.en.xz" --target "$mix/train.de.xz" \
  --dev-source "$mix/dev.en.xz" --dev-target "$mix/dev.de.xz"

for system in base s4to4 s4to4-cd s4to4-shift-cd; do
  run=$OUT/$system
  cotext train "focused-concatenation/$system" --data "$OUT/data" --out "$run" --size "$SIZE" \
    train.max_updates="$UPDATES" train.max_tokens=16000 train.accumulate=1 train.precision="$PRECISION" \
    train.validate_every=$((UPDATES / 10)) train.warmup_updates=$((UPDATES / 5))
  for set in mix ted; do
    if [ "$set" = mix ]; then source=$mix/test.en.xz reference=$mix/test.de.xz
    else source=$DATA/maruf/ted/test.en reference=$DATA/maruf/ted/test.de; fi
    hypothesis=$run/$set.de
    [ "$set" = ted ] || hypothesis=$hypothesis.xz
    [ -f "$hypothesis" ] || cotext translate "$run" "$source" --out "$hypothesis" --set max_tokens=60000
    cotext evaluate --source "$source" --hypothesis "$hypothesis" --reference "$reference"
  done
  cotext contrastive "$run" "$DATA/contrapro/contrapro-ctx1.jsonl.xz" --out "$run/contrapro.json"
done
