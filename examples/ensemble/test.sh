#!/usr/bin/env bash
# test.sh ENSEMBLE: the mean of the members is calibrated better than they are, they disagree about what they did not learn, and the
# page has the figures of a run.
. "$(dirname "$0")/../common/testing.sh"
page=$(realpath "$here/../../docs/examples/ensemble.md")

# row SET NAME FILE: the numbers behind a name, in the table of a set of digits ("held out", "with noise"), or in the last one ("").
row() {
    awk -v set="$1" -v name="$2" '
        /images +disagreement/ { table = ""; next }
        /^ *[0-9]+ digits, / { sub(/^ *[0-9]+ digits, /, ""); table = $0; next }
        { line = $0; sub(/^ */, "", line) }
        table == set && index(line, name " ") == 1 { print substr(line, length(name) + 1); exit }' "$3" |
        tr -d % | xargs
}
# holds CONDITION NUMBERS...: an awk condition of a[1], a[2], ...
holds() {
    local condition=$1
    shift
    awk -v numbers="$*" "BEGIN { n = split(numbers, a, \" \"); exit !(n > 0 && ($condition)) }"
}

"$program" --out a/b --log log >out 2>err || fail "$(cat out err)"
[ "$(wc -l <log)" -eq 1000 ] || fail "expected 1000 lines of log, found $(wc -l <log)"
alone=$(row 'held out' 'a member' out)
together=$(row 'held out' 'all together' out)
holds 'a[4] >= 95 && a[4] > a[1] - 1 && a[5] < a[2]' $alone $together || fail "held-out digits: $alone, together $together"
alone=$(row 'with noise' 'a member' out)
together=$(row 'with noise' 'all together' out)
holds 'a[4] > a[1] && a[5] < 0.9 * a[2] && a[6] < 0.85 * a[3]' $alone $together ||
    fail "all together are no better than a member: accuracy, -log p, calibration of digits with noise $alone, together $together"
for kind in 'with noise:70' 'upside down:70' 'never seen:90'; do
    known=$(row '' 'held out' out)
    found=$(row '' "${kind%:*}" out)
    holds "a[4] > 5 * a[2] && a[5] >= ${kind#*:}" $known $found || fail "${kind%:*}: $found, held-out ones: $known"
done

# the page: other processors round otherwise, which 1,000 steps make more of
compare() { # compare CONDITION SET NAME: a[1..3] of the page, a[4..6] found
    holds "n == 6 && $1" $(row "$2" "$3" "$page") $(row "$2" "$3" out) ||
        fail "$2, $3: the page has $(row "$2" "$3" "$page"), found $(row "$2" "$3" out)"
}
for set in 'held out' 'with noise'; do
    for who in 'a member' 'all together'; do
        compare '(a[1] - a[4]) ^ 2 < 9 && (a[2] - a[5]) ^ 2 < 0.01 && (a[3] - a[6]) ^ 2 < 0.001' "$set" "$who"
    done
done
for kind in 'with noise' 'upside down' 'never seen'; do
    compare 'a[1] == a[4] && (a[2] - a[5]) ^ 2 < 0.001 && (a[3] - a[6]) ^ 2 < 64' '' "$kind"
done

for file in votes.png calibration.svg disagreement.svg ensemble.safetensors; do [ -s a/b/$file ] || fail "no $file"; done
[ "$(head -c 8 a/b/votes.png | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || fail "votes.png is no PNG"
grep -q '</svg>' a/b/calibration.svg || fail "calibration.svg has no end"

# a pure function of its options, whatever the threads
"$program" --steps 100 --out one >out2
"$program" --steps 100 --out again --threads 1 >out3
for file in votes.png calibration.svg ensemble.safetensors; do cmp one/$file again/$file || fail "two runs differ"; done
"$program" --steps 100 --out other --seed 1 >out4
if cmp -s one/ensemble.safetensors other/ensemble.safetensors; then fail "another seed gives the same weights"; fi

# one member is all of them, and agrees with itself; no digit is left out
"$program" --steps 100 --members 1 --width 16 --unseen -1 --out single >out || fail "one member: $(cat out)"
[ "$(row 'held out' 'member 0' out)" = "$(row 'held out' 'all together' out)" ] || fail "one member differs from itself: $(cat out)"
holds 'a[1] == 359 && a[2] == 0 && a[3] == 50' $(row '' 'upside down' out) || fail "one member disagrees: $(cat out)"
if grep -q 'never seen' out; then fail "--unseen -1: $(cat out)"; fi

# Ctrl-C stops after a step, and what there is is whole
interrupt_at 'step 20/1000000' --steps 1000000 --out stopped
[ "$(ls stopped | tr '\n' ' ')" = 'calibration.svg disagreement.svg ensemble.safetensors votes.png ' ] ||
    fail "Ctrl-C: there are $(ls stopped)"
grep -q '^all together' out || fail "Ctrl-C: no table: $(tail out)"

expect_status 2 "--members: expected a whole number from 1 to 256, found '0'" --members 0
expect_status 2 "--width: expected a whole number from 1 to 4096, found 'x'" --width x
expect_status 2 "--unseen: expected a whole number from -1 to 9, found '10'" --unseen 10
expect_status 2 "unexpected argument 'file'" file
expect_status 2 "--out: expected a path, found ''" --out ''
expect_status 1 'is not finite; use a smaller --learning-rate' --learning-rate 1e20 --out z
[ -z "$(ls z)" ] || fail "after a loss that is not finite there are $(ls z)"
expect_status 1 'what the members say is not finite' --steps 1 --learning-rate 1e38 --out z
touch plain
expect_status 1 'plain: cannot write there: Not a directory' --out plain
expect_status 1 'cannot write the log' --out z --log absent/log
printf 'ensemble test: passed\n'
