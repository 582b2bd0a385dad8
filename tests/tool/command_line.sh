#!/bin/sh
# command_line.sh TOW COMPLETION: files in and out, standard input, JSON, exit status, help.
# Tests tool/arrays.c, tool/commands.c, tool/passes.c, tool/plot.c, tool/plot_read.c, tool/show.c, tool/tow.c.
# Tests tool/vmap.c, tool/weights.c, tool/page.c, tool/reasons.c, tool/curve.c, tool/scale.c.
set -u
tow=$1 completion=$2 golden=$(cd "$(dirname "$0")/../oracle/golden" && pwd)
. "$(dirname "$0")/expect.sh"
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

cat >double.tow <<'END'
{ lambda ; x:f32[2,2]"x" i:i32[]"i". let
    y:f32[2,2] = add x x
  in (y, i) }
END
cat >scalar.tow <<'END'
{ lambda ; x:f64[]"x" y:f64[]"y". let
    z:f64[] = mul x y
  in (z) }
END

# ---- inputs and outputs ----------------------------------------------------------------------------------------------
expect 0 'f32[2,2] [[2, 4], [6, 8]]' "$tow" run double.tow --input '[[1,2],[3,4]]' --input 5
expect 0 'i32[] 5' "$tow" run double.tow --input i=5 --input 1
expect 0 'f32[2,2] [[3, 3], [3, 3]]' "$tow" run double.tow --input 1.5 --input 0
expect 0 '' "$tow" run double.tow --input '[[1,2],[3,4]]' --input -7 --output y.npy --output i.npy
expect 0 'f32[2,2] [[4, 8], [12, 16]]' "$tow" run double.tow --input y.npy --input i.npy
expect 0 'i32[] -7' "$tow" run double.tow --input y.npy --input i=i.npy
expect 0 '' "$tow" run double.tow --input y.npy --input i.npy --outputs both.safetensors
cat >numbered.tow <<'END'
{ lambda ; a:f32[2,2] b:i32[]. let
  in (b, a) }
END
expect 0 'f32[2,2] [[4, 8], [12, 16]]' "$tow" run numbered.tow --inputs both.safetensors
expect 0 '' "$tow" run double.tow --input y.npy --input i.npy --outputs both.npz
expect 0 'f32[2,2] [[4, 8], [12, 16]]' "$tow" run numbered.tow --inputs both.npz
cat >wide.tow <<'END'
{ lambda ; n:i64[]. let
  in (n) }
END
expect 0 '' "$tow" run wide.tow --input -7 --output n.npy
expect 0 'i32[] -7' "$tow" run double.tow --input y.npy --input i=n.npy
expect 0 '' "$tow" run wide.tow --input 2147483648 --output n.npy --outputs n.npz
expect 1 'expected integers that fit i32, found 2147483648 at element 0' "$tow" run double.tow --input y.npy --input i=n.npy
cat >narrow.tow <<'END'
{ lambda ; n:i32[]"0". let
  in (n) }
END
expect 1 'expected integers that fit i32, found 2147483648' "$tow" run narrow.tow --inputs n.npz
"$tow" run double.tow --random-inputs 3 >first && "$tow" run double.tow --random-inputs 3 >second
cmp first second || { echo "the same seed draws other inputs"; failed=1; }
"$tow" run double.tow --random-inputs 4 >third
cmp -s first third && { echo "another seed draws the same inputs"; failed=1; }

cat >large.tow <<'END'
{ lambda ; x:f32[2,501]"x". let
    y:f32[2,501] = log x
  in (y) }
END
expect 0 'f32[2,501] [[nan, nan, nan, ..., nan, nan, nan], [nan, nan, nan, ..., nan, nan, nan]]' "$tow" run large.tow --input -1
expect 0 'f32[2,2] [[-inf, -inf], [-inf, -inf]]' "$tow" run double.tow --input -3e38 --input 0

