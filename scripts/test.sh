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
            is_preset "$1" || die "unknown preset '$1': expected release, debug, sanitize, reference or avx2"
            preset=$1
            shift
            ;;
    esac
fi
install_missing
build "$preset" "-DTOW_WERROR=${TOW_WERROR:-OFF}"
exec ctest --preset "$preset" -j "$(nproc)" "$@" </dev/null
