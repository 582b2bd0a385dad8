#!/usr/bin/env bash
# test.sh CHAT: logits of torch, text that streams in whole characters, a conversation that goes on, and Ctrl-C.
. "$(dirname "$0")/../common/testing.sh"
weights=$here/../../tests/oracle/golden/weights

for model in gpt2 llama llama3 llama_biases qwen3 gemma2; do
    "$program" --model "$weights/$model" --check "$weights/$model/expected.safetensors" >out 2>err || fail "$model: $(cat out err)"
done

# the same of GGUF files, one with the factors of Llama 3 for positions; factors that are others are refused
gguf=$here/../../tests/oracle/golden/gguf/models
for model in gpt2 llama llama3 llama_biases qwen3; do
    "$program" --model "$gguf/$model.gguf" --check "$weights/$model/expected.safetensors" >out 2>err || fail "$model.gguf: $(cat out err)"
done
cp "$gguf/llama3.gguf" other.gguf
# the last 32 bytes are these factors, 1, 1, 3.29 and 32: the second one becomes 4
printf '\100' | dd of=other.gguf bs=1 seek=$(($(wc -c <other.gguf) - 25)) conv=notrunc 2>dd
expect_status 2 'rope_freqs.weight: expected the factors of Llama 3' --model other.gguf

