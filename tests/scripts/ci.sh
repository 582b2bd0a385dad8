#!/bin/sh
# ci.sh ROOT: .ci/run adds up what presets and scripts give, says how long each took, and fails where one fails. The presets
# are stand-ins that print what ctest prints.
set -u
root=$1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
mkdir .ci scripts
cp "$root/.ci/run" .ci/run
export TOW_CI_UNIT=1 # what the first preset is said to take, in seconds
failed=0

# stand_ins STATUS BAD [PRESET]: scripts whose ctest counts 8 tests, and with clang as many failures as BAD says. Packages of
# PRESET cannot be installed. Their arguments go to the file arguments; the release preset takes $slow seconds.
stand_ins() {
    rm -f arguments
    cat >scripts/test.sh <<END
#!/bin/sh
echo "\$*" >>"$scratch/arguments"
[ "\$1" != all ] || shift
bad=0
[ "\$1" != clang ] || bad=$2
[ "\$1" != tsan ] || [ "$1" = 0 ] || { echo "cannot find -lfoo"; exit $1; }
[ "\$1" != release ] || sleep ${slow:-0}
echo " 7/8 Test  #1: unit/one ...   Passed    0.03 sec"
[ \$bad = 0 ] || echo " 8/8 Test  #2: unit/two ...***Failed    0.03 sec"
[ \$bad = 0 ] || echo "expected 1, found 2"
echo "99% tests passed, \$bad tests failed out of 8"
echo "Total Test time (real) =   0.02 sec"
exit \$bad
END
    printf '#!/bin/sh\nexit %s\n' "$1" >scripts/same-bits.sh
    printf '#!/bin/sh\necho "fuzz $*" >>"%s/arguments"\nexit %s\n' "$scratch" "$1" >scripts/fuzz.sh
    cp scripts/test.sh scripts/test-arm64.sh
    printf 'install_missing() { [ "$1" != "%s" ]; }\n' "${3:-none}" >scripts/setup.sh
    chmod +x scripts/*
}

# expect STATUS "LAST LINE" PATTERN...: exit status, last line and lines before it
expect() {
    status=$1 last=$2
    shift 2
    sh .ci/run >out 2>&1
    found=$?
    [ "$found" = "$status" ] && [ "$(tail -n 1 out)" = "$last" ] ||
        { echo "expected status $status and '$last', found $found and:"; cat out; failed=1; }
    for pattern; do
        tail -n 13 out | grep -q -- "$pattern" || { echo "expected a line '$pattern' in:"; cat out; failed=1; }
    done
}

presets=5 # of 8 tests each: release, sanitize, clang, reference, arm64; tsan, bits and fuzz count as one each
! grep -qw avx512f /proc/cpuinfo || presets=6
stand_ins 0 0
expect 0 "$(((presets + 1) * 8 + 2)) passed, 0 failed" '^release  *all  *[0-9][0-9]*  *[0-9][0-9]*   8 passed, 0 failed$' \
    '^bits  *all  *[0-9][0-9]*   1 passed, 0 failed$' '^arm64 ' '^reference ' '^total  *[0-9][0-9]* *$'
grep -q '^fuzz 30$' arguments || { echo "expected 30 seconds of fuzzing in:"; cat arguments; failed=1; }
# What failed prints its reason once more, just before the table.
stand_ins 1 3
expect 1 "$((presets * 8 - 3)) passed, 6 failed" '^clang .* 5 passed, 3 failed$' '^tsan .* 0 passed, 1 failed$'
sed '1,/^== clang: what failed$/d' out | head -n 2 | tail -n 1 | grep -qx 'expected 1, found 2' ||
    { echo "expected the output of unit/two in:"; cat out; failed=1; }
[ "$(sed '1,/^== tsan: what failed$/d' out | head -n 1)" = "cannot find -lfoo" ] ||
    { echo "expected the end of the log of tsan in:"; cat out; failed=1; }
stand_ins 0 0 clang
expect 0 "$((presets * 8 + 1)) passed, 0 failed" '^clang  *-  *-  *-   left out, its packages cannot be installed$'
# A slow machine runs every preset, those with few tests for which the time would not be enough.
export TOW_CI_UNIT=600
stand_ins 0 0
expect 0 "$(((presets + 1) * 8 + 2)) passed, 0 failed" '^sanitize  *all ' '^clang ' '^bits ' '^fuzz ' '^tsan ' '^reference ' '^arm64 '
export TOW_CI_UNIT=2000
stand_ins 0 0
expect 0 "$(((presets + 1) * 8 + 2)) passed, 0 failed" '^sanitize  *few ' '^clang  *few ' '^fuzz  *few '
grep -q '^fuzz 5$' arguments && grep -q '^all sanitize -LE long .* -R ^(unit' arguments ||
    { echo "expected fewer tests in:"; cat arguments; failed=1; }
# What hangs is stopped and fails; when the time is over, the table says what was left out.
export TOW_CI_UNIT=0 TOW_CI_MOST_SECONDS=1
slow=30
stand_ins 0 0
expect 1 "0 passed, 1 failed" '^release .* 0 passed, 1 failed: stopped after 1 seconds$' \
    '^arm64 .* left out, 1 seconds are over$'
exit "$failed"
