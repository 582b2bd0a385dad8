#!/bin/sh
# convert_gguf.sh TOW: convert-weights --architecture between GGUF files and directories of transformers: what comes back, and what
# is refused, since the other side cannot say it.
# Tests tool/gguf.c, tool/gguf_tokenizer.c, tool/check_tokenizer.c, tool/transformers.c.
set -u
tow=$1 golden=$(cd "$(dirname "$0")/../oracle/golden" && pwd)
. "$(dirname "$0")/expect.sh"
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

# ---- a model of zeros whose table has a row for each token -------------------------------------------------------------
mkdir -p model
header='' at=0
tensor() { # NAME ROWS [COLUMNS]
    bytes=$(($2 * ${3:-1} * 2))
    header="$header,\"$1\":{\"dtype\":\"BF16\",\"shape\":[$2${3:+,$3}],\"data_offsets\":[$at,$((at + bytes))]}"
    at=$((at + bytes))
}
tensor model.embed_tokens.weight 1600 8
for name in self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj mlp.gate_proj mlp.up_proj mlp.down_proj; do
    tensor model.layers.0.$name.weight 8 8
done
for name in layers.0.input_layernorm layers.0.post_attention_layernorm norm; do tensor model.$name.weight 8; done
tensor lm_head.weight 1600 8
header="{${header#,}}"
while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
{
    printf "\\$(printf %03o $((${#header} % 256)))\\$(printf %03o $((${#header} / 256)))\\0\\0\\0\\0\\0\\0%s" "$header"
    head -c $at /dev/zero
} >model/model.safetensors
cat >model/config.json <<'END'
{"model_type": "llama", "hidden_act": "silu", "hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": 32,
 "num_attention_heads": 2, "num_hidden_layers": 1, "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
 "tie_word_embeddings": false,
 "bos_token_id": 1, "eos_token_id": 2,
 "vocab_size": 1600}
END