# ---- standard input, JSON --------------------------------------------------------------------------------------------
"$tow" check - <double.tow >out || { echo "check - fails"; failed=1; }
expect 0 '"equations": 1' "$tow" check double.tow --json
expect 0 '"type": "f32[2,2]"' "$tow" run double.tow --random-inputs 1 --json
expect 0 '"what": "y"' "$tow" residuals scalar.tow --json --wrt x
expect 0 '"primitive": "mul"' "$tow" count scalar.tow --json
expect 0 '"arena"' "$tow" plan scalar.tow --grad --json
expect 0 '"backward"' "$tow" grad scalar.tow --split --json
expect 0 'kept between them' "$tow" grad scalar.tow --split
expect 0 'f64[] 3' "$tow" grad scalar.tow --run --wrt y --input 3 --input 4

# ---- remat within a memory limit: three, then two products -----------------------------------------------------------------
cat >products.tow <<'END'
{ lambda ; x:f32[64,32]"x" w:f32[32,32]"w". let
    y:f32[64,32] = dot_general[lhs_contract=(1) rhs_contract=(0)] x w
    z:f32[64,32] = tanh y
    s:f32[] = reduce_sum[axes=(0,1)] z
  in (s) }
END
expect 0 'of least time' "$tow" plan products.tow --grad --wrt w --policy nothing --curve
expect 0 '"seconds"' "$tow" plan products.tow --grad --wrt w --curve --json
"$tow" plan products.tow --grad --wrt w --curve=curve.svg >table || { echo "no curve is drawn"; failed=1; }
test "$(grep -c '<g class="mark">' curve.svg)" = 5 || { echo "expected four policies and no limit in the picture"; failed=1; }
test "$(awk '/policy$/ { on = 1; next } on && NF { print $5 }' table | tr '\n' ' ')" = "no everything nothing dots dots_with_no_batch_dims " ||
    { echo "expected four policies in the table"; cat table; failed=1; }
awk '/^$/ { exit } NR > 1 && NR > 2 && ($1 <= bytes || $3 > time) { exit 1 } { bytes = $1; time = $3 }' table ||
    { echo "plans are not in order"; cat table; failed=1; }
# Two products each, and three where the forward one is made again.
test "$(awk '/nothing$/ { print $4 }' table)" = $((3 * 2 * 64 * 32 * 32)) || { echo "expected operations of three products"; cat table; failed=1; }
test "$(awk '/everything$/ { print $4 }' table)" = $((2 * 2 * 64 * 32 * 32)) || { echo "expected operations of two products"; cat table; failed=1; }
test "$("$tow" plan products.tow --curve | grep -c policy)" = 0 || { echo "policies without a gradient"; failed=1; }
# In a loop a policy stands around each iteration: three products of four iterations, one of which is made again.
cat >loop.tow <<'END'
{ lambda ; w:f32[4,8,8]"w" x:f32[2,8]"x". let
    y:f32[2,8] = scan[length=4 reverse=false consts=0 carry=1
      body={ lambda ; x:f32[2,8] w:f32[8,8]. let
          a:f32[2,8] = dot_general[lhs_contract=(1) rhs_contract=(0)] x w
          b:f32[2,8] = sin a
        in (b) }] x w
    l:f32[] = reduce_sum[axes=(0,1)] y
  in (l) }
END
"$tow" plan loop.tow --grad --wrt w,x --curve >table || { echo "no curve of a loop"; cat table; failed=1; }
for policy in everything nothing; do
    products=$(awk -v policy=$policy '$5 == policy { print $4 / (2 * 2 * 8 * 8) }' table)
    test "$products" = $([ $policy = nothing ] && echo 16 || echo 12) || { echo "$policy: $products products"; cat table; failed=1; }