# a file is known by its first bytes, whatever its name
cp "$gguf/llama.gguf" other.name
"$program" --model other.name --check "$weights/llama/expected.safetensors" >out 2>err || fail "other.name: $(cat out err)"
# a file of Gemma 2, also with 2^31-1 layers, a window that is a float, and a cap that is not a number
change() { # change KEY BYTES: the type and the value of KEY in gemma2.gguf become these bytes
    cp "$gguf/gemma2.gguf" changed.gguf
    local at
    at=$(grep -obaF "$1" changed.gguf | head -n 1 | cut -d: -f1)
    printf "$2" | dd of=changed.gguf bs=1 seek=$((at + ${#1})) conv=notrunc 2>dd
}
"$program" --model "$gguf/gemma2.gguf" --prompt AB --tokens 4 --greedy --bare >out 2>err || fail "gemma2.gguf: $(cat out err)"
change gemma2.block_count '\004\000\000\000\377\377\377\177'
expect_status 2 "'gemma2.block_count': expected 2, the layers of which the file has tensors, found 2147483647" --model changed.gguf
change gemma2.attention.sliding_window '\006\000\000\000\000\000\200\077'
expect_status 2 "'gemma2.attention.sliding_window': expected one integer" --model changed.gguf
change gemma2.attn_logit_softcapping '\006\000\000\000\000\000\300\177'
expect_status 2 "'gemma2.attn_logit_softcapping': expected one number, 0 or above" --model changed.gguf
# a bias that no layer has by the others of the first one, and a layer without that of its queries
cp "$gguf/llama.gguf" bias.gguf
LC_ALL=C sed -i 's/blk\.0\.ffn_gate\.weight/blk.0.ffn_gate_w.bias/' bias.gguf
expect_status 2 'blk.0.ffn_gate_w.bias: models of this kind with this bias are refused' --model bias.gguf
LC_ALL=C sed 's/blk\.1\.attn_q\.bias/blk.1.attn_q.bia_/' "$gguf/llama_biases.gguf" >bias.gguf
expect_status 1 'blk.1.attn_q.bia' --model bias.gguf --prompt A

# weights of the types that the file has: tokens, layers and output each their own
for model in mixed few_bits kinds copied; do
    "$program" --model "$gguf/$model.gguf" --check "$gguf/$model.safetensors" >out 2>$model || fail "$model.gguf: $(cat out $model)"
done
grep -qF '[weights: tokens in bf16, layers in f16, the output in f32]' mixed || fail "mixed.gguf: $(cat mixed)"
grep -qF '[weights: tokens in q8_0, layers in q4_0, the output in f16]' few_bits || fail "few_bits.gguf: $(cat few_bits)"
"$program" --model "$gguf/few_bits.gguf" --prompt AB --tokens 10 --greedy --bare >few 2>err || fail "few_bits.gguf: $(cat err)"
[ ! -s err ] || fail "--bare: $(cat err)"
grep -qF '[weights: tokens in q8_0, layers in q4_0 and q8_0, the output in f16]' kinds || fail "kinds.gguf: $(cat kinds)"
# one matrix of one layer in f16: the bits of the same number in f32
"$program" --model "$gguf/unequal.gguf" --prompt AB --tokens 10 --greedy --bare >unequal 2>err || fail "unequal.gguf: $(cat err)"
"$program" --model "$gguf/unequal.gguf" --dtype f32 --prompt AB --tokens 10 --greedy --bare | cmp - unequal || fail "unequal.gguf in f32"

# a pure function of its options, whatever the threads; what is drawn depends on the seed
"$program" --prompt 'tow_' --tokens 40 --seed 3 --bare >a
"$program" --prompt 'tow_' --tokens 40 --seed 3 --bare --threads 1 >b
"$program" --prompt 'tow_' --tokens 40 --seed 4 --bare >c
cmp a b || fail "two runs differ"
! cmp -s a c || fail "two seeds give one text: $(cat a)"
"$program" --prompt 'tow_' --tokens 40 --greedy >greedy 2>err
grep -q '^\[prompt: [0-9]* tokens in .* tokens/s; answer: 40 tokens, .* tokens/s\]$' err || fail "no rates: $(cat err)"
"$program" --prompt 'tow_' --tokens 40 --top-k 1 --bare | cmp - greedy || fail "--top-k 1 is not greedy"
"$program" --prompt 'tow_' --tokens 40 --top-p 0.000001 --bare | cmp - greedy || fail "--top-p of next to nothing is not greedy"
! "$program" --prompt 'tow_' --tokens 40 --greedy --repetition-penalty 1.5 --bare | cmp -s - greedy || fail "no penalty"

# the text of the tokens, however it is cut: that of gpt2, which decodes it at once. The byte tokens of characters are whole
"$program" --prompt 'größe ä' --tokens 60 --seed 5 --temperature 3 --top-k 0 --top-p 1 --bare >wild
iconv -f utf-8 -t utf-8 wild >/dev/null || fail "characters are cut"
"$(dirname "$program")/gpt2" --no-training --prompt 'tow_' --tokens 40 --greedy >other
[ "tow_$(cat greedy)" = "$(tail -n +3 other | sed '/^prompt:/d')" ] || fail "another text than gpt2: $(cat greedy) $(cat other)"

# weights of 16 bits
for type in bf16 f16; do
    "$program" --prompt 'tow_' --tokens 10 --greedy --dtype $type --bare >$type || fail "$type"
    [ -s $type ] || fail "$type: no text"
done

# weights in blocks, and the same model as GGUF: the text of f32 is that of the directory
for type in q8_0 q4_0; do
    "$program" --prompt 'tow_' --tokens 10 --greedy --dtype $type --bare >$type || fail "$type"
    [ -s $type ] || fail "$type: no text"
done
tow=$(dirname "$program")/tow
if [ -x "$tow" ]; then
    tiny=$(dirname "$program")/../share/tow/gpt2
    for type in f32 q8_0; do
        "$tow" convert-weights "$tiny" --architecture auto --type $type -o model-$type.gguf >out 2>&1 || fail "convert: $(cat out)"
    done
    "$program" --model model-f32.gguf --prompt 'tow_' --tokens 40 --greedy --bare | cmp - greedy || fail "GGUF gives another text"
    "$program" --model model-q8_0.gguf --dtype q8_0 --prompt 'tow_' --tokens 10 --greedy --bare | cmp - q8_0 ||
        fail "blocks of a file are others than those that are made here"
    "$program" --model model-q8_0.gguf --prompt 'tow_' --tokens 10 --greedy --bare | cmp - q8_0 || fail "another type than the file's"
fi
# keys and values in 16 bits
for type in bf16 f16; do
    "$program" --prompt 'tow_' --tokens 10 --greedy --cache-dtype $type --bare >cache-$type || fail "cache in $type"
    [ -s cache-$type ] || fail "cache in $type: no text"
done

# a conversation remembers: the second answer is another one than that of the second line alone
printf 'a layer is a struct\nand more\n' | "$program" --tokens 8 --greedy --bare >both
printf 'and more\n' | "$program" --tokens 8 --greedy --bare >second
[ "$(wc -l <both)" -ge 2 ] || fail "not two answers: $(cat both)"
! cmp -s <(tail -n "$(wc -l <second)" both) second || fail "nothing is remembered: $(cat both)"

# lines of a file, three at a time, each answered as it is alone
printf 'tow_\na layer is a struct\n\nx\nthe gradient of\nstatic const\n' >prompts
"$program" --prompts prompts --rows 3 --tokens 30 --seed 3 >batch 2>err
sed '/^$/d' prompts | while IFS= read -r prompt; do
    printf '> %s\n' "$prompt"
    "$program" --prompt "$prompt" --tokens 30 --seed 3 --bare
done >alone
cmp batch alone || fail "several at a time give other texts: $(diff batch alone)"
grep -q '^\[5 requests, 3 at a time: .* tokens/s\]$' err || fail "no rates: $(cat err)"
"$program" --prompts prompts --rows 1 --tokens 30 --seed 3 --bare | cmp - alone || fail "one at a time"

# lines that cannot be answered are named, the others are answered: one is no UTF-8, one has a zero byte, one is too long
{ printf 'tow_\n\nx\377y\na\0b\n'; printf 'x %.0s' $(seq 300); printf '\nand more\n'; } >bad-prompts
expect_status 1 'bad-prompts: line 3: tow_tokenizer_encode: expected UTF-8, found the byte 0xff at byte 1' --prompts bad-prompts --tokens 8
grep -q 'bad-prompts: line 4: expected a text, found a zero byte at byte 1' err || fail "no zero byte: $(cat err)"
grep -q 'bad-prompts: line 5: a prompt of .* tokens does not fit in the context of 128; give a longer --context' err || fail "no length: $(cat err)"
[ "$(grep -ac '^ \.\.\.$' out)" = 3 ] && [ "$(wc -l <out)" -ge 10 ] || fail "bad lines: $(cat out)"
printf 'tow_\nx\377y\nand more\n' >bad-lines
status=0
"$program" --tokens 8 --greedy --bare <bad-lines >bad 2>err || status=$?
[ $status -eq 1 ] || fail "a line that is no UTF-8: expected status 1, found $status: $(cat err)"
grep -q 'standard input: line 2: tow_tokenizer_encode: expected UTF-8' err || fail "the line is not named: $(cat err)"
printf 'tow_\nand more\n' | "$program" --tokens 8 --greedy --bare | cmp - bad || fail "the conversation did not go on: $(cat bad)"
status=0
printf 'a\0b\n' | "$program" --tokens 8 --greedy --bare >out 2>err || status=$?
[ $status -eq 1 ] && [ ! -s out ] && grep -q 'line 1: expected a text, found a zero byte' err || fail "a zero byte: $(cat out err)"
expect_status 2 '--layout is for conversations' --prompts prompts --layout plain
expect_status 2 '--layout is for conversations' --prompt x --layout none

# a model whose logits are not finite, by the last number of its weights: each line says so
cp -r "$weights/llama" nan && chmod -R u+w nan
printf '\000\000\300\177' | dd of=nan/model.safetensors bs=1 seek=$(($(wc -c <nan/model.safetensors) - 4)) conv=notrunc 2>dd
# its vocabulary is bytes, of which few follow one another as UTF-8
{
    printf '{"model": {"type": "BPE", "byte_fallback": true, "unk_token": "<0x41>", "merges": [], "vocab": {"<0x41>": 0'
    for id in $(seq 1 59); do printf ', "<0x%02X>": %d' $((id < 30 ? 65 + id : 132 + id)) "$id"; done
    printf '}}, "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}}'
} >nan/tokenizer.json
printf 'A\nAB\n' >two
expect_status 1 'two: line 1: ' --model nan --prompts two
grep -q 'two: line 2: .*NaN' err || fail "no reason: $(cat err)"
cp "$weights/llama/model.safetensors" nan
"$program" --model nan --prompt A --tokens 20 --seed 2 --temperature 5 --top-k 0 --top-p 1 --ignore-end --context 80 --bare >bytes 2>err ||
    fail "bytes: $(cat err)"
head -c 1 bytes | grep -q '[A-^]' || fail "the seed gives no text that becomes invalid: $(cat bytes)"
iconv -f utf-8 -t utf-8 bytes >/dev/null || fail "text that is no UTF-8: $(cat bytes)"

# pieces that begin with a space, which the tokenizer strips of the first one of a text: an answer is not the first one
cp -r "$weights/llama" pieces && chmod -R u+w pieces
{
    printf '{"normalizer": null, "pre_tokenizer": null, "model": {"type": "BPE", "unk_token": "<unk>", "merges": [], "vocab": {"<unk>": 0'
    for id in $(seq 1 59); do printf ', "\\u2581%d": %d' "$id" "$id"; done
    printf '}}, "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\\u2581"}, "content": " "}, '
    printf '{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}}'
} >pieces/tokenizer.json
printf 'A\n' >one
"$program" --model pieces --prompt A --tokens 3 --greedy --ignore-end --bare >out 2>err || fail "pieces: $(cat err)"
grep -q '^\( [0-9][0-9]*\)\{3\}$' out || fail "an answer without its first space: $(cat out)"
"$program" --model pieces --prompts one --tokens 3 --greedy --ignore-end --bare | tail -n 1 | cmp - out || fail "another answer to a line of a file"

# generation_config.json names more tokens that end an answer: the first one of this answer; and what is no JSON is refused
first=$(cut -d ' ' -f 2 out)
sed "s/ $first\\>/\xef\xbf\xbd/g" out >zeros
printf '{"eos_token_id": [2, %d]}' "$first" >pieces/generation_config.json
[ -z "$("$program" --model pieces --prompt A --tokens 3 --greedy --bare)" ] || fail "the end of generation_config.json ends nothing"
printf '{' >pieces/generation_config.json
expect_status 2 'generation_config.json: ' --model pieces --prompt A
rm pieces/generation_config.json

# a zero byte ends no answer
sed -i "s/\"[^\"]*\": $first,/\"<0x00>\": $first,/; s/{\"type\": \"Fuse\"}/{\"type\": \"ByteFallback\"}, &/" pieces/tokenizer.json
"$program" --model pieces --prompt A --tokens 3 --greedy --ignore-end --bare | cmp - zeros || fail "an answer ends at a zero byte"

# bytes at the end of a prompt are no parts of characters of the answer
sed 's/\xef\xbf\xbd/\n/g' zeros >newlines
sed -i 's/<0x00>/<0x0A>/; s/<unk>/<0xE1>/g' pieces/tokenizer.json
"$program" --model pieces --prompt A --tokens 3 --greedy --ignore-end --bare | cmp - newlines || fail "a byte of the prompt is in the answer"

# Ctrl-C prints what there is of all lines; a signal that comes before the first token ends the program, then once more, later
for delay in 0.2 1 4 16; do
    "$program" --model nan --prompts two --rows 1 --tokens 30000 --context 30000 --ignore-end --bare >out 2>err &
    pid=$!
    sleep $delay
    kill -INT $pid
    status=0
    wait $pid || status=$?
    [ $status -eq 130 ] || fail "Ctrl-C: expected status 130, found $status: $(cat err)"
    [ ! -s out ] || break
done
[ "$(grep -ac '^> A' out)" = 2 ] && [ "$(grep -ac ' \.\.\.$' out)" = 2 ] && [ "$(wc -c <out)" -gt 20 ] || fail "Ctrl-C loses answers: $(head -c 300 out)"

# Ctrl-C ends an answer, the next line is answered; between answers it ends the program
mkfifo lines
"$program" --tokens 100000 --context 128 --ignore-end --bare <lines >out 2>err &
pid=$!
exec 3>lines
printf 'tow\n' >&3
for _ in $(seq 2000); do [ -s out ] && break || sleep 0.005; done
kill -INT $pid
printf 'and\n' >&3
exec 3>&-
status=0
wait $pid || status=$?
[ $status -eq 0 ] || [ $status -eq 1 ] || [ $status -eq 130 ] || fail "Ctrl-C: status $status: $(cat err)"
sleep 100 >lines & # keeps the pipe open
writer=$!
"$program" --tokens 4 <lines >out 2>err &
pid=$!
for _ in $(seq 300); do # until it has begun to wait for a line, it does not hear
    sleep 0.1
    kill -INT $pid 2>/dev/null || break
done
status=0
wait $pid || status=$?
kill $writer
[ $status -eq 130 ] || fail "Ctrl-C between answers: expected status 130, found $status: $(cat err)"

expect_status 2 '--tokens' --tokens 0
expect_status 2 'exclude one another' --prompt x --prompts prompts
expect_status 1 'cannot read absent' --prompts absent
expect_status 2 'absent/config.json' --model absent
expect_status 2 'expected f32 bf16 f16 q8_0 q4_0, found f64' --dtype f64
expect_status 2 'found f64' --cache-dtype f64
expect_status 2 'absent.gguf' --model absent.gguf
expect_status 2 'the model has 128 positions' --context 129
expect_status 2 'expected plain chatml' --layout none
expect_status 1 'no token <|im_end|>' --layout chatml
expect_status 1 'give a longer --context' --prompt "$(printf 'x %.0s' $(seq 300))"
mkdir broken && cp "$weights"/llama/* broken && sed -i 's/"silu"/"relu"/' broken/config.json
expect_status 2 'expected "hidden_act" to be silu, found relu' --model broken
sed -i 's/"relu"/"silu"/; s/"rope_type": "default"/"rope_type": "yarn"/' broken/config.json
expect_status 2 'expected "rope_type" to be default, linear or llama3, found yarn' --model broken
# Gemma 2: caps that the file does not name are those of transformers, null means none; other patterns of windows, another GELU
cp "$weights"/gemma2/* broken && chmod u+w broken/config.json
sed -i '/_logit_softcapping/d' broken/config.json
status=0
"$program" --model broken --check "$weights/gemma2/expected.safetensors" >caps 2>err || status=$?
sed 's/"head_dim"/"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "head_dim"/' -i broken/config.json
"$program" --model broken --check "$weights/gemma2/expected.safetensors" >named 2>err || [ $? -eq $status ] || fail "caps: $(cat err)"
cmp caps named || fail "caps that are not named: $(cat caps named)"
sed 's/: [53]0.0/: null/g' -i broken/config.json
"$program" --model broken --check "$weights/gemma2/expected.safetensors" >named 2>err || true
! cmp -s caps named || fail "null is a cap: $(cat caps named)"
sed -i 's/"sliding_attention"/"full_attention"/' broken/config.json
expect_status 2 'expected "layer_types" to be sliding_attention and full_attention in turn' --model broken
sed -i 's/"gelu_pytorch_tanh"/"gelu"/' broken/config.json
expect_status 2 'expected "hidden_activation" to be gelu_pytorch_tanh, found gelu' --model broken
cp "$weights"/gpt2/* broken && chmod u+w broken/config.json
sed -i '/"scale_attn_weights"/d; 1s/{/{"scale_attn_weights": false,/' broken/config.json
expect_status 2 'expected "scale_attn_weights" to be true, found false' --model broken
cp "$weights"/llama/* broken && chmod u+w broken/config.json
sed -i 's/"model_type": "llama"/"model_type": "bert"/' broken/config.json
expect_status 2 'found bert' --model broken
printf 'chat test: passed\n'
