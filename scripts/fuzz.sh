#!/bin/sh
# Fuzzes: scripts/fuzz.sh SECONDS [target...], each target for so many seconds; without targets all of tests/fuzz. Installs
# missing Debian packages. TOW_FUZZ_PRESET in the environment: fuzz (the default, with sanitizers) or fuzz-fast. Runs as many
# targets at once as there are CPUs and prints the executions of each. TOW_FUZZ_SEED: where libFuzzer's random numbers begin, a
# new one every time if it is not set. Exit status 1 if one of them found something, which is then in
# build/PRESET/findings/TARGET.
set -eu
cd "$(dirname "$0")/.."
. scripts/setup.sh

all="graph safetensors checkpoint npy npz gguf data events policy tokenizer mapping"
preset=${TOW_FUZZ_PRESET:-fuzz}
seconds=${1:-}
case $preset in fuzz | fuzz-fast) ;; *) die "TOW_FUZZ_PRESET: expected fuzz or fuzz-fast, found '$preset'" ;; esac
case $seconds in '' | *[!0-9]* | 0*) die "usage: scripts/fuzz.sh SECONDS [target...], with SECONDS above 0 and targets of: $all" ;; esac
shift
for target; do
    case " $all " in *" $target "*) ;; *) die "unknown target '$target': expected one of $all" ;; esac
done
[ $# -gt 0 ] || set -- $all

# Targets themselves fail where an input keeps the processor busy for too long (FUZZ_MOST_SECONDS in fuzz.h). What never ends is
# found by the clock, which goes on while others have the processor.
timeout=60

dictionary_of() {
    case $1 in checkpoint) echo safetensors ;; *) echo "$1" ;; esac
}

install_missing "$preset"
targets=$(printf 'fuzz_%s ' "$@")
build "$preset" "-DTOW_WERROR=${TOW_WERROR:-OFF}"

# fuzz_target TARGET: status 1 if it found something.
# -entropic=0: libFuzzer's usual choice of what to mutate takes twice as long as the graph target itself.
fuzz_target() {
    findings=build/$preset/findings/$1
    corpus=build/$preset/corpus/$1 # what is found, and where the next run begins
    log=build/$preset/fuzz-$1.log
    more=""
    [ "$1" != graph ] || more=tests/graphs
    mkdir -p "$findings" "$corpus"
    status=0
    # shellcheck disable=SC2086
    "build/$preset/tests/fuzz_$1" -seed="${TOW_FUZZ_SEED:-0}" -max_total_time="$seconds" -timeout="$timeout" -entropic=0 -rss_limit_mb=1024 -max_len=4096 \
        -dict="tests/fuzz/$(dictionary_of "$1").dict" -artifact_prefix="$findings/" -print_final_stats=1 \
        "$corpus" "tests/fuzz/seeds/$1" $more >"$log" 2>&1 </dev/null || status=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
    say "$1: ${runs:-?} executions in $seconds s, ${runs:+$((runs / seconds)) per second, }$([ "$status" = 0 ] && echo "nothing found" || echo "FAILED")"
    [ "$status" != 0 ] || return 0
    grep -v '^#' "$log" | tail -n 60 >&2
    say "the input is in $findings, the whole log in $log"
    return 1
}

# As many at once as there are CPUs; a target has one thread.
failed=0
while [ $# -gt 0 ]; do
    running=""
    for _ in $(seq "$(nproc)"); do
        [ $# -gt 0 ] || break
        fuzz_target "$1" &
        running="$running $!"
        shift
    done
    for process in $running; do wait "$process" || failed=1; done
done
exit "$failed"