done
mkdir -p empty
expect 1 'curve.svg' "$tow" plan products.tow --grad --wrt w --curve=empty/absent/curve.svg
test -z "$(ls -A empty)" || { echo "a curve that cannot be written leaves files"; failed=1; }
# A disk that is full leaves the old file, and nothing beside it.
echo old >empty/old.svg
(trap '' XFSZ; ulimit -f 1; exec "$tow" plan products.tow --grad --wrt w --curve=empty/old.svg >/dev/null 2>&1) && { echo "a full disk is no error"; failed=1; }
test "$(ls -A empty)$(cat empty/old.svg)" = old.svgold || { echo "a full disk leaves half a file: $(ls -A empty)"; failed=1; }
expect 0 '"policies"' "$tow" plan products.tow --grad --wrt w --curve --json
expect 1 'memory limit: expected at least' "$tow" plan products.tow --grad --wrt w --memory-limit 10K
# Names that are no UTF-8 leave JSON and pages valid.
printf '{ lambda ; x:f32[4]"x\377" w:f32[4]"w". let\n  a:f32[4] = mul x w\n  n:f32[4] = name[name="h\\xff"] a\n' >bytes.tow
printf '  s:f32[4] = sin n\n  l:f32[] = reduce_sum[axes=(0)] s\n  in (l) }\n' >>bytes.tow
expect 0 '"names:h' "$tow" plan bytes.tow --grad --wrt w --curve --json
expect 0 '"what": "x?"' "$tow" residuals bytes.tow --why --json
expect 0 '' "$tow" plan bytes.tow --grad --wrt w --html bytes.html
! command -v iconv >/dev/null || iconv -f UTF-8 -t UTF-16 bytes.html >/dev/null || { echo "the page is no UTF-8"; failed=1; }
# Parts of the bytes without a limit, and decimals.
bytes() { awk '/^inputs/ { print $2 + $4 + $6 + $8 }'; }
all=$("$tow" plan products.tow --grad --wrt w --policy nothing | bytes)
for percent in 100 97.5 90; do
    found=$("$tow" plan products.tow --grad --wrt w --policy nothing --memory-limit $percent% | bytes)
    test "$((found * 1000))" -le "$(awk "BEGIN { print $all * $percent * 10 }")" || { echo "$percent% of $all: $found bytes"; failed=1; }
done
expect 1 "found $((all / 100))" "$tow" plan products.tow --grad --wrt w --policy nothing --memory-limit 1%
expect 1 'found 1536' "$tow" plan products.tow --grad --wrt w --memory-limit 1.5K
expect 1 'found 1536' "$tow" residuals products.tow --why --wrt w --memory-limit 1.5K
for limit in 5%% 1.5X 1..5K . % 0% -1 1e3; do
    expect 2 'expected a positive number of bytes' "$tow" plan products.tow --grad --wrt w --memory-limit "$limit"
