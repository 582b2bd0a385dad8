#!/usr/bin/env bash
# The command line of gpt: exit statuses, files that it writes, equal losses for every policy, Ctrl-C.  test.sh path/to/gpt
. "$(dirname "$0")/../common/testing.sh"

for i in $(seq 300); do printf 'line %d of a text: %d\n' "$i" $((i * i % 97)); done >text
small=(--text text --layers 3 --width 16 --heads 2 --context 16 --batch 2 --no-sample)


# ---- what does not make sense ----------------------------------------------------------------------------------------
expect_status 2 "--layers" "${small[@]}" --layers 0
expect_status 2 "--steps" "${small[@]}" --steps ten
expect_status 2 "--batch" "${small[@]}" --batch 99999999999999999999
expect_status 2 "no multiple" "${small[@]}" --heads 3
expect_status 2 "--learning-rate" "${small[@]}" --learning-rate nan
expect_status 2 "--seed" "${small[@]}" --seed -1
expect_status 2 "--checkpoint" "${small[@]}" --resume
expect_status 2 "--save-every needs --checkpoint" "${small[@]}" --save-every 5
expect_status 2 "--warmup" "${small[@]}" --steps 5 --warmup 5
expect_status 2 "unexpected argument 'file'" "${small[@]}" file
expect_status 2 "sometimes" "${small[@]}" --policy sometimes
expect_status 2 "no_such_name" "${small[@]}" --policy names:no_such_name
expect_status 2 "--dtype: expected f32, bf16 or f16, found 'half'" "${small[@]}" --dtype half
expect_status 2 "leave one of --master and --stochastic-rounding out" "${small[@]}" --master --stochastic-rounding
expect_status 2 "--slot-bits: expected 8, or 0 for f32, found 4" "${small[@]}" --slot-bits 4
expect_status 2 "unrecognized option" "${small[@]}" --no-such-option
expect_status 1 "absent: cannot read: No such file" "${small[@]}" --text absent
expect_status 1 "at least" "${small[@]}" --context 1000
expect_status 1 "cannot write the log" "${small[@]}" --steps 2 --log absent/log
expect_status 1 "cannot write the plan" "${small[@]}" --steps 2 --plan /dev/full
expect_status 1 "cannot create the directory" "${small[@]}" --steps 2 --checkpoint absent/too
expect_status 1 "text: cannot write checkpoints there: Not a directory" "${small[@]}" --steps 2 --checkpoint text
expect_status 1 "not finite" "${small[@]}" --steps 30 --warmup 0 --learning-rate 1e30 --checkpoint diverged
[ ! -e diverged/checkpoint.safetensors ] || fail "saved what had diverged"
# an update that ruins the parameters does not replace the checkpoint before it
"$program" "${small[@]}" --steps 3 --warmup 0 --checkpoint ruined >out
cp ruined/checkpoint.safetensors before
expect_status 1 "was left as it was" "${small[@]}" --steps 9 --warmup 0 --learning-rate 1e30 --save-every 1 --resume --checkpoint ruined
cmp before ruined/checkpoint.safetensors || fail "parameters that give no finite loss were saved"
"$program" "${small[@]}" --steps 2 --warmup 0 --resume --checkpoint ruined >out
grep -q 'nothing is left to train' out || fail "resuming a finished run says nothing: $(tail -n 2 out)"
TOW_ENGINE=nonsense expect_status 1 "TOW_ENGINE" "${small[@]}"
expect_status 2 "--warmup 5 leaves nothing of --steps 0" "${small[@]}" --steps 0 --warmup 5
"$program" "${small[@]}" --steps 2 --log /dev/stdout | cat >out || fail "a pipe is no log: $(cat out)"
grep -q '^{"step": 2,' out || fail "no log in the pipe: $(cat out)"
expect_status 1 "/dev/zero: cannot read: File too large" "${small[@]}" --text /dev/zero
status=0
"$program" "${small[@]}" --steps 1 >/dev/full 2>err || status=$?
[ $status -eq 1 ] || fail "a full disk under the output: expected status 1, found $status"
grep -q 'cannot write the output' err || fail "a full disk under the output: $(cat err)"
expect_status 1 "cannot draw the memory" "${small[@]}" --steps 2 --memory absent/svg
expect_status 1 "cannot draw the memory" "${small[@]}" --steps 2 --memory /dev/full
expect_status 1 "cannot write the graph" "${small[@]}" --steps 2 --graph absent/graph
expect_status 1 "cannot write the graph" "${small[@]}" --steps 2 --graph /dev/full
expect_status 1 "absent/page" "${small[@]}" --steps 2 --html absent/page
expect_status 1 "cannot write the log" "${small[@]}" --steps 2 --log /dev/full
expect_status 1 "cannot read" "${small[@]}" --text .
# a trace that cannot be opened is found out before training, a full disk then lets the finished run fail
expect_status 1 "absent/json: cannot write the trace: No such file" "${small[@]}" --steps 2 --trace absent/json
if grep -q 'step 1' out; then fail "--trace absent/json: found out after training only"; fi
expect_status 1 "/dev/full: cannot write the trace: No space left" "${small[@]}" --steps 3 --trace /dev/full
grep -q 'step 3/3' out || fail "--trace /dev/full: training did not go on: $(cat out)"
expect_status 1 "fewer are left" "${small[@]}" --steps 1 --trace json
expect_status 2 "--learning-rate: expected a number above 0 and at most 3.40282e+38, found '1e300'" "${small[@]}" --learning-rate 1e300

