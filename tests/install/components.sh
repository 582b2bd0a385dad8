#!/bin/sh
# components.sh SCRATCH CMAKE PREFIX COMPILER BLIS LIBXSMM MPI: which components find_package(tow) finds, and what it says of
# those that it does not find. BLIS, LIBXSMM and MPI (ON or OFF): what this Tow was built with.
set -eu
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"
scratch=$1 cmake=$2 prefix=$3 compiler=$4 blis=$5 libxsmm=$6 mpi=$7
fresh_directory "$scratch"
mkdir source
cat >source/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(components LANGUAGES C)
find_package(tow ${WANTED} CONFIG COMPONENTS ${COMPONENTS})
message(STATUS "found: ${tow_FOUND} ${tow_VERSION}")
foreach(target tow tow_static mpi)
  if(TARGET tow::${target})
    message(STATUS "target: tow::${target}.")
  endif()
endforeach()
END
# The first call finds the compiler, further ones use its cache.
find_tow() { # find_tow WANTED COMPONENTS [arguments]
    wanted=$1 components=$2
    shift 2
    "$cmake" -S source -B build "-DCMAKE_C_COMPILER=$compiler" "-DCMAKE_PREFIX_PATH=$prefix" "-DWANTED=$wanted" \
        "-DCOMPONENTS=$components" "$@" >log 2>&1
}
says() { grep -qF -- "$1" log || { cat log; fail "expected '$1'"; }; }

find_tow 0.1 "shared;static" || { cat log; fail "shared and static are not found"; }
says "found: 1 0.1."
says "target: tow::tow."
says "target: tow::tow_static."
for pair in "blis $blis" "libxsmm $libxsmm"; do
    component=${pair% *}
    if [ "${pair#* }" = ON ]; then
        find_tow 0.1 "$component" || { cat log; fail "$component is not found"; }
        says "found: 1"
    else
        find_tow 0.1 "$component" || true
        says "found: 0"
        says "built without $component"
    fi
done
if [ "$mpi" = ON ]; then
    find_tow 0.1 mpi || { cat log; fail "mpi is not found"; }
    says "target: tow::mpi."
else
    find_tow 0.1 mpi || true
    says "found: 0"
    says "libtow_mpi is not installed with this Tow"
fi
find_tow 0.1 vmap || true
says "found: 0"
says "no component 'vmap'"
find_tow 99 shared || true
says "found: 0"

# Without the packages that the archive is linked with, the shared library is still found.
rm -r build
find_tow 0.1 shared "-DPKG_CONFIG_EXECUTABLE=/bin/false" || { cat log; fail "the shared library needs pkg-config"; }
says "found: 1"
says "target: tow::tow."
if grep -q 'target: tow::tow_static' log; then fail "an archive without what it is linked with"; fi
find_tow 0.1 static "-DPKG_CONFIG_EXECUTABLE=/bin/false" || true
says "found: 0"
says "the archive of Tow needs what is not found: libmd"
