#!/usr/bin/env bash
# test.sh VAE: the bound gets tighter, both halves learn at rates of their own, and a run is the same on any number of threads.
set -euo pipefail
vae=$(realpath "$1")
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"

fail() { printf 'vae test: %s\n' "$*" >&2; exit 1; }

# 64 pixels that know nothing cost 44 nats; 1,200 steps bring it below 28, and the error of a pixel below 0.19
"$vae" --steps 1200 --out a/b --log log >out 2>err || fail "$(cat out err)"
[ "$(wc -l <log)" -eq 1200 ] || fail "expected 1200 lines of log, found $(wc -l <log)"
tail -n 20 log | sed 's/.*"loss": \([0-9.]*\).*/\1/' | awk '{ sum += $1 } END { exit !(NR == 20 && sum / NR < 28) }' ||
    fail "the loss after 1,200 steps is above 28: $(tail -n 1 log)"
error=$(sed -n 's/^error of a pixel of 359 held-out digits: \([0-9.]*\)$/\1/p' out)
awk -v e="$error" 'BEGIN { exit !(e > 0.05 && e < 0.19) }' || fail "error of a pixel: $error: $(cat out)"
for file in samples.png held-out.png; do
    [ "$(head -c 8 a/b/$file | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || fail "$file is no PNG"
done
grep -q '</svg>' a/b/loss.svg || fail "no curve"

# a pure function of its options, whatever the threads; a rate of the decoder counts
"$vae" --steps 1200 --out again --threads 1 >/dev/null 2>&1
cmp a/b/vae.safetensors again/vae.safetensors || fail "two runs differ"
"$vae" --steps 1200 --out other --decoder-rate 1e-9 >out2 2>&1
slow=$(sed -n 's/^error of a pixel of 359 held-out digits: \([0-9.]*\)$/\1/p' out2)
awk -v e="$slow" 'BEGIN { exit !(e > 0.3) }' || fail "a decoder that does not learn draws too well: $slow"

# Ctrl-C stops after a step, and what there is is written
"$vae" --steps 1000000 --out stopped >out 2>err &
pid=$!
for _ in $(seq 1200); do
    if grep -q '^step 20/1000000' out; then break; fi
    sleep 0.05
done
kill -INT $pid
status=0
wait $pid || status=$?
[ $status -eq 130 ] || fail "expected status 130 after Ctrl-C, found $status: $(cat out err)"
[ -s stopped/samples.png ] || fail "no samples after Ctrl-C"

expect_status() { # expect_status STATUS MESSAGE arguments...
    local expected=$1 message=$2 status=0
    shift 2
    "$vae" "$@" >text 2>err </dev/null || status=$?
    [ $status -eq "$expected" ] || fail "$*: expected status $expected, found $status: $(cat err)"
    grep -qF -- "$message" err || fail "$*: expected a message with '$message', found: $(cat err)"
}
expect_status 2 "--decoder-rate" --decoder-rate 0
expect_status 2 "--batch" --batch 0
expect_status 1 "is not finite; use a smaller --learning-rate" --steps 20 --learning-rate 1e38 --out diverged
[ -z "$(ls diverged)" ] || fail "after a loss that is not finite there are $(ls diverged)"
expect_status 1 "absent" --steps 1 --out z --log absent/log
