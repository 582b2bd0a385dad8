#!/usr/bin/env bash
# test.sh CHARS: learns to write, the same way each time, and carries what it read from step to step.
. "$(dirname "$0")/../common/testing.sh"

# Lines of a letter, six dots and the same letter: of each second letter nothing tells but what was read seven characters before,
# often in the step before.
awk 'BEGIN { s = 7; for (i = 0; i < 8000; i++) { s = (s * 1103515245 + 12345) % 2147483648
    c = substr("abcdefgh", int(s / 65536) % 8 + 1, 1); print c "......" c } }' >memory.txt
options=(--text memory.txt --batch 17 --time 13 --width 32 --steps 1000 --sample 0 --learning-rate 0.02)
"$program" "${options[@]}" --out a/b --log log >out 2>err || fail "$(cat out err)"
read -r kept forgotten < <(sed -nE 's/^held-out text: ([0-9.]+) nats .*; ([0-9.]+) without.*$/\1 \2/p' out)
# Of 9 characters one in 8 letters is news: ln(8) / 9 = 0.231 nats per character, and twice that where the letter is forgotten.
awk -v k="$kept" -v f="$forgotten" 'BEGIN { exit !(k > 0.22 && k < 0.26 && f > 0.33) }' ||
    fail "kept $kept, forgotten $forgotten: $(cat out)"
[ "$(wc -l <log)" -eq 1000 ] || fail "expected 1000 lines of log, found $(wc -l <log)"
grep -q '"val_loss"' log || fail "no validation in the log"
grep -q '<svg' a/b/loss.svg || fail "loss.svg is no picture"

# a pure function of its options, whatever the threads
small=(--text memory.txt --batch 8 --time 9 --width 24 --layers 2 --sample 20 --steps 6000)
"$program" "${small[@]}" --out whole --threads 1 >out
"$program" "${small[@]}" --out again >out2
cmp whole/chars.safetensors again/chars.safetensors || fail "two runs differ"
diff <(tail -n 2 out) <(tail -n 2 out2) || fail "two runs write different texts"

# Ctrl-C stops after a step; who goes on from there ends where the others did, carries and all
interrupt_at 'step 300/' "${small[@]}" --out part
grep -q '^stopped after step' out || fail "Ctrl-C: $(cat out)"
[ -z "$(ls part | grep tmp || true)" ] || fail "Ctrl-C: files are left: $(ls part)"
"$program" "${small[@]}" --resume part/chars.safetensors --out resumed >out
cmp whole/chars.safetensors resumed/chars.safetensors || fail "a run that was stopped ends elsewhere"

expect_status 2 "--layers" --layers 9
expect_status 2 "--steps" --steps 0
expect_status 1 "absent: cannot read" --text absent
expect_status 1 "expected at least" --text memory.txt --time 60000
expect_status 1 "choose a longer text, a smaller --batch" --text memory.txt --batch 1024
expect_status 1 "params/" --text memory.txt --batch 8 --time 9 --width 48 --layers 2 --out part --resume part/chars.safetensors
printf 'chars test: passed\n'
