#!/usr/bin/env bash
# test.sh VAE: the bound gets tighter, both halves learn at rates of their own, and a run is the same on any number of threads.
. "$(dirname "$0")/../common/testing.sh"

# 64 pixels that know nothing cost 44 nats; 1,200 steps bring it below 28, and the error of a pixel below 0.19
"$program" --steps 1200 --out a/b --log log >out 2>err || fail "$(cat out err)"
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
"$program" --steps 1200 --out again --threads 1 >/dev/null 2>&1
cmp a/b/vae.safetensors again/vae.safetensors || fail "two runs differ"
"$program" --steps 1200 --out other --decoder-rate 1e-9 >out2 2>&1
slow=$(sed -n 's/^error of a pixel of 359 held-out digits: \([0-9.]*\)$/\1/p' out2)
awk -v e="$slow" 'BEGIN { exit !(e > 0.3) }' || fail "a decoder that does not learn draws too well: $slow"

# Ctrl-C stops after a step, and what there is is written
interrupt_at 'step 20/1000000' --steps 1000000 --out stopped
[ -s stopped/samples.png ] || fail "no samples after Ctrl-C"

expect_status 2 "--decoder-rate" --decoder-rate 0
expect_status 2 "--batch" --batch 0
expect_status 1 "is not finite; use a smaller --learning-rate" --steps 20 --learning-rate 1e38 --out diverged
[ -z "$(ls diverged)" ] || fail "after a loss that is not finite there are $(ls diverged)"
expect_status 1 "absent" --steps 1 --out z --log absent/log
