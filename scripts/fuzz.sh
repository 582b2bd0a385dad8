#!/bin/sh
# Fuzzes: scripts/fuzz.sh SECONDS [target...], each target for so many seconds; without targets all of tests/fuzz. Installs
# missing Debian packages. TOW_FUZZ_PRESET in the environment: fuzz (the default, with sanitizers) or fuzz-fast. Prints the
# executions of each target. TOW_FUZZ_SEED: where libFuzzer's random numbers begin, a new one every time if it is not set. Exit
# status 1 if one of them found something, which is then in build/PRESET/findings/TARGET.
set -eu
cd "$(dirname "$0")/.."
. scripts/setup.sh

all="graph safetensors checkpoint npy policy"
preset=${TOW_FUZZ_PRESET:-fuzz}
seconds=${1:-}
case $preset in fuzz | fuzz-fast) ;; *) die "TOW_FUZZ_PRESET: expected fuzz or fuzz-fast, found '$preset'" ;; esac
case $seconds in '' | *[!0-9]* | 0*) die "usage: scripts/fuzz.sh SECONDS [target...], with SECONDS above 0 and targets of: $all" ;; esac
shift
for target; do
    case " $all " in *" $target "*) ;; *) die "unknown target '$target': expected one of $all" ;; esac
done
[ $# -gt 0 ] || set -- $all

# An input may take a second. libFuzzer counts time on the clock, and code that is not optimised and checked by sanitizers
# takes five to ten times as long.
timeout=1
[ "$preset" = fuzz-fast ] || timeout=10

dictionary_of() {
    case $1 in checkpoint) echo safetensors ;; *) echo "$1" ;; esac
}

# -entropic=0: libFuzzer's usual choice of what to mutate takes twice as long as the graph target itself.
install_missing "$preset"
build "$preset" "-DTOW_WERROR=${TOW_WERROR:-OFF}"
failed=0
for target; do
    findings=build/$preset/findings/$target
    corpus=build/$preset/corpus/$target # what is found, and where the next run begins
    log=build/$preset/fuzz-$target.log
    more=""
    [ "$target" != graph ] || more=tests/graphs
    mkdir -p "$findings" "$corpus"
    status=0
    # shellcheck disable=SC2086
    "build/$preset/tests/fuzz_$target" -seed="${TOW_FUZZ_SEED:-0}" -max_total_time="$seconds" -timeout="$timeout" -entropic=0 -rss_limit_mb=1024 -max_len=4096 \
        -dict="tests/fuzz/$(dictionary_of "$target").dict" -artifact_prefix="$findings/" -print_final_stats=1 \
        "$corpus" "tests/fuzz/seeds/$target" $more >"$log" 2>&1 </dev/null || status=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    say "$target: ${runs:-?} executions in $seconds s, ${runs:+$((runs / seconds)) per second, }$([ "$status" = 0 ] && echo "nothing found" || echo "FAILED")"
    if [ "$status" != 0 ]; then
        grep -v '^#' "$log" | tail -n 60 >&2
        say "the input is in $findings, the whole log in $log"
        failed=1
    fi
done
exit "$failed"