done
# Processes: w has 4096 bytes, of which 2 processes send each other half, at 2048 bytes in a second, in one round of half a second.
scale() { "$tow" plan products.tow --grad --wrt w --processes 2 --bandwidth 16384 --latency 500ms --compute 2s "$@" >table || failed=1; }
in_table() { grep -qE "$1" table || { echo "expected '$1':"; cat table; failed=1; }; }
scale
in_table '^communication +3 s, of which [0-9.]+ [nu]?s \(0\.0 %\) are hidden'
in_table '^a step +5 s'
in_table '^sums of gradients +2.00 KiB +1$'
in_table '^optimizer +8.00 KiB +8.00 KiB'
in_table 'at any bandwidth: 1 s of latency'
in_table '^2 processes, nothing split'
scale --shard 0
in_table '^a step +5 s'
in_table '^2 processes, nothing split'
scale --shard 1 --slots 4
in_table '^optimizer +16.0 KiB +8.00 KiB'
in_table '^gradients +4.00 KiB +2.00 KiB'
scale --shard 2
in_table '^2 processes, stage 2'
in_table '^gradients +4.00 KiB +2.00 KiB'
scale --shard 3
in_table '^communication +4.5 s'
in_table '^gathers of parameters +4.00 KiB +2$'
in_table '^parameters +4.00 KiB +2.00 KiB'
scale --json
in_table '"enough_bits_per_second": 0.0'
"$tow" plan products.tow --grad --wrt w --processes 1 >table || failed=1
in_table '^efficiency +100.0%'
# Processes exchange gradients, so --grad is meant.
"$tow" plan products.tow --wrt w --processes 2 --bandwidth 16384 --latency 500ms --compute 2s >table || failed=1
in_table '^a step +5 s'
expect 2 '--compute need --processes' "$tow" plan products.tow --grad --latency 1ms
expect 2 "found '20parsecs'" "$tow" plan products.tow --grad --processes 2 --latency 20parsecs
expect 2 "as 25G or 100M, found '0'" "$tow" plan products.tow --grad --processes 2 --bandwidth 0
expect 2 '--shard: expected 0 to 3, found 4' "$tow" plan products.tow --grad --processes 2 --shard 4
expect 2 '--processes does not go with --curve and --run' "$tow" plan products.tow --grad --processes 2 --curve
expect 2 "--processes does not go with 'grad'" "$tow" grad products.tow --processes 2
test "$("$tow" plan products.tow --grad --wrt w --policy nothing | grep -c dot_general)" = 3 || { echo "expected 3 products"; failed=1; }
test "$("$tow" plan products.tow --grad --wrt w --policy nothing --memory-limit 100000 | grep -c dot_general)" = 2 || { echo "expected 2 products"; failed=1; }
# The reason behind the engine of each product.
test "$("$tow" plan products.tow --grad --wrt w | grep dot_general | grep -cE '  (own kernel|libxsmm|matrix unit|BLIS|reference): ')" = 2 || { echo "expected a reason of each product"; failed=1; }
expect 0 '"engines"' "$tow" plan products.tow --json
test "$("$tow" plan products.tow --grad --wrt w --json | grep -c '"reason"')" = 2 || { echo "expected a reason of each product"; failed=1; }
export TOW_ENGINE=own
expect 0 '  own kernel: forced by TOW_ENGINE or an option' "$tow" plan products.tow
TOW_ENGINE=reference
expect 0 '  reference: forced by TOW_ENGINE or an option' "$tow" plan products.tow
unset TOW_ENGINE
# What the cost model says of a run, and with --run what it took; a machine that is given, and one that is none.
expect 0 ' us by the cost model' "$tow" plan products.tow
expect 0 ' us by the cost model, took ' "$tow" plan products.tow --run --random-inputs 1
expect 0 'counted in runs: ' "$tow" plan products.tow --run --random-inputs 1
expect 2 "inputs and outputs of 'plan' need --run" "$tow" plan products.tow --random-inputs 1
echo '{ lambda ; x:f32[2]. let
    y:f32[2] = tanh x
  in (y) }' >one_call.tow
export TOW_MACHINE=l1=32K,l2=512K,l3=32M,vector=32,overhead=1000000000
expect 0 ' 1000000 us by the cost model' "$tow" plan one_call.tow --threads 1
TOW_MACHINE=l1=32KB
expect 1 'environment variable TOW_MACHINE: expected KEY=NUMBER,...' "$tow" plan products.tow
unset TOW_MACHINE
# The list of passes: numbers from 1 on without gaps, and names that files of --dump-dir have.
"$tow" plan --passes | sed -n 's/^ *\([0-9][0-9]*\)  \([a-z-]*\).*/\1 \2/p' >passes
awk '$1 != NR || $2 == "" { exit 1 }' passes || { echo "expected passes numbered from 1 on:"; cat passes; failed=1; }
grep -q ' fuse$' passes || { echo "expected a pass called fuse"; failed=1; }
first_pass=$(awk 'NR == 1 { printf "%02d-%s", $1, $2 }' passes) last_pass=$(awk 'END { printf "%02d-%s", $1, $2 }' passes)
expect 0 'dot_general(tanh)' "$tow" plan products.tow --grad --wrt w --dump-after fuse
test "$("$tow" plan products.tow --dump-after lower | grep -c '^# after lower: the program$')" = 1 || { echo "expected one function"; failed=1; }
expect 1 "no pass 'fusion'; expected a name" "$tow" plan products.tow --dump-after fusion
expect 1 "does its work within 'distribute-loops'" "$tow" plan products.tow --dump-after fission-loops
expect 1 "pass 'fuse' is left out by --without" "$tow" plan products.tow --without tile,fuse --dump-after fuse
expect 0 'after fuse' "$tow" plan products.tow --without tile --dump-after fuse
expect 1 'found "fusion"' "$tow" plan products.tow --without fusion
expect 1 'tow_pass_required is false for, found "alias"' "$tow" plan products.tow --without fuse,alias
expect 0 'live' "$tow" plan products.tow --without fuse,tile
expect 2 "--without does not go with 'run'" "$tow" run products.tow --without fuse
expect 1 'cannot create' "$tow" plan products.tow --dump-dir /nonexistent/directory
expect 0 'live' "$tow" plan products.tow --dump-dir dumps
test -s "dumps/$first_pass-1.txt" && test -s "dumps/$last_pass-1.txt" || { echo "expected dumps in files"; failed=1; }
expect 2 '--memory-limit: expected a positive number of bytes' "$tow" plan products.tow --grad --memory-limit much
expect 2 "--memory-limit does not go with 'run'" "$tow" run products.tow --memory-limit 1