# the bar fits the terminal, however narrow
for columns in $(command -v script >/dev/null && echo 300 200 137 80 60 47 33 26 20 9); do
    script -qec "stty cols $columns; $program ${small[*]} --steps 40 --eval-every 5" /dev/null </dev/null >out || fail "on a terminal: $(cat out)"
    tr '\r' '\n' <out | sed -n 's/^\x1b\[K//p' >lines
    grep -q '40/40' lines || fail "$columns columns: no progress: $(cat out)"
    [ "$(wc -L <lines)" -lt "$columns" ] || fail "$columns columns: the bar takes $(wc -L <lines): $(cat lines)"
    # beside step, losses and time that are left, some 45 columns, and a bar of 8
    if [ "$columns" -ge 60 ]; then grep -q '\[#*\] 40/40  loss' lines || fail "$columns columns: no bar: $(cat lines)"; fi
done
# and goes on fitting when the window changes: 150 columns become 30 after 20 steps
if command -v script >/dev/null; then
    cat >resized.sh <<END
stty cols 150
(until [ "\$(cat resized.log 2>/dev/null | wc -l)" -ge 20 ]; do sleep 0.05; done; stty -F /dev/tty cols 30) &
$program ${small[*]} --steps 1500 --warmup 0 --eval-every 5 --log resized.log
END
    script -qec "sh resized.sh" /dev/null </dev/null >out || fail "on a terminal that is resized: $(cat out)"
    tr '\r' '\n' <out | sed -n 's/^\x1b\[K//p' >lines
    [ "$(head -n 1 lines | wc -L)" -ge 60 ] || fail "150 columns: the bar takes $(head -n 1 lines | wc -L): $(cat lines)"
    [ "$(tail -n 1 lines | wc -L)" -lt 30 ] || fail "30 columns after 150: the bar takes $(tail -n 1 lines | wc -L): $(cat lines)"
fi
"$program" --help >help || fail "--help failed"
for option in dtype param-dtype master stochastic-rounding slot-bits micro-batches row-groups processes shard memory-limit verify early-update text layers width heads context batch steps policy scan no-scan seed threads checkpoint resume save-every log tensorboard plan \
    memory html graph curve trace residuals why instructions; do
    grep -q -- "--$option" help || fail "--help does not know --$option"
done

