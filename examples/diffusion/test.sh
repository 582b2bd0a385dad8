#!/usr/bin/env bash
# test.sh DIFFUSION: a short run draws the digits that it is asked for, nearer to real ones than noise is, the same ones each time.
. "$(dirname "$0")/../common/testing.sh"

"$program" --steps 400 --batch 32 --out a --log log >out 2>err || fail "$(cat out err)"
[ "$(wc -l <log)" -eq 400 ] || fail "expected 400 lines of log, found $(wc -l <log)"
# noise has variance 1, which is the error of a model that knows nothing
mean=$(sed -n 's/.*"mean_loss": \([^,]*\),.*/\1/p' log | tail -n 1)
awk -v m="$mean" 'BEGIN { exit !(m > 0.01 && m < 0.4) }' || fail "the mean loss is $mean: $(cat out)"
drawn=$(sed -n 's/^drawn: *100 images, \([0-9.]*\) from .*/\1/p' out)
held=$(sed -n 's/^held out: *359 images, \([0-9.]*\) from .*/\1/p' out)
noise=$(sed -n 's/^noise: *100 images, \([0-9.]*\) from .*/\1/p' out)
awk -v d="$drawn" -v h="$held" -v n="$noise" 'BEGIN { exit !(h < d && d < (h + n) / 2) }' ||
    fail "digits are drawn at distance $drawn; real ones are at $held, noise is at $noise"
# read by their nearest neighbors: 98 of 100 real digits are read right, and labels that do not matter would make it 10 of 100
right=$(sed -n 's/^drawn: .* the same digit for \([0-9.]*\) %$/\1/p' out)
real=$(sed -n 's/^held out: .* the same digit for \([0-9.]*\) %$/\1/p' out)
awk -v d="$right" -v r="$real" 'BEGIN { exit !(r > 95 && d >= 65) }' ||
    fail "$right % of the drawn digits are read as what they should be, of real ones $real %"
for file in samples.png film.png loss.svg diffusion.safetensors; do [ -s a/$file ] || fail "no $file"; done
"$program" --steps 20 --out b >out2
"$program" --steps 20 --out c --threads 1 >out3
for file in samples.png film.png diffusion.safetensors; do cmp b/$file c/$file || fail "two runs differ"; done

interrupt_at 'step 20/1000000' --steps 1000000 --out stopped
[ -s stopped/diffusion.safetensors ] || fail "Ctrl-C: no weights"
status=0
"$program" --batch 0 >out 2>err || status=$?
[ $status -eq 2 ] || fail "--batch 0: expected status 2, found $status"
printf 'diffusion test: passed\n'