# ---- pictures and traces ---------------------------------------------------------------------------------------------
expect 0 'arena' "$tow" plan scalar.tow --grad --memory memory.svg
grep -q '^<svg ' memory.svg && grep -q '>most live ' memory.svg || { echo "no picture: $(cat memory.svg)"; failed=1; }
expect 0 'f64[] 3' "$tow" grad scalar.tow --run --wrt y --input 3 --input 4 --trace trace.json
grep -q '"name":"thread 0"' trace.json || { echo "no trace: $(cat trace.json)"; failed=1; }
expect 0 'f32[2,2] [[2, 4], [6, 8]]' "$tow" run double.tow --input '[[1,2],[3,4]]' --input 5 --trace trace.json
grep -q '"name":"add"' trace.json || { echo "no instruction in the trace: $(cat trace.json)"; failed=1; }
expect 1 'absent/memory.svg: cannot write' "$tow" plan scalar.tow --memory absent/memory.svg
expect 1 'absent/trace.json: cannot write' "$tow" run double.tow --input 1 --input 2 --trace absent/trace.json
expect 0 'arena' "$tow" plan products.tow --grad --wrt w --html page.html
grep -q '"made": "tanh"\|"made": "dot_general"' page.html || { echo "expected blocks in page.html"; failed=1; }
expect 0 'arena' "$tow" plan products.tow --grad --wrt w --html both.html --against none
expect 0 'arena' "$tow" plan products.tow --grad --wrt w --html both.html --against scalar.tow
expect 0 'arena' "$tow" plan products.tow --html both.html --against 100M
expect 1 'memory limit: expected at least' "$tow" plan products.tow --grad --wrt w --html new.html --against 1K
expect 1 '--against absent.tow: cannot open' "$tow" plan products.tow --html new.html --against absent.tow
expect 1 'absent/page.html' "$tow" plan products.tow --html absent/page.html
test ! -e new.html || { echo "expected no page after an error"; failed=1; }
expect 2 '--against needs --html' "$tow" plan products.tow --against none
expect 2 "--html does not go with 'run'" "$tow" run double.tow --html page.html
expect 0 'asked for    by the derivative rule of' "$tow" residuals products.tow --why
expect 0 '"bytes_more"' "$tow" residuals products.tow --why --json
expect 0 '"made_again": []' "$tow" residuals products.tow --why --json
expect 0 'in the plan' "$tow" residuals products.tow --why --memory-limit 100000
expect 1 'memory limit: expected at least' "$tow" residuals products.tow --why --memory-limit 1K
expect 1 'expected a float scalar' "$tow" residuals double.tow --why --memory-limit 1M
expect 0 '0 residuals' "$tow" residuals double.tow --why
expect 2 "--memory-limit of 'residuals' needs --why" "$tow" residuals products.tow --memory-limit 1M
expect 2 "--why does not go with 'plan'" "$tow" plan products.tow --why
expect 2 "--memory does not go with 'run'" "$tow" run double.tow --memory memory.svg
expect 2 '--trace' "$tow" grad scalar.tow --trace trace.json