# ---- the same losses, whatever is kept, and less memory the less is kept ---------------------------------------------
losses() { sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$1"; }
peak() { sed -n 's/.*"peak": \([0-9]*\).*/\1/p' "$1"; }

# ---- row groups: the same losses, however the batch is cut --------------------------------------------------------------
"$program" "${small[@]}" --batch 4 --steps 3 --row-groups 4 --log log >out || fail "--row-groups 4: $(cat out)"
for settings in '--micro-batches 4' '--micro-batches 2 --no-scan' '--policy nothing'; do
    # shellcheck disable=SC2086
    "$program" "${small[@]}" --batch 4 --steps 3 --row-groups 4 $settings --log other >out || fail "$settings: $(cat out)"
    [ "$(losses log)" = "$(losses other)" ] || fail "--row-groups 4 $settings: other losses"
done
# Another number of processes goes on with the row groups of the checkpoint, and another number of these is said.
"$program" "${small[@]}" --batch 4 --steps 2 --warmup 0 --row-groups 4 --processes 2 --threads 1 --checkpoint grouped >out || fail "--checkpoint grouped: $(cat out)"
for copy in by_one regrouped; do cp -r grouped $copy; done
on=("${small[@]}" --batch 4 --steps 3 --warmup 0 --threads 1 --resume)
"$program" "${on[@]}" --row-groups 4 --checkpoint by_one --log by_one.log >out || fail "--row-groups 4 --resume: $(cat out)"
"$program" "${on[@]}" --processes 3 --checkpoint grouped --log grouped.log >out || fail "--processes 3 --resume: $(cat out)"
[ "$(losses by_one.log)" = "$(losses grouped.log)" ] || fail "--processes 3 --resume: other losses"
cmp by_one/checkpoint.safetensors grouped/checkpoint.safetensors || fail "--processes 3 --resume: another checkpoint"
if grep -q 'another order' out; then fail "--resume: said that the order is another one: $(cat out)"; fi
"$program" "${on[@]}" --row-groups 2 --checkpoint regrouped >out || fail "--row-groups 2 --resume: $(cat out)"
grep -q 'trained with --row-groups 4: with 2, sums over the batch are made in another order' out || fail "--row-groups 2 --resume says nothing: $(cat out)"
expect_status 1 "found 4 in the checkpoint" "${on[@]}" --batch 6 --processes 2 --checkpoint grouped
# Any number of processes, and what they refuse.
for n in 1 2 3 4; do
    "$program" "${small[@]}" --batch 4 --steps 3 --row-groups 4 --processes $n --threads 1 --log other >out || fail "--processes $n: $(cat out)"
    [ "$(losses log)" = "$(losses other)" ] || fail "--row-groups 4 --processes $n: other losses"
done
# Processes with shares of the state: the same losses, and less memory.
for n in 2 3; do
    "$program" "${small[@]}" --batch 4 --steps 3 --row-groups 4 --processes $n --threads 1 --plan whole >out || fail "--processes $n: $(cat out)"
    for stage in 1 2; do
        "$program" "${small[@]}" --batch 4 --steps 3 --row-groups 4 --processes $n --threads 1 --shard $stage --log other --plan shares >out || fail "--shard $stage: $(cat out)"
        [ "$(losses log)" = "$(losses other)" ] || fail "--processes $n --shard $stage: other losses"
        [ "$(peak shares)" -lt "$(peak whole)" ] || fail "--processes $n --shard $stage: $(peak shares) bytes, $(peak whole) without"
    done
done
"$program" "${small[@]}" --batch 4 --steps 3 --row-groups 4 --sample 60 >alone || fail "--sample 60: $(cat alone)"
for parts in 1 4; do
    "$program" "${small[@]}" --batch 4 --steps 3 --row-groups 4 --processes 3 --threads 1 --shard 3 --micro-batches $parts --sample 60 --log other --plan shares >out || fail "--shard 3: $(cat out)"
    [ "$(losses log)" = "$(losses other)" ] || fail "--processes 3 --shard 3: other losses"
    [ "$(sed -n '/^text from the model/,$p' out)" = "$(sed -n '/^text from the model/,$p' alone)" ] || fail "--processes 3 --shard 3: other text"
done
[ "$(peak shares)" -lt "$(peak whole)" ] || fail "--processes 3 --shard 3: $(peak shares) bytes, $(peak whole) without"
# A process that is not there is planned as it is when it is there; each rank has its own plan.
for stage in 0 3; do
    "$program" "${small[@]}" --batch 4 --steps 1 --row-groups 4 --processes 3 --threads 1 --shard $stage --plan done >out || fail "--shard $stage: $(cat out)"
    "$program" "${small[@]}" --batch 4 --steps 0 --row-groups 4 --processes 3 --threads 1 --shard $stage --plan said >out || fail "--steps 0 --shard $stage: $(cat out)"
    cmp said done || fail "--steps 0 --processes 3 --shard $stage: said is $(cat said), done is $(cat done)"
    grep -q '^exchange of a step, rank 0 of 3' out || fail "--steps 0 --processes 3 says nothing of the exchange: $(cat out)"
done
"$program" "${small[@]}" --batch 4 --steps 0 --row-groups 4 --processes 3 --threads 1 --rank 2 --plan done --bandwidth 1G --latency 1ms >out || fail "--rank 2: $(cat out)"
[ "$(peak done)" -lt "$(peak said)" ] || [ "$(peak done)" -gt "$(peak said)" ] || fail "--rank 2 has the plan of rank 0"
expect_status 2 "--rank 3 needs" "${small[@]}" --steps 0 --processes 3 --rank 3
expect_status 2 "--rank 1 needs" "${small[@]}" --steps 1 --processes 3 --rank 1
expect_status 2 "starts more" "${small[@]}" --steps 1 --processes 65
expect_status 2 "leave --checkpoint out" "${small[@]}" --steps 0 --processes 3 --checkpoint "$PWD/never"
expect_status 2 "--bandwidth: expected" "${small[@]}" --bandwidth 10
expect_status 2 "--latency: expected" "${small[@]}" --latency 1h
"$program" "${small[@]}" --batch 4 --steps 1 --shard 4 >out 2>err && fail "expected an error for stage 4"
"$program" "${small[@]}" --batch 4 --steps 1 --processes 3 >out 2>err || fail "--processes 3 alone: $(cat err)"
"$program" "${small[@]}" --batch 4 --steps 1 --row-groups 2 --processes 4 >out 2>err && fail "expected an error for 4 processes of 2 row groups"
grep -q "needs --row-groups of at least as many" err || fail "4 processes of 2 row groups: $(cat err)"
"$program" "${small[@]}" --batch 4 --steps 1 --row-groups 3 >out 2>err && fail "expected an error for 3 row groups"
grep -q 'expected a power of two, found 3' err || fail "3 row groups: $(cat err)"

# ---- 16 bits and 8: the same losses, whatever is kept and however layers are stacked ------------------------------------------
for types in '--dtype bf16' '--dtype bf16 --param-dtype bf16 --stochastic-rounding' '--param-dtype bf16 --master --slot-bits 8' \
    '--dtype f16 --param-dtype f16 --master'; do
    # shellcheck disable=SC2086
    "$program" "${small[@]}" --steps 4 $types --log log >out || fail "$types: $(cat out)"
    # shellcheck disable=SC2086
    "$program" "${small[@]}" --steps 4 $types --policy nothing --no-scan --threads 1 --log other >out || fail "$types: $(cat out)"
    [ "$(losses log)" = "$(losses other)" ] || fail "$types: other losses"
done

# ---- a memory limit: the same losses, and an error that says the least -------------------------------------------------
"$program" "${small[@]}" --steps 4 --log log >out || fail "a run without a limit failed"
"$program" "${small[@]}" --steps 4 --memory-limit 1K >out 2>err && fail "expected an error for a limit of 1K"
grep -q 'memory limit: expected at least [0-9]* bytes, found 1024' err || fail "no least limit: $(cat err)"
grep -q 'parameters [0-9]*, slots [0-9]*' err || fail "the least limit has no parts: $(cat err)"
least=$(sed -n 's/.*expected at least \([0-9]*\) bytes.*/\1/p' err)
"$program" "${small[@]}" --steps 4 --memory-limit "$least" --log other >out || fail "the least limit is refused: $(cat out)"
[ "$(losses log)" = "$(losses other)" ] || fail "--memory-limit $least: other losses"


"$program" "${small[@]}" --steps 8 --eval-every 4 --log log --plan plan >out
[ "$(wc -l <log)" -eq 8 ] || fail "expected 8 lines of log, found: $(cat log)"
grep -c '"val_loss"' log | grep -qx 3 || fail "expected the validation loss at steps 1, 4 and 8: $(cat log)"
number='-\?[0-9.e+-]\+'
line="^{\"step\": [0-9]\+, \"loss\": $number, \(\"val_loss\": $number, \)\?\"seconds\": $number, \"tokens_per_second\": $number}\$"
[ "$(grep -c "$line" log)" -eq 8 ] || fail "malformed log: $(cat log)"
for kind in parameters optimizer residuals workspace gradients peak; do
    grep -q "\"$kind\": [0-9]" plan || fail "the plan says nothing about $kind: $(cat plan)"
done
"$program" "${small[@]}" --steps 0 --graph graph >out || fail "no graph: $(cat out)"
grep -q '^{ lambda ; .*"params/tokens/embedding"' graph || fail "the graph does not begin with the parameters: $(head -c 200 graph)"
"$program" "${small[@]}" --steps 0 --curve curve.svg >out || fail "no curve: $(cat out)"
sed -n '/^plans of a step/,/^$/p' out | awk 'NR > 2 && NF { print $1, $3, $4 }' >rows
[ "$(wc -l <rows)" -ge 2 ] || fail "expected some plans of a step, found: $(cat out)"
awk 'NR > 1 && ($1 <= bytes || $2 > time) { exit 1 } { bytes = $1; time = $2 }' rows || fail "plans are not in order: $(cat rows)"
"$program" "${small[@]}" --steps 0 --memory-limit 1K 2>err >refused && fail "expected an error for a limit of 1K"
grep -q "expected at least $(head -n 1 rows | cut -d ' ' -f 1) bytes" err || fail "the first plan is not the least limit: $(cat err)"
[ "$(grep -c '<g class="mark">' curve.svg)" -eq 6 ] || fail "expected a mark for no limit and each of five policies: $(cat curve.svg)"
for policy in everything nothing dots dots_with_no_batch_dims names:attn_out,mlp_pre; do
    grep -q ">$policy</text>" curve.svg || fail "$policy is not in the picture"
    grep -q "  $policy\$" out || fail "$policy is not in the table: $(cat out)"
done
# A limit may be a part of the bytes without one, or have decimals. All bytes of a step are within it, and the peak adds those of evaluation.
least=$(head -n 1 rows | cut -d ' ' -f 1)
all=$(awk '/  no limit$/ { print $1 }' out)
"$program" "${small[@]}" --steps 0 --memory-limit "$least" --plan least_plan --residuals >within
[ "$(peak least_plan)" -eq $((least + $(grep -o '"evaluation": [0-9]*' least_plan | cut -d ' ' -f 2))) ] || fail "the peak is not what the limit counts: $(cat least_plan), $least"
grep -q "memory limit  *$least bytes: $least are taken, evaluation is not counted; without a limit $all, modelled time 1\.[0-9]* of that" within ||
    fail "expected the time beside that without a limit: $(grep 'memory limit' within)"
grep -q '^residuals of a step within the memory limit' within || fail "residuals are not those of the plan: $(cat within)"
grep -q '^made again: [1-9][0-9]* values' within || fail "nothing is made again: $(cat within)"
"$program" "${small[@]}" --steps 0 --residuals >without
[ "$(grep -c 'named' within)" -lt "$(grep -c 'named' without)" ] || fail "a limit keeps as many values as none: $(cat within)"
"$program" "${small[@]}" --steps 0 --memory-limit 100% >half
grep -q "memory limit  *$all bytes: " half || fail "100% are not $all bytes: $(grep 'memory limit' half)"
"$program" "${small[@]}" --steps 0 --memory-limit 0.5M >half
grep -q "memory limit  *524288 bytes: " half || fail "0.5M: $(grep 'memory limit' half)"
for limit in 50%% 1.5X -1 0 0% 1e3K 0x10 nan %; do expect_status 2 "expected a positive number of bytes" "${small[@]}" --memory-limit "$limit"; done
"$program" "${small[@]}" --steps 0 --memory-limit "$least" --why --html page >out
grep -q '^made again by the backward pass:' out || fail "--why says nothing of what is made again: $(cat out)"
grep -q '    made again   the memory limit: prefer recompute' out || fail "--why does not say who decided: $(cat out)"
grep -q '    if kept      arena ' out || fail "--why names no price: $(cat out)"
grep -q '"again": \[{' page || fail "the page lists nothing that is made again"
"$program" "${small[@]}" --steps 3 --memory-limit "$least" --verify >out
grep -q '^verified: [1-9][0-9]* values that were made again in each of 3 steps, all equal' out || fail "no word about what was compared: $(cat out)"
mkdir -p locked && : >locked/in_the_way
expect_status 1 "in_the_way" "${small[@]}" --steps 0 --curve locked/in_the_way/curve.svg
[ "$(ls -A locked)" = in_the_way ] || fail "a curve that fails leaves files: $(ls -A locked)"
"$program" "${small[@]}" --steps 0 --html page >out || fail "no page: $(cat out)"
grep -q '"rule": "softmax\|"rule": "attention\|"rule": "layer_norm' page || fail "the page names no derivative rule of a layer"
sum=$(grep -o '"[a-z]*": [0-9]*' plan | grep -v -e peak -e gradients -e exchange | awk '{ sum += $2 } END { print sum }')
[ "$(peak plan)" -eq "$sum" ] || fail "peak $(peak plan) is not the sum of the kinds, $sum"
diff <(sed -n '/^planned memory/,/^$/s/.* \([0-9]*\) bytes .*/\1/p' out) <(grep -o '[0-9]*' plan) ||
    fail "the table and the file of the plan differ"
for variant in "--no-scan" "--policy everything" "--policy nothing" "--policy nothing --no-scan" "--policy dots --threads 1" \
    "--policy dots_with_no_batch_dims" "--policy names:attn_out,mlp_pre"; do
    # shellcheck disable=SC2086
    "$program" "${small[@]}" --steps 8 --eval-every 4 --log other --plan other_plan $variant >out
    [ "$(losses log)" = "$(losses other)" ] || fail "$variant: other losses: $(losses other) instead of $(losses log)"
    case $variant in
        "--policy nothing"*)
            [ "$(peak other_plan)" -lt "$(peak plan)" ] || fail "$variant: peak $(peak other_plan), without remat $(peak plan)" ;;
    esac
