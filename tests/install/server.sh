#!/bin/sh
# server.sh SCRATCH PAGE PREFIX PROGRAM: the line of docs/server.md that links the page's program without the shared library,
# as it is typed. The program prints what the page says, and asks for no libtow.so.
set -eu
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"
scratch=$1 page=$2 prefix=$3 program=$4
fresh_directory "$scratch"
needs cc pkg-config
unset LD_LIBRARY_PATH
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
cp "$program" server.c
line=$(sed -n 's/^    \(cc .*\)$/\1/p' "$page")
[ -n "$line" ] || fail "$page has no such line"
sh -ec "$line" >out 2>&1 || { cat out; fail "failed: $line"; }
sed -n '/^\$ program$/,/^```/p' "$page" | sed '1d;$d' >expected
[ -s expected ] || fail "$page shows no output"
./server >found 2>&1
diff expected found || fail "the program prints something else"
if ldd server | grep libtow; then fail "the program needs the shared library"; fi