# ---- bad graphs, inputs and files: exit status 1 and one message -----------------------------------------------------
expect 1 'x (f32[2,2]) is not given' "$tow" run double.tow
expect 1 'input x: expected f32[2,2]' "$tow" run double.tow --input '[1,2]' --input 0
expect 1 'input i' "$tow" run double.tow --input 1 --input 0.5
expect 1 'input i' "$tow" run double.tow --input 1 --input 5000000000
expect 1 'input x' "$tow" run double.tow --input 1e39 --input 0
expect 1 'input x' "$tow" run double.tow --input '[[1, 2], [-4e38, 3]]' --input 0
expect 1 'is too many' "$tow" run double.tow --input 1 --input 2 --input 3
expect 1 'given twice' "$tow" run double.tow --input x=1 --input x=2
expect 1 'expected f32[2,2], found i32[]' "$tow" run double.tow --input i.npy --input 0
expect 1 'missing.npy' "$tow" run double.tow --input missing.npy --input 0
expect 1 'not JSON' "$tow" run double.tow --input '[[1,2' --input 0
printf '{ lambda ; a:f32[]"w" b:f32[]"w". let\n  c:f32[] = add a b\n in (c) }' >twins.tow
expect 1 'inputs 0 and 1 have the same name "w"' "$tow" check twins.tow
cat >endless.tow <<'END'
{ lambda ; a:f32[]. let
    c:f32[] = scan[
      body={ lambda ; a:f32[]. let
          b:f32[] = tanh a
        in (b) }
      length=9223372036854775807
      reverse=false
      consts=0
      carry=1
    ] a
  in (c) }
END
expect 1 'would be f32[9223372036854775807], which is no array type' "$tow" grad endless.tow
expect 1 'missing.tow: cannot open' "$tow" check missing.tow
expect 1 "no input 'z'" "$tow" grad scalar.tow --wrt z
expect 1 "input 'x' is given twice" "$tow" grad scalar.tow --wrt 0,x
expect 1 '--policy nonsense' "$tow" count scalar.tow --policy nonsense
expect 1 'checkpoint name "nobody"' "$tow" grad scalar.tow --policy names:nobody
printf '{ lambda ; x:f32[2]. let\n  y:f32[2] = nosuch x\n in (y) }' >unknown.tow
expect 1 'unknown.tow:2:' "$tow" check unknown.tow
expect 1 '"line": 2' "$tow" check unknown.tow --json
printf '{ lambda ; x:f32[2]. let' >cut.tow
expect 1 'cut.tow:1:' "$tow" check cut.tow
printf 'a\0b' >zero.tow
expect 1 'zero byte' "$tow" check zero.tow
: >empty.tow
expect 1 'empty.tow:1:1' "$tow" check empty.tow
expect 1 '' "$tow" run double.tow --random-inputs 1 --output /nonexistent/y.npy
[ -e /dev/full ] && { "$tow" print double.tow >/dev/full 2>err && { echo "a full disk is not noticed"; failed=1; }; }

# ---- names that are not UTF-8, arrays without elements, devices without an end ---------------------------------------
bad=$(printf 'caf\351')
printf 'no graph' >"$bad.tow"
expect 1 '"message": "expected ' "$tow" check "$bad.tow" --json
expect 1 '"file": "caf?.tow"' "$tow" check "$bad.tow" --json
printf '{ lambda ; x:f32[2]"%s". let in (x) }' "$bad" >named.tow
expect 0 '"name": "caf?"' "$tow" print named.tow --json
expect 1 'input caf? (f32[2]) is not given' "$tow" run named.tow --json
cat >rows.tow <<'END'
{ lambda ; x:f32[100000000000000,0]"x". let
  in (x) }
END
expect 0 '[[], [], [], ..., [], [], []]' timeout 60 "$tow" run rows.tow --input 1
expect 0 '"data": []' timeout 60 "$tow" run rows.tow --input 1 --json
expect 1 'zero byte' timeout 60 "$tow" check /dev/zero
expect 1 "no input is called 'z'" "$tow" run double.tow --input z=1 --input 2

