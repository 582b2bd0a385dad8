#!/bin/sh
# Builds and runs all tests: scripts/test.sh [preset] [arguments of ctest, for instance -R graphs or -LE long]
# Installs missing Debian packages. Default preset: release. TOW_WERROR=ON in the environment makes warnings errors.
set -eu
cd "$(dirname "$0")/.."
. scripts/setup.sh

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
build "$preset" "-DTOW_WERROR=${TOW_WERROR:-OFF}"
if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then
    # Where the addresses of a process are very random, the sanitizer of older compilers finds them where it cannot work.
    exec setarch -R ctest --preset tsan -j "$(nproc)" "$@" </dev/null
fi
exec ctest --preset "$preset" -j "$(nproc)" "$@" </dev/null
