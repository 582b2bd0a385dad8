#!/bin/bash
# two_machines.sh BUILD [ROUNDS]: steps of a GPT on two machines (network namespaces on this one, tests/mpi/two_machines.sh) with
# limited rates, in each stage of sharding, beside what `tow plan --processes 2` predicts.
#
#     bench/two_machines.sh build/release 5
#     RATES=1000 STAGES='2 3' MODEL='--layers 4 --width 256 --heads 4 --context 128' ROWS=8 bench/two_machines.sh build/release
#
# Rounds go through all stages in turn, and the round of the least waiting counts. All times are of one step, the one that
# --trace records at rank 0: "waits" is the time in starts and waits of exchanges, with the end of loops, which waits for the last
# sums; "computes" is the rest, from which the prediction is made, so that it holds on a busy machine, too. The model says which
# part of the waiting is needed. hidden: (exchanges - waits) / (exchanges - needed).
set -eu
build=$(realpath "$1") rounds=${2:-5} here=$(realpath "$(dirname "$0")")
scratch=$(mktemp -d)
# shellcheck source=tests/mpi/two_machines.sh
. "$here/../tests/mpi/two_machines.sh"
set_up_machines
export YIELD=0
trap 'remove_machines; rm -rf "$scratch"' EXIT
rows=${ROWS:-8} # of each
seq 1 4000 | awk '{ print "line " $1 " of a text about " ($1 * $1 % 97) " things" }' >"$scratch/text"
common="--text $scratch/text ${MODEL:---layers 4 --width 256 --heads 4 --context 128} --threads 1 --no-sample --eval-every 1000000"
# shellcheck disable=SC2086
"$build/bin/gpt" $common --steps 0 --batch "$rows" --graph "$scratch/graph" >"$scratch/out" 2>&1 || { cat "$scratch/out"; exit 1; }
for rate in ${RATES:-1000 100}; do
    limit "${rate}mbit"
    for round in $(seq "$rounds"); do
        for stage in ${STAGES:-0 1 2 3}; do
            # shellcheck disable=SC2086
            run_on_both 2 400 "$build/bin/gpt" $common --steps 2 --batch $((2 * rows)) --row-groups 2 --shard "$stage" \
                --trace "$scratch/$rate.$stage.$round" >"$scratch/out" 2>&1 || { cat "$scratch/out"; exit 1; }
        done
    done
done
python3 "$here/two_machines.py" --tow "$build/bin/tow" --graph "$scratch/graph" "$scratch"/*.[0-3].*
