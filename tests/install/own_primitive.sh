#!/bin/sh
# own_primitive.sh SCRATCH CMAKE PREFIX EXAMPLE: the example project with primitives of its own, built against the installed
# library and run.
set -eu
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"
scratch=$1 cmake=$2 prefix=$3 example=$4
fresh_directory "$scratch"
needs ninja gcc
unset LD_LIBRARY_PATH
quietly env -u CMAKE_BUILD_TYPE "$cmake" -G Ninja -S "$example" -B build "-DCMAKE_PREFIX_PATH=$prefix" -DCMAKE_C_COMPILER=gcc
quietly "$cmake" --build build
build/own_primitive | grep -q 'value and gradients are right' || fail "the example computes something else: $(build/own_primitive)"
