#!/bin/sh
# pkg_config.sh SCRATCH PREFIX LANGUAGE COMPILER: a user's program by pkg-config's word alone, with strict warnings: with
# the shared library, with the archive, and wholly static.
set -eu
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"
scratch=$1 prefix=$2 language=$3 compiler=$4
fresh_directory "$scratch"
needs pkg-config "$compiler"
unset LD_LIBRARY_PATH
case $language in
    c) set -- -std=c11 "$here/user/program.c" ;;
    c++) set -- -std=c++17 "$here/user/program.cpp" ;;
esac
strict="-Wall -Wextra -Wpedantic -Wconversion -Werror"
pc=$(find "$prefix" -name tow.pc)

# The shared library needs no other package. (-lm: the program's own.)
flags=$(PKG_CONFIG_LIBDIR=$(dirname "$pc") PKG_CONFIG_PATH= pkg-config --cflags --libs tow) ||
    fail "pkg-config --libs wants packages that only the archive needs"
case $flags in *jansson* | *blis*) fail "the shared library is linked with: $flags" ;; esac
export PKG_CONFIG_PATH="$(dirname "$pc")"
# shellcheck disable=SC2086
quietly "$compiler" $strict "$@" -o shared $flags "-Wl,-rpath,$(pkg-config --variable=libdir tow)" -lm
quietly ./shared
readelf -d shared | grep -q 'NEEDED.*libtow\.so\.0' || fail "the program does not use the shared library"

# shellcheck disable=SC2046,SC2086
quietly "$compiler" $strict "$@" -o archive $(pkg-config --cflags tow) -Wl,--as-needed -l:libtow.a $(pkg-config --static --libs tow)
quietly ./archive
if readelf -d archive | grep -q 'NEEDED.*libtow'; then fail "the program with the archive uses the shared library"; fi

# The linker warns about functions of glibc that would load libraries; that is no error.
# shellcheck disable=SC2046,SC2086
quietly "$compiler" $strict "$@" -static -o static $(pkg-config --static --cflags --libs tow)
quietly ./static