done
"$program" "${small[@]}" --steps 8 --eval-every 4 --seed 1 --log other >out
[ "$(losses log)" != "$(losses other)" ] || fail "another seed gives the same losses"

"$program" "${small[@]}" --steps 8 --eval-every 4 --log other --memory memory.svg --trace trace.json >out
[ "$(losses log)" = "$(losses other)" ] || fail "--trace: other losses: $(losses other) instead of $(losses log)"
grep -q '^<svg ' memory.svg || fail "no picture: $(head -n 1 memory.svg)"
grep -q 'blocks/{}/attn' memory.svg || fail "the picture knows no layers"
colors=$(sed -n 's/.*width="14" height="14" fill="\([^"]*\)".*/\1/p' memory.svg)
[ "$(sort -u <<<"$colors" | wc -l)" -eq "$(wc -l <<<"$colors")" ] || fail "lines of the legend share colors: $colors"
if grep -q '>[^<]* 0 [a-zA-Z]*</text>' <(grep -A1 'width="14" height="14"' memory.svg); then fail "the legend tells of nothing"; fi
grep -q '"scope":"blocks/{}/mlp' trace.json || fail "the trace knows no layers"

# the same numbers for TensorBoard: one event a number, of which `tow plot` draws the losses
"$program" "${small[@]}" --steps 8 --eval-every 4 --log other --tensorboard runs/first >out
[ "$(ls runs/first | wc -l)" -eq 1 ] || fail "expected one file of events, found: $(ls runs/first)"
case $(ls runs/first) in events.out.tfevents.*) ;; *) fail "TensorBoard does not look at $(ls runs/first)" ;; esac
[ "$(grep -ac 'tokens_per_second' runs/first/*)" -ge 1 ] || fail "no numbers in the events"
tow=$(dirname "$program")/tow
if [ -x "$tow" ]; then
    "$tow" plot other -o lines.svg --title both && "$tow" plot runs/first -o events.svg --title both
    grep -v '<polyline' lines.svg >a && grep -v '<polyline' events.svg >b
    [ "$(grep -c '<polyline' lines.svg)" -eq "$(grep -c '<polyline' events.svg)" ] || fail "tow plot draws other lines of events"
    # Events are f32 and lines of the log have six digits, so a label may stand a tenth of a pixel elsewhere.
    axes() { sed -n 's#.*<text x="\([0-9.]*\)" y="\([0-9.]*\)"[^>]*>\(.*\)</text>.*#\1 \2 \3#p' "$1"; }
    [ "$(axes a | wc -l)" -ge 5 ] || fail "tow plot draws no axes"
    paste -d '|' <(axes a) <(axes b) | awk -F '|' '
        { split($1, p, " "); split($2, q, " "); dx = p[1] - q[1]; dy = p[2] - q[2]
          sub(/^[0-9.]+ [0-9.]+ /, "", $1); sub(/^[0-9.]+ [0-9.]+ /, "", $2) }
        $1 != $2 || dx * dx + dy * dy > 0.05 { print; bad = 1 }
        END { exit bad }' || fail "tow plot draws other axes of events"
