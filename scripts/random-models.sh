#!/bin/sh
# Compares random models in many ways that promise the same bits: scripts/random-models.sh N [FIRST_SEED] [PRESET]
# tests/models/main.c says what is compared. Prints a line for every 100 models and a last line with the totals; models that
# fail are shrunk and written as build/<preset>/random-models/model_SEED.c. Default: from seed 1000 on, which are not those
# of the tests; preset release. Exit status 1 if any fails.
set -eu
cd "$(dirname "$0")/.."
. scripts/setup.sh

[ $# -ge 1 ] || die "expected a number of models: scripts/random-models.sh N [FIRST_SEED] [PRESET]"
count=$1 first=${2:-1000} preset=${3:-release}
is_preset "$preset" || die "unknown preset '$preset': expected one of" $(presets)
install_missing "$preset"
build "$preset"
mkdir -p "build/$preset/random-models"
exec "build/$preset/tests/random_models" --count "$count" --first "$first" --most 20 --progress \
    --output "build/$preset/random-models/model"
