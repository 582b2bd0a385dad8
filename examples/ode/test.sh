#!/usr/bin/env bash
# The fit against SciPy's (golden.txt), gradients and memory of each nesting of regions, and the command line.  test.sh path/to/ode
. "$(dirname "$0")/../common/testing.sh"
golden=$here/golden.txt

"$program" --steps 250 --learning-rate 0.2 --regions none --out a/b >out.text 2>err </dev/null || fail "$(cat err)"
grep -v "^step" out.text >found
sed -n "s/^step 1\/.* loss \([^ ]*\).*/first \1/p" out.text >>found # four digits
awk '{ number = $NF; sub(/ +[^ ]+$/, ""); gsub(/ +$/, "") }
     NR == FNR { expected[$0] = number; next }
     !($0 in expected) { print "unknown line: " $0; bad = 1; next }
     { seen++; limit = $0 == "loss" ? 4e-6 : $0 == "first" ? 6e-5 : 5e-3 * expected[$0]
       if ((number - expected[$0])^2 > limit^2) { print $0 ": expected " expected[$0] ", found " number; bad = 1 } }
     END { if (seen != 8) { print "expected 8 numbers, found " seen; bad = 1 }; exit bad }' "$golden" found || fail "the fit differs from SciPy's"
grep -q '</svg>' a/b/fit.svg || fail "no picture"

"$program" --compare >compared
[ "$(grep -c 'the same bits' compared)" = 4 ] || fail "gradients differ: $(cat compared)"
awk '$1 == "none" { none = $2 } $1 == "nested" { exit !($2 * 100 < none) }' compared || fail "nested regions save too little: $(cat compared)"
awk '$1 == "none" { none = $2 } $1 == "slots" { exit !($2 * 100 < none) }' compared || fail "schedules save too little: $(cat compared)"

# Ctrl-C stops after a step, and the fit so far is drawn
interrupt_at 'step 1/1000000' --steps 1000000 --out stopped
grep -q '^stopped after step [0-9]*$' out || fail "Ctrl-C: it does not say so: $(cat out)"
[ "$(ls stopped)" = fit.svg ] || fail "Ctrl-C: there are $(ls stopped)"

expect_status 2 "--steps" --steps -1
expect_status 2 "--learning-rate" --learning-rate nan
expect_status 2 "--regions" --regions some
expect_status 2 "unexpected argument" file
expect_status 2 "unrecognized option" --seed 1
expect_status 1 "ode: the loss of step 2 is not finite; use a smaller --learning-rate" --learning-rate 1e20 --out z
touch file
expect_status 1 "file" --steps 1 --out file