fi
expect_status 1 "text/below: cannot create the directory: Not a directory" "${small[@]}" --steps 2 --tensorboard text/below

# parameters are updated inside the backward pass, with and without a loop: the same
"$program" "${small[@]}" --steps 8 --early-update --log log --plan plan >out
"$program" "${small[@]}" --steps 8 --early-update --no-scan --policy nothing --log other --plan other_plan >out
[ "$(losses log)" = "$(losses other)" ] || fail "--early-update --no-scan: other losses"

# ---- reports, sampled text -------------------------------------------------------------------------------------------
"$program" --text text --layers 1 --width 8 --heads 1 --context 8 --batch 1 --steps 2 --sample 40 --residuals >out
grep -q 'blocks/{}/attn/query/kernel' out || fail "no table of parameters: $(cat out)"
grep -q "named 'attn_residual'" out || fail "no list of residuals: $(cat out)"
grep -q 'output of scan of gelu_grad (.*(blocks/{}/mlp)' out || fail "the list does not say what a loop stacks: $(cat out)"
grep -q '^and [0-9]* arguments, [0-9]* bytes: parameters and inputs' out || fail "arguments take more than a line: $(cat out)"
[ "$(sed '1,/^text from the model/d' out | wc -c)" -ge 41 ] || fail "no 40 characters of text: $(cat out)"

