#!/usr/bin/env bash
# Epsilons against another accountant's (golden.txt), a short run, and the command line.  test.sh path/to/dpsgd
. "$(dirname "$0")/../common/testing.sh"
golden=$here/golden.txt

while read -r batch images noise steps delta epsilon; do
    "$program" --budget --batch "$batch" --noise "$noise" --steps "$steps" --delta "$delta" >budget
    awk -v images="$images" -v batch="$batch" -v epsilon="$epsilon" '
        NR == 1 { if (($NF - batch / images)^2 > 1e-12) { print "rate " $NF; exit 1 } }
        NR == 2 { found = $2; if ((found - epsilon)^2 > (6e-5)^2) { print "expected " epsilon ", found " found; exit 1 } }
        END { if (NR != 2) exit 1 }' budget || fail "batch $batch, noise $noise, $steps steps: $(cat budget)"
done <"$golden"

# noise hides an image and not what all have in common: 9 of 10 held-out digits are read
"$program" --threads 1 --out a/b >log 2>err </dev/null || fail "$(cat err)"
awk '/read after 150 steps, at epsilon 3.6681/ { seen = $1 > 0.9 } END { exit !seen }' log || fail "150 steps: $(cat log)"
grep -q '</svg>' a/b/dpsgd.svg || fail "no picture"

expect_status 2 "--noise" --noise 0
expect_status 2 "--delta" --delta 1
expect_status 2 "--batch of at most" --batch 100000
expect_status 1 "absent" --steps 1 --out z --log absent/log
