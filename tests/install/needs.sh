#!/bin/sh
# needs.sh SCRATCH CMAKE SOURCE COMPILER: packages are asked for only by what needs them. Without cmocka Tow configures if no
# tests are wanted, and says what is missing if they are; without jansson it says that.
set -eu
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"
scratch=$1 cmake=$2 source=$3 compiler=$4
fresh_directory "$scratch"
needs pkg-config
mkdir packages
for package in jansson libmd libxxhash zlib; do
    file=$(pkg-config --variable=pcfiledir "$package" 2>/dev/null)/$package.pc
    if [ -e "$file" ]; then cp "$file" packages; fi
done
export PKG_CONFIG_LIBDIR=$PWD/packages PKG_CONFIG_PATH=
configure() {
    "$cmake" -S "$source" -B build "-DCMAKE_C_COMPILER=$compiler" -DTOW_BLIS=OFF -DTOW_LIBXSMM=OFF "$@" >log 2>&1
}
configure -DTOW_TESTS=OFF -DTOW_EXAMPLES=OFF || { cat log; fail "cannot do without cmocka"; }
if configure -DTOW_TESTS=ON; then fail "the tests do without cmocka"; fi
grep -q cmocka log || { cat log; fail "says nothing of cmocka"; }
rm packages/jansson.pc
rm -r build
if configure -DTOW_TESTS=OFF -DTOW_EXAMPLES=OFF; then fail "the command tow does without jansson"; fi
grep -q jansson log || { cat log; fail "says nothing of jansson"; }
configure -DTOW_TESTS=OFF -DTOW_EXAMPLES=OFF -DTOW_TOOL=OFF || { cat log; fail "the library cannot do without jansson"; }
