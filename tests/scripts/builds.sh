#!/bin/sh
# builds.sh ROOT: scripts build what they run and no more, and say how far a build is where there is no terminal. cmake, ctest and
# programs are stand-ins.
set -u
unset TOW_WERROR TOW_TEST_TARGETS TOW_TEST_UNITS TOW_LAUNCHER # the scripts read them, and who runs the tests may have set them
root=$1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
failed=0
fail() { echo "$*"; failed=1; }
mkdir -p tools examples
cp -r "$root/scripts" "$root/CMakePresets.json" .
cp -r "$root/examples/ode" "$root/examples/digits" examples
cat >tools/cmake <<'END'
#!/bin/sh
echo "cmake $*" >>"$CALLS"
[ "$1" = --build ] || exit 0
echo "[0/2] Re-checking globbed directories..."
for i in $(seq 40); do echo "[$i/40] Building C object $i.c.o"; done
mkdir -p build/release/bin
printf '#!/bin/sh\necho "$0 $*" >>"$CALLS"\n' >build/release/bin/gpt
chmod +x build/release/bin/gpt
cp build/release/bin/gpt build/release/bin/ode
END
printf '#!/bin/sh\necho "ctest $*" >>"$CALLS"\nexit "${CTEST_STATUS:-0}"\n' >tools/ctest
printf '#!/bin/sh\necho "install ok installed all"\n' >tools/dpkg-query # everything is
chmod +x tools/*
PATH=$scratch/tools:$PATH CALLS=$scratch/calls
export PATH CALLS

# expect STATUS CALLS COMMAND...: exit status, and what was called
expect() {
    status=$1 calls=$2
    shift 2
    : >calls
    "$@" >out 2>err </dev/null
    found=$?
    [ "$found" = "$status" ] || fail "$*: expected status $status, found $found: $(cat err)"
    [ "$(cat calls)" = "$calls" ] || fail "$*: expected the calls '$calls', found '$(cat calls)'"
}
configured="cmake --preset release"
jobs=$(nproc)

expect 0 "" scripts/example.sh --help
expect 0 "" scripts/example.sh
[ ! -e build ] || fail "example.sh --help made build"
expect 1 "" scripts/example.sh nothing
expect 0 "$configured
cmake --build --preset release --target gpt
build/release/bin/gpt --steps 1" scripts/train.sh --steps 1
grep -c '^tow: built [0-9]* of 40$' err | grep -qx 10 || fail "expected ten lines of how far the build is, found: $(cat err)"
expect 0 "$configured
cmake --build --preset release --target ode
build/release/bin/ode --steps 1" scripts/example.sh ode --steps 1

configured="cmake --preset release -DTOW_WERROR=OFF -DTOW_UNIT_TESTS=
cmake --build --preset release"
expect 0 "$configured
ctest --preset release -j $jobs --progress -LE long" scripts/test.sh
grep -q "scripts/test.sh all release" err || fail "test.sh does not say how to run the rest: $(cat err)"
expect 0 "" scripts/test.sh --help
grep -q "scripts/test.sh all" out || fail "test.sh --help does not say how to run the rest: $(cat out)"
export CTEST_STATUS=8
expect 8 "$configured
ctest --preset release -j $jobs --progress -LE long" scripts/test.sh release
unset CTEST_STATUS
expect 0 "$configured
ctest --preset release -j $jobs --progress" scripts/test.sh all
expect 0 "$configured
ctest --preset release -j $jobs --progress -E x" scripts/test.sh all release -E x
expect 0 "$configured
ctest --preset release -j $jobs --progress -R graphs" scripts/test.sh -R graphs
export TOW_TEST_TARGETS="unit_tests gpt" TOW_TEST_UNITS="train|dtypes" TOW_LAUNCHER=ccache
configured="cmake --preset release -DCMAKE_C_COMPILER_LAUNCHER=ccache -DTOW_WERROR=OFF -DTOW_UNIT_TESTS=train|dtypes
cmake --build --preset release"
expect 0 "$configured --target unit_tests gpt
ctest --preset release -j $jobs --progress -R unit" scripts/test.sh all release -R unit
expect 1 "" scripts/test.sh all nothing
exit "$failed"
