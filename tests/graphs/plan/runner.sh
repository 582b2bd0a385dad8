#!/bin/sh
# runner.sh TOW: run.sh finds each kind of wrong expectation, and every_pass.sh a pass without programs.
set -u
tow=$1
folder=$(cd "$(dirname "$0")" && pwd) || exit 1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
failed=0

# expect STATUS MESSAGE LINE...: run.sh ends so on a program with these lines at its head.
expect() {
    status=$1
    message=$2
    shift 2
    {
        printf '# %s\n' "$@"
        cat <<'END'
{ lambda ; x:f32[8]"x" y:f32[8]"y". let
    a:f32[8] = mul x y
    b:f32[8] = tanh a
  in (b) }
END
    } >"$scratch/program.tow"
    sh "$folder/run.sh" "$tow" "$scratch/program.tow" >"$scratch/out" 2>&1
    found=$?
    if [ "$found" -ne "$status" ] || { [ -n "$message" ] && ! grep -qF -- "$message" "$scratch/out"; }; then
        echo "expected status $status and '$message', found $found and:"
        cat "$scratch/out"
        echo "for:"
        cat "$scratch/program.tow"
        failed=1
    fi
}

fuse='pass: fuse'
one='options: --threads 1'
expect 0 '' "$fuse" "$one" 'before: = mul(' 'before: = tanh(' 'before-not: fused(' 'after-not: = mul(' 'after: = fused(mul, tanh)(' \
    'after-not: = tanh(' 'without: = tanh(' 'plan: = fused( ... #1 f32[8] input 1)'
expect 1 'before: "= sin(" is not behind line 0' "$fuse" "$one" 'before: = sin(' 'after: fused('
expect 1 'before: "= mul(" is not behind line 3' "$fuse" "$one" 'before: = tanh(' 'before: = mul(' 'after: fused('
expect 1 'before-not: "= mul(" is in line 2' "$fuse" "$one" 'before-not: = mul(' 'before: = tanh(' 'after: fused('
expect 1 'before-not: "= tanh(" is in line 3' "$fuse" "$one" 'before: = mul(' 'before-not: = tanh(' 'after: fused('
expect 1 'after: "= tanh(" is not behind' "$fuse" "$one" 'after: = tanh('
expect 1 'after-not: "fused(" is in line' "$fuse" "$one" 'after-not: fused('
expect 1 'after: "tanh) ... fused(" is not behind' "$fuse" "$one" 'after: tanh) ... fused('
expect 1 'without: "fused(" is not behind' "$fuse" "$one" 'after: fused(' 'without: fused('
expect 1 'plan: "= tanh(" is not behind' "$fuse" "$one" 'plan: = tanh('
expect 1 "no line '# after: TEXT'" "$fuse" "$one" 'before: = mul('
expect 1 "found 'fuze'" 'pass: fuze' "$one" 'after: = mul('
expect 1 'failed' "$fuse" 'options: --threads none' 'after: fused('

mkdir "$scratch/empty" "$scratch/one"
printf '# pass: fuse\n' >"$scratch/one/one.tow"
for where in empty one; do
    if sh "$folder/every_pass.sh" "$tow" "$scratch/$where" >"$scratch/out"; then
        echo "every_pass.sh is content with folder '$where'"
        failed=1
    fi
done
grep -q '^fuse has 1 programs' "$scratch/out" || { echo "every_pass.sh does not say what is missing:"; cat "$scratch/out"; failed=1; }
exit "$failed"
