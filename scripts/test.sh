#!/bin/sh
# Builds and runs tests. Installs missing Debian packages. Default preset: release.
#   scripts/test.sh [preset]                        what every day needs: all but long tests (label "long")
#   scripts/test.sh all [preset] [ctest arguments]  every test, or those that the arguments leave of them
#   scripts/test.sh [preset] ARGUMENTS              the same without the word "all", for instance -R graphs
# TOW_WERROR=ON in the environment makes warnings errors; TOW_TEST_TARGETS="unit_tests gpt" builds these targets alone,
# and TOW_TEST_UNITS="train|dtypes" of the unit tests those whose names match this regular expression.
set -eu
cd "$(dirname "$0")/.."
. scripts/setup.sh

case ${1:-} in
    -h | --help)
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
        exit
        ;;
esac
everything=""
if [ "${1:-}" = all ]; then
    everything=yes
    shift
fi
preset=release
if [ $# -gt 0 ]; then
    case $1 in
        -*) ;;
        *)
            is_preset "$1" || die "unknown preset '$1': expected one of" $(presets)
            preset=$1
            shift
            ;;
    esac
fi
install_missing "$preset"
[ -z "$everything" ] || [ "$preset" != release ] || install_missing long
# Without MPI its tests are left out.
[ "$preset" != release ] || command -v mpicc >/dev/null 2>&1 || (install_missing mpi) || say "tests over MPI are left out"
targets=${TOW_TEST_TARGETS:-}
build "$preset" "-DTOW_WERROR=${TOW_WERROR:-OFF}" "-DTOW_UNIT_TESTS=${TOW_TEST_UNITS:-}"

rest=""
if [ -z "$everything" ] && [ $# -eq 0 ]; then
    rest=yes
    set -- -LE long
fi
set -- ctest --preset "$preset" -j "$(nproc)" --progress "$@"
if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then
    # Where the addresses of a process are very random, the sanitizer of older compilers finds them where it cannot work.
    set -- setarch -R "$@"
fi
status=0
"$@" </dev/null || status=$?
[ -z "$rest" ] || say "these were the tests of every day; 'scripts/test.sh all $preset' runs the long ones, too"
exit "$status"