expect 1 "--architecture: expected auto, gemma, gemma2, gpt2, llama, qwen2 or qwen3, found 'opt'" "$tow" convert-weights model --architecture opt -o y.gguf
# those of `tokenizers` without options of added tokens, which GGUF files do not have
plain() {
    sed 's/"normalized": *true/"normalized": false/g; s/"single_word": *true/"single_word": false/g' "$golden/tokenizers/$1.json"
}
# SentencePiece: each pair of tokens that makes a token is a merge
cat >pieces.json <<'END'
{"version": "1.0", "added_tokens": [
  {"id": 0, "content": "<unk>", "lstrip": false, "rstrip": false, "single_word": false, "normalized": false, "special": true},
  {"id": 1, "content": "<s>", "lstrip": false, "rstrip": false, "single_word": false, "normalized": false, "special": true},
  {"id": 2, "content": "</s>", "lstrip": false, "rstrip": false, "single_word": false, "normalized": false, "special": true}],
 "normalizer": {"type": "Sequence", "normalizers": [
  {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
 "pre_tokenizer": null,
 "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
  "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
  "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
 "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
  {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
 "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
  "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "\u2581": 3, "a": 4, "b": 5, "c": 6, "\u2581a": 7, "ab": 8, "\u2581ab": 9},
  "merges": [["\u2581", "a"], ["a", "b"], ["\u2581", "ab"], ["\u2581a", "b"]]}}
END
for tokenizer in pieces llama3 qwen2 gpt2; do
    [ $tokenizer = pieces ] || plain $tokenizer >$tokenizer.json
    cp $tokenizer.json model/tokenizer.json
    expect 0 'tensors mapped     12' "$tow" convert-weights model --architecture auto -o model.gguf --type f16
    printf 'A b  c ab abc 123 \303\244 the end, it is.\n' >text
    "$tow" tokenize --json text --tokenizer model.gguf >gguf.ids
    "$tow" tokenize --json text --tokenizer model/tokenizer.json >json.ids
    cmp gguf.ids json.ids || { echo "$tokenizer: other tokens in GGUF"; failed=1; }
    expect 0 'tensors mapped     12' "$tow" convert-weights model.gguf --architecture auto -o "back-$tokenizer"
    "$tow" tokenize --json text --tokenizer "back-$tokenizer" >back.ids
    cmp back.ids json.ids || { echo "$tokenizer: other tokens in a directory of a GGUF file"; failed=1; }
done
expect 0 '"architectures"' cat back-pieces/config.json
expect 0 '"unk_token": "<unk>"' cat back-pieces/tokenizer_config.json
expect 1 'cannot make this directory' "$tow" convert-weights model.gguf --architecture auto -o absent/back

# Metaspace puts no space in front of a text that begins with one, and of none but the first, if it says so: GGUF files put one there
for scheme in never always first; do
    warning='a space is put in front of what does not begin with one;'
    [ $scheme != first ] || warning='a space is put in front of what does not begin with one, at the beginning of a text;'
    [ $scheme != never ] || warning='tensors mapped     12'
    sed '/"normalizer"/,/"pre_tokenizer"/d; s/^ "post_processor"/ "normalizer": null, "pre_tokenizer": {"type": "Metaspace", "replacement": "\\u2581", "prepend_scheme": "'$scheme'", "split": false},\n&/' pieces.json >model/tokenizer.json
    expect 0 "$warning" "$tow" convert-weights model --architecture auto -o model.gguf --type f16
    [ $scheme = never ] || [ "$(grep -c warning out)" = 1 ] || { echo "$scheme: not one warning"; failed=1; }
    [ $scheme != never ] || ! grep -q warning out || { echo "never: a warning"; failed=1; }
    expect 0 'tensors mapped     12' "$tow" convert-weights model.gguf --architecture auto -o "back-$scheme"
    for text in 'ab a' ' ab' 'ab<s>ab' 'ab<s> ab'; do
        printf '%s' "$text" >text
        for tokenizer in model/tokenizer.json model.gguf back-$scheme; do
            "$tow" tokenize --json text --tokenizer $tokenizer | tr -d ' \n'
            printf ' '
        done
        printf '\n'
    done >"$scheme.ids"
done
# "\u2581ab" 9, "\u2581" 3, "ab" 8, "a" 4, "\u2581a" 7, "<s>" 1
printf '[1,8,7] [1,8,7] [1,8,7] \n[1,9] [1,9] [1,9] \n[1,8,1,8] [1,8,1,8] [1,8,1,8] \n[1,8,1,9] [1,8,1,9] [1,8,1,9] \n' | diff - never.ids || failed=1
printf '[1,9,7] [1,9,7] [1,9,7] \n[1,9] [1,3,9] [1,3,9] \n[1,9,1,9] [1,9,1,9] [1,9,1,9] \n[1,9,1,9] [1,9,1,3,9] [1,9,1,3,9] \n' | diff - always.ids || failed=1
printf '[1,9,7] [1,9,7] [1,9,7] \n[1,9] [1,3,9] [1,3,9] \n[1,9,1,8] [1,9,1,9] [1,9,1,9] \n[1,9,1,9] [1,9,1,3,9] [1,9,1,3,9] \n' | diff - first.ids || failed=1

# added tokens in normalized texts: GGUF files have them in texts as they are, where "<s>" is not behind a space
sed 's/"normalized": false/"normalized": true/' pieces.json >model/tokenizer.json
expect 0 "'<unk>' is looked for in normalized texts" "$tow" convert-weights model --architecture auto -o model.gguf --type f16
printf 'ab<s>ab' >text
expect 0 '[1,9,1,9]' sh -c '"$1" tokenize --json text --tokenizer model.gguf | tr -d " \n"' sh "$tow"

# tokenizers and configurations that no file of a model has
mkdir -p odd
cp model/* odd
odd() { # odd EXPRESSION MESSAGE [TOKENIZER]: of a tokenizer.json that the expression of sed changes
    sed "$1" ${3:-llama3}.json >odd/tokenizer.json
    ! cmp -s odd/tokenizer.json ${3:-llama3}.json || { echo "sed $1: changes nothing"; failed=1; }
    expect 1 "$2" "$tow" convert-weights odd --architecture auto -o odd.gguf
    [ ! -e odd.gguf ] || { echo "$2: a file was written"; failed=1; }
    rm -f odd.gguf
}
for id in 16777216 9223372036854775807 -1 '"5"' 1.5; do
    odd "0,/\"id\": *[0-9]*/s//\"id\": $id/" 'has no id from 0 to 1048575'
done
odd '0,/"id": *[0-9]*/s//"id": 7/' 'has the id of another token'
# what makes other tokens than GGUF files can say
step() { printf 's/"normalizer": *null/"normalizer": {"type": "%s"}/' "$1"; }
odd "$(step Lowercase)" 'normalizer: expected none, as GGUF files have it, found {"type":"Lowercase"}' gpt2
odd "$(step NFC)" 'normalizer: expected none, as GGUF files have it, found NFC'
odd 's/"type": *"NFC"/"type": "NFKC"/' 'normalizer: expected NFC' qwen2
odd 's/"normalizer": *{ *"type": *"NFC" *}/"normalizer": null/' 'normalizer: expected NFC, as GGUF files have it, found none' qwen2
odd 's/"use_regex": *true/"use_regex": false/' 'pre_tokenizer: expected words of GPT-2' gpt2
odd 's/"add_prefix_space": *false/"add_prefix_space": true/' 'pre_tokenizer: expected words of GPT-2' gpt2
odd 's/"Isolated"/"Removed"/' 'pre_tokenizer: expected words of GPT-2'
odd 's/"ignore_merges": *true/"ignore_merges": false/' 'ignore_merges: expected true, with this pre_tokenizer'
odd 's/"ignore_merges": *false/"ignore_merges": true/' 'ignore_merges: expected false' gpt2
odd 's/"lstrip": *false/"lstrip": true/' 'added_tokens: expected neither lstrip, rstrip nor single_word, as GGUF files have it, found lstrip'
odd 's/"rstrip": *false/"rstrip": true/' 'found rstrip of' pieces
odd 's/"type": "Prepend", /"type": "NFKC"}, &/; s/"type": "NFKC"}, "type"/"type": "NFKC"}, {"type"/' 'normalizer: expected space in front' pieces
odd 's/, {"type": "Replace", "pattern": {"String": " "}, "content": "[^"]*"}//' 'found space in front;' pieces
odd 's/"pre_tokenizer": null/"pre_tokenizer": {"type": "Metaspace", "replacement": "\\u2581", "prepend_scheme": "first", "split": false}/' \
    'found space in front, spaces as U+2581;' pieces
odd 's/"pre_tokenizer": null/"pre_tokenizer": {"type": "Digits", "individual_digits": true}/' 'found single digits' pieces
odd 's/, \["[^"]*", "ab"\]//' 'merges: expected all pairs of tokens that make a token' pieces
odd 's/\["a", "b"\], \(\["[^"]*", "ab"\]\)/\1, ["a", "b"]/' 'merges: expected those that make one token side by side' pieces
odd 's/"TemplateProcessing"/"BertProcessing"/' 'post_processor: expected TemplateProcessing' pieces
cp llama3.json odd/tokenizer.json
sed 's/"vocab_size": *[0-9]*/"vocab_size": 16777216/' model/config.json >odd/config.json
expect 1 'vocab_size: expected 0 to 1048576' "$tow" convert-weights odd --architecture auto -o odd.gguf
sed 's/"hidden_act": *"silu"/"hidden_act": "relu"/' model/config.json >odd/config.json
expect 1 'expected the activation silu' "$tow" convert-weights odd --architecture auto -o odd.gguf
sed '0,/{/s//{"rope_scaling": {"factor": 8.0},/' model/config.json >odd/config.json
expect 1 'expected a type beside the factor' "$tow" convert-weights odd --architecture auto -o odd.gguf
sed '0,/{/s//{"eos_token_id": [2, 3],/; s/"eos_token_id": *[0-9]*,//' model/config.json >odd/config.json
printf '{"chat_template": "{{ x }}"}' >odd/tokenizer_config.json
expect 0 'tensors mapped' "$tow" convert-weights odd --architecture auto -o odd.gguf
expect 0 'tensors mapped' "$tow" convert-weights odd.gguf --architecture auto -o odd-back
expect 0 '"chat_template": "{{ x }}"' cat odd-back/tokenizer_config.json
expect 0 '"model_input_names"' cat odd-back/tokenizer_config.json
expect 0 '3' sed -n '/eos_token_id/,/]/p' odd-back/config.json

# generation_config.json names tokens that end an answer, too
sed 's/"eos_token_id": *[0-9]*/"eos_token_id": 2/' model/config.json >odd/config.json
printf '{"eos_token_id": [2, 7]}' >odd/generation_config.json
expect 0 'tensors mapped' "$tow" convert-weights odd --architecture auto -o odd.gguf
expect 0 'tensors mapped' "$tow" convert-weights odd.gguf --architecture auto -o odd-back
expect 0 '7' sed -n '/eos_token_id/,/]/p' odd-back/config.json
rm odd/generation_config.json

# numbers and options of config.json that GGUF files cannot say, or that are not those of the weights
config() { # config EXPRESSION MESSAGE [MODEL]: of a config.json that the expression changes
    rm -rf odd odd.gguf
    cp -r "${3:-model}" odd
    sed "$1" "${3:-model}/config.json" >odd/config.json
    ! cmp -s odd/config.json "${3:-model}/config.json" || { echo "sed $1: changes nothing"; failed=1; }
    expect 1 "$2" "$tow" convert-weights odd --architecture auto -o odd.gguf
    [ ! -e odd.gguf ] || { echo "$2: a file was written"; failed=1; }
}
config 's/"num_hidden_layers": 1/"num_hidden_layers": 1.5/' 'num_hidden_layers: expected a whole number'
config 's/"num_hidden_layers": 1/"num_hidden_layers": 2/' 'expected 1 layers, as the weights have, found 2'
config 's/"hidden_size": 8/"hidden_size": 1e300/' 'hidden_size: expected a whole number, 0 to 2147483647, found 1e+300'
config 's/"hidden_size": 8/"n_embd": 9223372036854775807/' 'hidden_size: expected a whole number'
config 's/"rms_norm_eps": 1e-05/"rms_norm_eps": 1e300/' 'rms_norm_eps: expected a number of f32'
config 's/"vocab_size": 1600/"vocab_size": 1601/' 'expected at most 1600 tokens, the rows of model.embed_tokens.weight, found 1601'
config 's/"max_position_embeddings": 32/&, "sliding_window": 31/' 'sliding_window: expected null, or max_position_embeddings'
config 's/"model_type": "llama"/"model_type": "mistral", "sliding_window": 4/' 'sliding_window: expected null'
config 's/"max_position_embeddings": 32/"max_position_embeddings": 8192/; s/"llama"/"mistral"/' 'sliding_window: expected null'
config 's/"vocab_size"/"layer_types": ["sliding_attention"], &/' 'layer_types: expected full_attention'
cp -r "$golden/weights/gpt2" gpt2
config '0,/{/s//{"scale_attn_by_inverse_layer_idx": true, /; s/"scale_attn_by_inverse_layer_idx": false,//' \
    'scale_attn_by_inverse_layer_idx: expected false' gpt2
config '0,/{/s//{"scale_attn_weights": false, /; s/"scale_attn_weights": true,//' 'scale_attn_weights: expected true' gpt2
for change in 's/"sliding_window": 31/"sliding_window": 32/' 's/31/null/; s/"llama"/"mistral"/'; do
    sed "s/\"max_position_embeddings\": 32/&, \"sliding_window\": 31/; $change" model/config.json >odd/config.json
    cp model/model.safetensors odd
    rm -f odd/tokenizer.json
    expect 0 'tensors mapped' "$tow" convert-weights odd --architecture auto -o odd.gguf
done
sed 's/"rms_norm_eps": 1e-05,//' model/config.json >odd/config.json
expect 0 'tensors mapped' "$tow" convert-weights odd --architecture auto -o odd.gguf
expect 0 'tensors mapped' "$tow" convert-weights odd.gguf --architecture auto -o standard
expect 0 '"rms_norm_eps": 1e-' cat standard/config.json

# an output that is no copy of the table, though config.json says so
sed 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' model/config.json >odd/config.json
expect 0 'tensors mapped' "$tow" convert-weights odd --architecture auto -o odd.gguf
head -c -2 model/model.safetensors >odd/model.safetensors
printf '\100\100' >>odd/model.safetensors
expect 1 'tie_word_embeddings: expected false, as lm_head.weight is no copy' "$tow" convert-weights odd --architecture auto -o odd.gguf

# numbers that f16 cannot hold
rm -f odd.gguf
head -c -2 model/model.safetensors >odd/model.safetensors
printf '\200\177' >>odd/model.safetensors # infinity, which stays one
cp model/config.json odd/config.json
expect 0 'tensors mapped' "$tow" convert-weights odd --architecture auto --type f16 -o odd.gguf
rm odd.gguf
head -c -2 model/model.safetensors >odd/model.safetensors
printf '\000\110' >>odd/model.safetensors # 2^17
expect 1 'expected numbers that F16 can hold, found a larger one' "$tow" convert-weights odd --architecture auto --type f16 -o odd.gguf
[ ! -e odd.gguf ] || { echo "overflow: a file was written"; failed=1; }

# options of the other kind of file, and another kind of model
expect 1 '--type is the type of matrices in GGUF' "$tow" convert-weights model --architecture auto --dtype f16 -o x.gguf
expect 1 '--dtype is the type of floats in safetensors' "$tow" convert-weights model.gguf --architecture auto --type f16 -o x
expect 1 '--dtype is the type of floats in safetensors' "$tow" convert-weights model --mapping llama --type f16 -o x.safetensors
expect 1 'expected llama or auto, as model/config.json says, found qwen2' "$tow" convert-weights model --architecture qwen2 -o x.gguf
expect 1 'expected llama or auto, as model.gguf says, found qwen2' "$tow" convert-weights model.gguf --architecture qwen2 -o x

# more layers than the file has
LC_ALL=C sed 's/llama\.block_count\(....\)\x01/llama.block_count\1\x07/' model.gguf >layers.gguf
expect 1 "'llama.block_count': expected 1, the layers of which the file has tensors, found 7" "$tow" convert-weights layers.gguf --architecture auto -o x
[ ! -e x ] || { echo 'a directory was made of what was refused'; failed=1; }

# tokenizer_config.json of transformers, with its number for no limit, and a template in a file of its own, which counts
cp pieces.json odd/tokenizer.json
cp model/* odd
printf '{"model_max_length": 1000000000000000019884624838656, "chat_template": "old"}' >odd/tokenizer_config.json
expect 0 'tensors mapped' "$tow" convert-weights odd --architecture auto -o odd.gguf
expect 0 'tensors mapped' "$tow" convert-weights odd.gguf --architecture auto -o template
expect 0 '"chat_template": "old"' cat template/tokenizer_config.json
printf '{"chat_template": [{"name": "tool_use", "template": "tool"}, {"name": "default", "template": "of a list"}]}' >odd/tokenizer_config.json
expect 0 'tensors mapped' "$tow" convert-weights odd// --architecture auto -o odd.gguf
is_named_odd() { tr -c '[:print:]' '\n' <odd.gguf | sed '1,/^general.name$/d; /^general.file_type$/q' | grep -qx odd; }
is_named_odd || { echo 'another name of the model than odd'; failed=1; }
expect 0 'tensors mapped' "$tow" convert-weights odd.gguf --architecture auto -o template
expect 0 '"chat_template": "of a list"' cat template/tokenizer_config.json
(cd odd && "$tow" convert-weights . --architecture auto -o ../odd.gguf) >out 2>&1
is_named_odd || { echo 'another name of the model in odd/ than odd'; failed=1; }
printf '{{ new }}' >odd/chat_template.jinja
expect 0 'tensors mapped' "$tow" convert-weights odd --architecture auto -o odd.gguf
expect 0 'tensors mapped' "$tow" convert-weights odd.gguf --architecture auto -o template
expect 0 '"chat_template": "{{ new }}"' cat template/tokenizer_config.json
printf 'a\0b' >odd/chat_template.jinja
expect 1 'chat_template.jinja: expected a text of at most' "$tow" convert-weights odd --architecture auto -o odd.gguf

# a directory that is replaced: without config.json until all is written, and without files of the old set
expect 0 'tensors mapped' "$tow" convert-weights odd.gguf --architecture auto --max-file-bytes 9000 -o half
expect 0 '' test -e half/model.safetensors.index.json
rm half/tokenizer.json
mkdir half/tokenizer.json
expect 1 'tokenizer.json' "$tow" convert-weights odd.gguf --architecture auto -o half
[ ! -e half/config.json ] || { echo 'a half replaced directory has a config.json'; failed=1; }
[ "$(echo half/model*)" = half/model.safetensors ] || { echo "left of an old set: $(echo half/model*)"; failed=1; }
rmdir half/tokenizer.json
expect 0 'tensors mapped' "$tow" convert-weights odd.gguf --architecture auto -o half
[ -e half/config.json ] && [ ! -e half/config.json.old ] || { echo 'no config.json'; failed=1; }

# scaled rotary positions: a tensor in GGUF files, numbers in config.json
expect 0 'tensors mapped' "$tow" convert-weights "$golden/weights/llama3" --architecture auto -o scaled.gguf
expect 0 'ignored            1' "$tow" convert-weights scaled.gguf --architecture auto -o scaled
expect 0 '"factor": 32.0' cat scaled/config.json
expect 0 '"rope_type": "llama3"' cat scaled/config.json
expect 1 'rope_freqs.weight is no weight in transformers' "$tow" convert-weights scaled.gguf --architecture auto -o x.safetensors
expect 1 'expected llama or auto, as scaled/config.json says, found qwen2' "$tow" convert-weights scaled --architecture qwen2 -o x.gguf
mkdir qwen
cp scaled/model.safetensors qwen
sed 's/"model_type": "llama"/"model_type": "qwen2"/' scaled/config.json >qwen/config.json
expect 1 'expected none or linear scaling, found llama3' "$tow" convert-weights qwen --architecture auto -o x.gguf
cp "$golden/gguf/models/llama3.gguf" other.gguf
printf '\100' | dd of=other.gguf bs=1 seek=$(($(wc -c <other.gguf) - 25)) conv=notrunc 2>dd
expect 1 'rope_freqs.weight: expected the factors of Llama 3' "$tow" convert-weights other.gguf --architecture auto -o x
sed -i 's/"llama3"/"yarn"/' scaled/config.json
expect 1 'expected scaling of type linear or llama3, found yarn' "$tow" convert-weights scaled --architecture auto -o x.gguf
sed -i 's/"yarn"/"linear"/' scaled/config.json
expect 0 'tensors mapped' "$tow" convert-weights scaled --architecture auto -o linear.gguf
expect 0 'tensors mapped' "$tow" convert-weights linear.gguf --architecture auto -o linear
expect 0 '"rope_type": "linear"' cat linear/config.json
sed -i 's/"linear"/"llama3"/; s/"low_freq_factor": 1.0/"low_freq_factor": 0/' scaled/config.json
expect 1 'expected a number above 0 as low_freq_factor' "$tow" convert-weights scaled --architecture auto -o x.gguf
cp -r "$golden/weights/gemma2" gemma2
expect 1 'query_pre_attn_scalar: expected 8, ' "$tow" convert-weights gemma2 --architecture auto -o x.gguf
sed -i 's/"query_pre_attn_scalar": 12/"query_pre_attn_scalar": 8/' gemma2/config.json
expect 0 'tensors mapped' "$tow" convert-weights gemma2 --architecture auto -o gemma2.gguf
config 's/"sliding_attention"/"full_attention"/' 'layer_types: expected sliding_attention and full' gemma2
config 's/"attn_logit_softcapping": [0-9.]*/"attn_logit_softcapping": null/' 'attn_logit_softcapping: expected a number' gemma2
config 's/"hidden_activation": "gelu_pytorch_tanh"/"hidden_activation": "gelu"/' 'expected the activation gelu_pytorch_tanh' gemma2
sed 's/general\.architecture/general.architecturf/' gemma2.gguf >unnamed.gguf
expect 1 "unnamed.gguf: metadata 'general.architecture': there is none" "$tow" convert-weights unnamed.gguf --architecture gemma2 -o unnamed

exit $failed
