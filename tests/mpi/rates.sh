#!/bin/bash
# rates.sh SCRATCH PROGRAM: two machines on this one (network namespaces with a pair of virtual cards whose rate is limited),
# and the time of collectives between them beside that of the model of docs/scaling.md. Status 77: not permitted here.
set -eu
scratch=$1 program=$2
# shellcheck source=tests/mpi/two_machines.sh
. "$(dirname "$0")/two_machines.sh"
set_up_machines
run() { # BITS_PER_SECOND BYTES,... REPEATS
    run_on_both 2 100 "$program" --bytes "$2" --repeat "$3" --bandwidth "$1" --latency 100e-6
}

# The rate counts the headers of packets, of which the model knows nothing (4 to 6 %), and lets the first 128 KiB pass at once. A
# machine that is busy makes times longer, so only with TOW_STRICT_RATES=1 they may be at most 15 % longer than predicted.
most=8
[ "${TOW_STRICT_RATES:-0}" = 0 ] || most=1.15
failed=0
for rate in 100 1000; do
    limit "${rate}mbit"
    bytes=$((rate * 1000000 / 8 / 2)) # half of it goes each way, in a quarter of a second
    run "${rate}e6" "$bytes" 3 >"$scratch/rate$rate" 2>&1 || { cat "$scratch/rate$rate"; exit 1; }
    echo "$rate Mbit/s:"
    grep -E '^(coll|reduce|all)' "$scratch/rate$rate"
    awk -v most="$most" '/^(reduce|all)/ { r = $3 / $5; printf "  %-15s measured / predicted %.3f\n", $1, r
        if (r < 0.9 || r > most) bad = 1 } END { exit bad }' "$scratch/rate$rate" || failed=1
done
exit $failed
