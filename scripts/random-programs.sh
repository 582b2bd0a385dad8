#!/bin/sh
# Checks random programs for what Tow promises: scripts/random-programs.sh N [FIRST_SEED] [PRESET]
# tests/programs/main.c says what is checked. Prints a line for every 100 programs and a last line with the totals; programs
# that fail are shrunk and written as build/<preset>/random-programs/program_SEED.tow. Default: from seed 100000 on, which are
# not those of the tests; preset release. Exit status 1 if any fails.
set -eu
cd "$(dirname "$0")/.."
. scripts/setup.sh

[ $# -ge 1 ] || die "expected a number of programs: scripts/random-programs.sh N [FIRST_SEED] [PRESET]"
count=$1 first=${2:-100000} preset=${3:-release}
is_preset "$preset" || die "unknown preset '$preset': expected one of" $(presets)
install_missing "$preset"
build "$preset"
mkdir -p "build/$preset/random-programs"
TOW_CHECK=1 exec "build/$preset/tests/random_programs" --count "$count" --first "$first" --most 20 --progress \
    --output "build/$preset/random-programs/program"
