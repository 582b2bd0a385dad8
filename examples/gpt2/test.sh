#!/usr/bin/env bash
# test.sh GPT2: the tiny model gives torch's logits, generates the same text each time, learns with LoRA, and what it writes is read again.
. "$(dirname "$0")/../common/testing.sh"

"$program" --steps 100 --tokens 20 --out a/b --log log >out 2>err || fail "$(cat out err)"
grep -q 'the largest difference from the golden file is [0-9.]*e-0[5-9]$' out || fail "no logits: $(cat out)"
grep -q 'tokens/s$' out || fail "no tokens per second: $(cat out)"
[ "$(wc -l <log)" -eq 100 ] || fail "expected 100 lines of log, found $(wc -l <log)"
mean() { sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$1" | "$2" -n 15 | awk '{ s += $1 } END { print s / NR }'; }
awk -v first="$(mean log head)" -v last="$(mean log tail)" 'BEGIN { exit !(last < 0.95 * first) }' ||
    fail "LoRA does not learn: from $(mean log head) to $(mean log tail)"
for file in loss.svg model/config.json model/model.safetensors model/tokenizer.json; do [ -s a/b/$file ] || fail "no $file"; done

# a pure function of its options, whatever the threads
"$program" --steps 100 --tokens 20 --out again --threads 1 >out2
cmp a/b/model/model.safetensors again/model/model.safetensors || fail "two runs differ"
sed '/^prompt:\|^step\|^model for/d' out >text
sed '/^prompt:\|^step\|^model for/d' out2 | cmp - text || fail "two runs generate different texts"

# the merged model generates what the trained one did; another prompt, and one that is too long
"$program" --model a/b/model --no-training --tokens 20 >out3
tail -n +2 out3 | sed '/^prompt:/d' >merged
sed -n '/^model for/,$p' out | sed '/^model for\|^prompt:/d' | cmp - merged || fail "the merged model generates another text"
"$program" --no-training --greedy --prompt 'tow_' --tokens 5 >out4 && grep -q '^tow_' out4 || fail "no text behind the prompt: $(cat out4)"
"$program" --no-training --prompt '' --tokens 1 >out5 || fail "an empty prompt: $(cat out5)"

# other ways to choose tokens
"$program" --no-training --prompt 'tow_' --tokens 40 --greedy >greedy
"$program" --no-training --prompt 'tow_' --tokens 40 --greedy --repetition-penalty 1.5 >penalized
"$program" --no-training --prompt 'tow_' --tokens 40 --beams 4 >beams
"$program" --no-training --prompt 'tow_' --tokens 40 --top-p 0.000001 >narrow
for way in penalized beams; do
    ! cmp -s <(sed '/^prompt:/d' greedy) <(sed '/^prompt:/d' $way) || fail "$way: the text of greedy: $(cat $way)"
done
cmp <(sed '/^prompt:/d' greedy) <(sed '/^prompt:/d' narrow) || fail "--top-p of next to nothing is not greedy: $(cat narrow)"
word=$(sed -n 's/^tow_\([a-z]*\).*/\1/p' greedy | head -n 1) # the first one that is generated
"$program" --no-training --prompt 'tow_' --tokens 40 --greedy --until "$word" >until
[ "$(sed '/^prompt:/d' until | wc -c)" -lt "$(sed '/^prompt:/d' greedy | wc -c)" ] || fail "--until $word does not stop: $(cat until)"
grep -q "$word" until || fail "--until $word stops too early: $(cat until)"

# all parameters, in bf16
"$program" --steps 3 --tokens 1 --full --bf16 --out full >out6
[ "$(wc -c <full/model/model.safetensors)" -lt "$(wc -c <a/b/model/model.safetensors)" ] || fail "bf16 takes no less room"

# Ctrl-C stops after a step, and the model is there
interrupt_at 'step 20/1000000' --steps 1000000 --out stopped
grep -q '^stopped after step [0-9]*$' out || fail "Ctrl-C: it does not say so: $(cat out)"
[ -s stopped/model/model.safetensors ] || fail "Ctrl-C: no model"
[ -z "$(ls stopped/model | grep tmp || true)" ] || fail "Ctrl-C: files are left: $(ls stopped/model)"

expect_status 2 '--tokens' --tokens 0
expect_status 2 'absent/config.json' --model absent
expect_status 1 'cannot read absent' --text absent --steps 1 --out x
expect_status 1 'the model 128 positions' --prompt "$(printf 'x %.0s' $(seq 300))"
mkdir broken && cp a/b/model/* broken && sed -i 's/gelu_new/relu/' broken/config.json
expect_status 2 'expected "activation_function" to be "gelu_new", found relu' --model broken
sed -i 's/relu/gelu_new/; s/"n_layer": 3/"n_layer": 4/' broken/config.json
expect_status 1 'parameters have no tensor (blocks/3/' --model broken
printf 'gpt2 test: passed\n'
