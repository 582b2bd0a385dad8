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
export TOW_CI_SECONDS=1500
failed=0

# stand_ins STATUS BAD [PRESET]: scripts whose ctest counts 8 tests, and with clang as many failures as BAD says. Packages of
# PRESET cannot be installed. The release preset takes $slow seconds.
stand_ins() {
    cat >scripts/test.sh <<END
#!/bin/sh
bad=0
[ "\$1" != clang ] || bad=$2
[ "\$1" != tsan ] || exit $1
[ "\$1" != release ] || sleep ${slow:-0.1}
echo "99% tests passed, \$bad tests failed out of 8"
echo "Total Test time (real) =   0.02 sec"
exit \$bad
END
    printf '#!/bin/sh\nexit %s\n' "$1" >scripts/same-bits.sh
    cp scripts/same-bits.sh scripts/fuzz.sh
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
expect 0 "$((presets * 8 + 3)) passed, 0 failed" '^release  *[0-9][0-9]*  *[0-9][0-9]*   8 passed, 0 failed$' \
    '^bits  *[0-9][0-9]*   1 passed, 0 failed$' '^avx2 ' '^all  *[0-9][0-9]* *$'
stand_ins 1 3
expect 1 "$((presets * 8 - 3)) passed, 6 failed" '^clang .* 5 passed, 3 failed$' '^tsan .* 0 passed, 1 failed$'
stand_ins 0 0 clang
expect 0 "$((presets * 8 - 8 + 2)) passed, 0 failed" '^clang  *-  *-   left out, its packages cannot be installed$'
TOW_CI_SECONDS=0
expect 1 '0 passed, 0 failed' '^sanitize .* left out, it would take until after 0 seconds$'
# A slow machine: what is short is run, what would take too long is not begun, and neither is a failure.
slow=6 TOW_CI_SECONDS=16
stand_ins 0 0
expect 0 "$((presets * 8 - 8 + 3)) passed, 0 failed" '^sanitize .* left out, it would' '^bits .* 1 passed'
# What hangs is stopped.
slow=30 TOW_CI_SECONDS=1
stand_ins 0 0
expect 1 '0 passed, 1 failed' '^release .* 0 passed, 1 failed$' '^clang .* left out'
exit "$failed"