# ---- bad command lines: exit status 2 --------------------------------------------------------------------------------
expect 2 'expected a command and a file' "$tow"
expect 2 'expected a command and a file' "$tow" check
expect 2 "unknown command 'chekc'" "$tow" chekc double.tow
expect 2 'is too many' "$tow" check double.tow scalar.tow
expect 2 "--wrt does not go with 'check'" "$tow" check double.tow --wrt 0
expect 2 'need --run' "$tow" grad scalar.tow --input 1
expect 2 'non-negative whole number' "$tow" run double.tow --random-inputs -3
expect 2 'expected 1 to 1024' "$tow" run double.tow --threads 0
# ---- weights and tokenizers ------------------------------------------------------------------------------------------

expect 2 "needs a --mapping or an --architecture, and one -o FILE" "$tow" convert-weights x -o y
expect 2 "needs a --mapping or an --architecture, and one -o FILE" "$tow" convert-weights x --mapping gpt2
expect 2 "--architecture does not go with --mapping" "$tow" convert-weights x --mapping gpt2 --architecture gpt2 -o y
expect 1 "expected a name that ends with .gguf" "$tow" convert-weights x --architecture gpt2 -o y
expect 1 "expected a directory, or a name that ends with .safetensors" "$tow" convert-weights x.gguf --architecture gpt2 -o y.gguf
expect 1 "--type: expected f32, f16, bf16, q8_0 or q4_0, found 'q9'" "$tow" convert-weights x --architecture gpt2 -o y.gguf --type q9
expect 1 "config.json: cannot open" "$tow" convert-weights x --architecture gpt2 -o y.gguf
expect 2 '--mapping does not go with' "$tow" check x --mapping gpt2
expect 2 "needs a --tokenizer" "$tow" tokenize x
expect 1 'no such mapping; there are bert gemma gemma2 gguf-gemma' "$tow" convert-weights x -o y --mapping gpt3
expect 1 "--axis: expected NAME=SIZE, found 'k'" "$tow" convert-weights x -o y --mapping gpt2 --axis k
expect 1 "--axis: expected NAME=SIZE, found 'k=0'" "$tow" convert-weights x -o y --mapping gpt2 --axis k=0
expect 1 "--dtype: expected f32, f64, bf16 or f16, found 'i8'" "$tow" convert-weights x -o y --mapping gpt2 --dtype i8
expect 1 'absent: cannot open' "$tow" convert-weights absent -o y --mapping gpt2
printf '[UNK]\na\n##b\n' >vocab.txt
printf 'ab c' >text
expect 0 '##b' "$tow" tokenize text --tokenizer vocab.txt
expect 0 '0' "$tow" tokenize --json text --tokenizer .
expect 1 'absent: cannot open' "$tow" tokenize text --tokenizer absent
printf '\377' >text
expect 1 'text: tow_tokenizer_encode: expected UTF-8, found the byte 0xff' "$tow" tokenize text --tokenizer .
expect 1 'nowhere: cannot open' "$tow" tokenize nowhere --tokenizer vocab.txt

# ---- plot ------------------------------------------------------------------------------------------------------------
cat >a.jsonl <<'END'
{"step": 1, "loss": 4, "val_loss": 5, "accuracy": 0.1, "seconds": 0.5}
{"step": 2, "loss": 2, "accuracy": 0.2, "seconds": 1.0}

