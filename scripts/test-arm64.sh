#!/bin/sh
# Builds for arm64, compares its bits with those of a build for this processor, and runs its tests in qemu:
# scripts/test-arm64.sh [arguments of ctest]. Installs Debian's cross compiler, qemu and the libraries for arm64, for which it
# makes arm64 a foreign architecture of this system. TOW_TEST_TARGETS in the environment: what is built for arm64, if not all;
# TOW_TEST_UNITS: as for scripts/test.sh.
set -eu
cd "$(dirname "$0")/.."
. scripts/setup.sh

install_missing arm64
targets="gpt test_primitives random_models" # what same-bits.sh runs
build reference "-DTOW_WERROR=${TOW_WERROR:-OFF}"
targets=${TOW_TEST_TARGETS:-}
build arm64 "-DTOW_WERROR=${TOW_WERROR:-OFF}" "-DTOW_UNIT_TESTS=${TOW_TEST_UNITS:-}"
scripts/same-bits.sh reference arm64
exec ctest --preset arm64 -j "$(nproc)" --progress "$@" </dev/null