# ---- saves that fail for now, or for good ----------------------------------------------------------------------------
status=0
(
    trap '' XFSZ
    ulimit -f 4
    exec "$program" "${small[@]}" --steps 12 --save-every 5 --checkpoint full >out 2>err
) || status=$?
[ $status -eq 1 ] || fail "a disk that stays full: expected status 1, found $status: $(cat err)"
[ "$(grep -c 'full/checkpoint.safetensors: cannot write: File too large' err)" -eq 3 ] || fail "three saves fail: $(cat err)"
[ "$(grep -c 'nothing was saved after step .*; training goes on' err)" -eq 2 ] || fail "two saves are not the last: $(cat err)"
[ -z "$(ls -A full)" ] || fail "files were left by saves that failed: $(ls -A full)"

mkdir busy
exec 9>busy/checkpoint.safetensors.0123456789abcdef.tmp
flock 9
"$program" "${small[@]}" --steps 10000000 --save-every 5 --checkpoint busy --warmup 0 >out 2>err 9>&- &
pid=$!
for _ in $(seq 300); do
    if grep -q 'another process is writing this file.*try again later' err; then break; fi
    sleep 0.1
done
grep -q 'training goes on' err || fail "a file that another process writes: $(cat err)"
[ ! -e busy/checkpoint.safetensors ] || fail "saved beside another writer"
exec 9>&-
for _ in $(seq 300); do
    if [ -e busy/checkpoint.safetensors ]; then break; fi
    sleep 0.1
