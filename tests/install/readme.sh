#!/bin/sh
# readme.sh SCRATCH PREFIX CPP-PROGRAM C-PROGRAM PAGE...: the lines of README.md and docs/install.md for a program against an
# installed Tow, as they are typed, in a home directory in which Tow is installed.
set -eu
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"
scratch=$1 prefix=$2 cpp=$3 program=$4
shift 4
fresh_directory "$scratch"
needs cc c++ pkg-config
unset LD_LIBRARY_PATH PKG_CONFIG_PATH
mkdir home
export HOME=$PWD/home
cp -a "$prefix" home/.local
cp "$program" first.c
mkdir examples
cp "$cpp" examples
sed -n 's/^    \(export PKG_CONFIG_PATH=.*\|cc .*\|c++ .*\)$/\1/p' "$@" | sort -u >lines
[ "$(grep -c '^cc ' lines)" -ge 2 ] && grep -q '^c++ ' lines && [ "$(grep -c '^export' lines)" = 1 ] ||
    { cat lines; fail "the pages have no such lines"; }
for page; do
    grep -q '^    export' "$page" && grep -q '^    cc ' "$page" || fail "$page has no such lines"
done
# Each line by itself, after the export: each ends by running the program.
export_line=$(grep '^export' lines)
grep -v '^export' lines >commands
while read -r line; do
    sh -ec "$export_line; $line" >out 2>&1 </dev/null || { cat out; fail "failed: $line"; }
    grep -q '^step 500  loss 0\.00' out || { cat out; fail "learned nothing: $line"; }
    # a context that could not be made says why
    if TOW_ENGINE=foo sh -ec "$export_line; $line" >out 2>&1 </dev/null; then fail "TOW_ENGINE=foo is accepted: $line"; fi
    grep -q 'TOW_ENGINE: expected .* found "foo"' out || { cat out; fail "no reason is told: $line"; }
done <commands
