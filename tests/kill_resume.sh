#!/usr/bin/env bash
# A training run that is killed at random moments and resumed ends with the same bits as one that runs through.
#   kill_resume.sh path/to/gpt
# The killed run also changes its policy, its number of threads and between scanned and unrolled blocks from one attempt to
# the next: none of this may change a bit either.
set -euo pipefail

gpt=$1
attempts=50
steps=4000
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

fail() { printf 'kill_resume: %s\n' "$*" >&2; exit 1; }

for i in $(seq 400); do printf 'line %d of a text: %d and %d\n' "$i" $((i * i % 97)) $((i * 31 % 53)); done >"$directory/text"

train() { # train DIRECTORY [options]: replaces the shell, so that a kill hits the program; call it in ( )
    local checkpoint=$1
    shift
    exec "$gpt" --text "$directory/text" --layers 2 --width 16 --heads 2 --context 16 --batch 2 --steps $steps --seed 3 \
        --no-sample --eval-every 0 --save-every 5 --checkpoint "$checkpoint" "$@" >"$checkpoint.out" 2>&1
}

start=$(date +%s%N)
(train "$directory/whole") || fail "the uninterrupted run failed: $(cat "$directory/whole.out")"
duration=$((($(date +%s%N) - start) / 1000)) # microseconds

variants=("" "--policy nothing" "--no-scan" "--no-scan --policy dots" "--threads 1" "--policy everything --threads 2")

# Kills some resumed runs, each after up to an eightieth of the duration. False if one reached its end instead: with unrolled
# blocks it would leave a file with the same numbers in another order.
kill_some() {
    rm -rf "$directory/killed"
    killed=0
    local i pid delay status
    for ((i = 0; i < attempts; i++)); do
        # shellcheck disable=SC2086
        (train "$directory/killed" --resume ${variants[i % ${#variants[@]}]}) &
        pid=$!
        delay=$((duration * (RANDOM % 1000) / 80000))
        sleep "$(printf '%d.%06d' $((delay / 1000000)) $((delay % 1000000)))"
        kill -KILL "$pid" 2>/dev/null || true # it may have ended
        status=0
        wait "$pid" 2>/dev/null || status=$?
        if [ $status -eq 0 ]; then return 1; fi
        [ $status -eq 137 ] || fail "a resumed run failed with status $status: $(cat "$directory/killed.out")"
        killed=$((killed + 1))
    done
}

# The duration is that of a machine that may have been busier then, or less busy.
for ((try = 0; try < 8; try++)); do
    if ! kill_some; then
        duration=$((duration / 2))
    elif [ -f "$directory/killed/checkpoint.safetensors" ]; then
        break
    else
        duration=$((duration * 2))
    fi
done
[ $killed -eq $attempts ] || fail "only $killed of $attempts runs were killed in time; the test proves nothing"

(train "$directory/killed" --resume) || fail "the last run failed: $(cat "$directory/killed.out")"
grep -q 'going on after step [1-9]' "$directory/killed.out" || fail "no killed run left a checkpoint; the test proves nothing"
cmp "$directory/whole/checkpoint.safetensors" "$directory/killed/checkpoint.safetensors" ||
    fail "after $killed kills the parameters differ from those of the uninterrupted run"
leftover=$(find "$directory/killed" -type f ! -name checkpoint.safetensors)
[ -z "$leftover" ] || fail "files were left over: $leftover"
printf 'kill_resume: equal after %d kills\n' "$killed"