nonsense
{"step": "3", "loss": 2}
{"step": 3, "loss": null, "seconds": 0.25, "note": "resumed"}
{"step": 4, "loss": 1, "seconds": 0.5}
{"step": 5, "lo
END
printf '{"step": 1, "loss": 3}\n{"step": 4, "loss": 3}\n' >b.jsonl
expect 0 "a.jsonl:4: expected an object with a number \"step\", found 'nonsense'; left out" "$tow" plot a.jsonl -o a.svg
expect 0 'a.jsonl:5: expected an object' "$tow" plot a.jsonl -o a.svg
expect 0 'a.jsonl:8: expected an object' "$tow" plot a.jsonl -o a.svg
expect 0 '>loss</text>' cat a.svg # both numbers that tell of a loss, each in the legend
expect 0 '>val_loss</text>' cat a.svg
if grep -q accuracy a.svg; then echo "plot draws what nobody asked for"; failed=1; fi
# two points, and one behind the hole: x from 68 (1) to 702 (4), y from 40 to 370 for 5.16 to 0.84, 4 % beyond what there is
expect 0 'points="68.0,128.6 279.5,281.4 "' cat a.svg
expect 0 'points="702.0,357.8 702.0,357.8 "' cat a.svg
expect 0 '' "$tow" plot a.jsonl b.jsonl -o both.svg --smooth 0.5 --title 'two runs' --y loss
expect 0 '>a.jsonl</text>' cat both.svg
expect 0 '>b.jsonl</text>' cat both.svg
expect 0 '>two runs</text>' cat both.svg
expect 0 '' "$tow" plot a.jsonl b.jsonl -o both.svg --y loss,accuracy --log-y
expect 0 '>a.jsonl: accuracy</text>' cat both.svg
expect 0 '' "$tow" plot a.jsonl -o a.svg --x seconds --y loss
expect 0 '<svg' "$tow" plot a.jsonl -o - --x seconds --y loss
expect 0 '>seconds</text>' cat a.svg
expect 0 '' sh -c '"$0" plot - a.jsonl -o both.svg --y loss <b.jsonl' "$tow"
expect 0 '>-</text>' cat both.svg
printf '\n\nnonsense\n' >c.jsonl
expect 1 '-:3: expected an object' sh -c '"$0" plot - -o c.svg --y loss <c.jsonl' "$tow"
expect 1 "no number of --y lost; the logs have: loss, val_loss, accuracy, seconds" "$tow" plot a.jsonl -o c.svg --y lost
expect 1 "no number whose name has 'loss', and no --y; the logs have: none" "$tow" plot /dev/null -o c.svg
expect 1 'absent: cannot open: No such file' "$tow" plot absent -o c.svg
expect 1 'there is no file of events' "$tow" plot . -o c.svg
printf 'no log' >no.log
expect 1 'expected JSON lines or a file of events' "$tow" plot no.log -o c.svg
expect 1 'tow: absent/c.svg: cannot create' "$tow" plot b.jsonl -o absent/c.svg
expect 2 "'plot' needs one -o FILE.svg" "$tow" plot b.jsonl
expect 2 'expected step or seconds' "$tow" plot b.jsonl -o c.svg --x years
expect 2 'from 0 to below 1' "$tow" plot b.jsonl -o c.svg --smooth 1
expect 2 "--y does not go with 'run'" "$tow" run double.tow --y loss
expect 2 "--policy does not go with 'plot'" "$tow" plot b.jsonl -o c.svg --policy nothing

# ---- help of one command: its options alone, which are those that bash completes ---------------------------------------------
for command in check print run grad residuals count plan vmap plot convert-weights tokenize primitives; do
    "$tow" "$command" --help >help || { echo "tow $command --help: exit status $?"; failed=1; }
    head -n 1 help | grep -q "^Usage: tow $command " || { echo "tow $command --help begins with $(head -n 1 help)"; failed=1; }
    sed -n 's/^  *\(-.,\)\{0,1\} *--\([a-z-]*\).*/--\2/p' help | sort >in_help
    bash -c '. "$0"; COMP_WORDS=(tow "$1" --); COMP_CWORD=2; _tow_complete; printf "%s\n" "${COMPREPLY[@]}"' \
        "$completion" "$command" | sed 's/=$//' | grep -vx -e --help | sort >in_completion
    diff in_help in_completion || { echo "tow $command: --help (<) and the completion (>) differ"; failed=1; }
done
expect 0 '--memory-limit=BYTES' "$tow" plan --help
expect 0 '--tokenizer=DIR|FILE' "$tow" --json tokenize --help
if "$tow" run --help | grep -e --mapping -e --memory-limit; then echo "tow run --help has options of others"; failed=1; fi
expect 0 '  tokenize   a text as tokens' "$tow" --help
exit "$failed"
