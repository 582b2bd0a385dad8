#!/bin/sh
# Compares builds: scripts/same-bits.sh PRESET PRESET... Results and gradients of all cases of all primitives, loss, gradients and
# three steps of training of 100 random models, and the parameters and the state of the optimizer after some steps of the example
# GPT, are the same bits whatever compiled them, for whatever processor. The presets are built already.
set -eu
cd "$(dirname "$0")/.."
. scripts/setup.sh
[ $# -ge 2 ] || die "expected two presets or more, all of them built"

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
export TOW_ENGINE=own # as .portable_bits: products by what has the same bits on all machines

first=$1
for preset; do
    programs=build/$preset/bin tests=build/$preset/tests
    [ ! -d "build/$preset/emulated" ] || programs=build/$preset/emulated tests=$programs
    mkdir "$results/$preset"
    "$tests/test_primitives" --bits >"$results/$preset/primitives" & # all at once, in emulators these take minutes
    primitives=$!
    "$tests/random_models" --bits --count 100 >"$results/$preset/models" &
    models=$!
    "$programs/gpt" --text README.md --layers 2 --width 48 --heads 3 --context 40 --batch 3 --steps 12 --no-sample \
        --checkpoint "$results/$preset" >"$results/$preset/log" 2>&1 || { cat "$results/$preset/log"; die "$preset: gpt failed"; }
    wait "$primitives" || die "$preset: $tests/test_primitives --bits failed"
    wait "$models" || die "$preset: $tests/random_models --bits failed"
    [ "$preset" = "$first" ] && continue
    diff "$results/$first/primitives" "$results/$preset/primitives" || die "$first and $preset differ in the primitives above"
    diff "$results/$first/models" "$results/$preset/models" || die "$first and $preset differ in the random models above"
    cmp "$results/$first/checkpoint.safetensors" "$results/$preset/checkpoint.safetensors" ||
        die "$first and $preset differ in parameters after 12 steps of training"
done
say "$(wc -l <"$results/$first/primitives") hashes of primitives, 100 random models and the checkpoint of a GPT are the same for $*"
