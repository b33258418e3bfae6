#!/usr/bin/env bash
# Initial weights at small and base size on one GPU, two seeds each, with the recipes' own warm-ups.
#
#   benchmarks/gpu_initialisation.sh TRAIN.en TRAIN.de DEV.en DEV.de FOLDER
#
# Interrupted, the same command goes on; the tables are printed at the end of each size.
set -euo pipefail
train_en=$1 train_de=$2 dev_en=$3 dev_de=$4 folder=$5

cotext prepare --source "$train_en" --target "$train_de" --dev-source "$dev_en" --dev-target "$dev_de" --out "$folder/data"
for size in small base; do
  python -m benchmarks.initialisation "$folder/data" "$folder/runs" --size "$size" --updates 6000 --seeds 1 2 \
    train.precision=bf16
  python -m benchmarks.initialisation "$folder/data" "$folder/pre-norm" --size "$size" --updates 6000 --seeds 1 2 \
    --pre-norm train.precision=bf16
done