done
kill -INT $pid
status=0
wait $pid || status=$?
[ $status -eq 130 ] || fail "after saves that failed for now: expected status 130, found $status: $(tail -n 3 err)"
[ "$(ls -A busy)" = checkpoint.safetensors ] || fail "expected a checkpoint and nothing else, found $(ls -A busy)"
"$program" "${small[@]}" --steps 1 --warmup 0 --resume --checkpoint busy >out
grep -q 'going on after step' out || fail "the checkpoint after saves that failed: $(cat out)"

# start OPTION... FILE: in the background, as $pid; returns when the log FILE has a line
start() {
    "$program" "${small[@]}" --steps 10000000 --warmup 0 "$@" >out 2>err &
    pid=$!
    for _ in $(seq 300); do
        [ -s "${!#}" ] && break
        sleep 0.1
    done
}

# expect_stopped WHAT DIR: that it has saved to DIR and ended as after Ctrl-C
expect_stopped() {
    status=0
    wait $pid || status=$?
    [ $status -eq 130 ] || fail "$1: expected status 130, found $status: $(cat err)"
    grep -q "^stopped after step [1-9][0-9]*; saved to $2/checkpoint.safetensors" out || fail "$1: no message: $(tail -n 1 out)"
}

# ---- resuming continues the log; Ctrl-C saves ------------------------------------------------------------------------
"$program" "${small[@]}" --steps 20 --save-every 5 --checkpoint all --log all.log >out
start --save-every 0 --checkpoint some --log some.log
kill -INT $pid
expect_stopped Ctrl-C some
stopped=$(sed -n 's/^stopped after step \([0-9]*\);.*/\1/p' out)
tail -n 1 some.log | grep -q "^{\"step\": $stopped," || fail "Ctrl-C: the log ends with $(tail -n 1 some.log), not with step $stopped"
printf '{"step": %d, "loss": 1, "of a killed run' $((stopped + 1)) >>some.log
"$program" "${small[@]}" --steps $((stopped + 3)) --resume --checkpoint some --log some.log --warmup 0 >out
grep -q "going on after step $stopped" out || fail "resume: $(cat out)"
[ "$(wc -l <some.log)" -eq $((stopped + 3)) ] || fail "resume: expected $((stopped + 3)) lines of log, found $(wc -l <some.log)"
[ "$(grep -c "$line" some.log)" -eq $((stopped + 3)) ] || fail "resume: malformed log"
expect_status 1 "no such parameter" "${small[@]}" --layers 2 --steps 30 --resume --checkpoint all
expect_status 1 "description" "${small[@]}" --text "$here/test.sh" --steps 30 --resume --checkpoint all
expect_status 1 "seed 1" "${small[@]}" --seed 1 --steps 30 --resume --checkpoint all

# ---- several processes -----------------------------------------------------------------------------------------------
start --save-every 0 --checkpoint several --processes 2 --log several.log
kill -TERM $pid
expect_stopped "SIGTERM to several processes" several
start --processes 2 --watchdog 1 --log stopped.log
child=$({ cat /proc/[0-9]*/stat 2>&- || true; } | sed 's/(.*)/()/' | awk -v parent=$pid '$4 == parent { pid = $1 } END { print pid }')
kill -STOP "$child"
status=0
wait $pid || status=$?
[ $status -eq 1 ] || fail "a stopped process: expected status 1, found $status"
grep -q 'nothing has moved for 1 s' err || fail "a stopped process: $(cat err)"
printf 'gpt test: passed\n'
