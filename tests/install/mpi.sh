#!/bin/sh
# mpi.sh SCRATCH CMAKE PREFIX TESTS: a program over MPI with what is installed: by find_package, by pkg-config, and with the
# library's source, compiled by mpicc. Further arguments of MPICC and MPIEXEC in the environment name another MPI. The program
# includes what tests share, from the folder above theirs.
set -eu
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"
scratch=$1 cmake=$2 prefix=$3 tests=$4
root=$(realpath "$tests/../..")
fresh_directory "$scratch"
mpicc=${MPICC:-mpicc}
needs pkg-config "$mpicc"
unset LD_LIBRARY_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name tow.pc)")
export PKG_CONFIG_PATH
run() { quietly sh "$tests/mpi.sh" "$scratch" "$scratch/$1" sums 2; }

mkdir source
cat >source/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(tow REQUIRED COMPONENTS mpi)
find_package(MPI REQUIRED COMPONENTS C)
add_executable(by_cmake $tests/test_mpi.c)
target_compile_definitions(by_cmake PRIVATE _GNU_SOURCE)
target_include_directories(by_cmake PRIVATE $root)
target_link_libraries(by_cmake PRIVATE tow::mpi MPI::MPI_C)
END
quietly "$cmake" -S source -B build "-DCMAKE_PREFIX_PATH=$prefix"
quietly "$cmake" --build build
ln -s build/by_cmake by_cmake
run by_cmake

path="-Wl,-rpath,$(pkg-config --variable=libdir tow)"
# shellcheck disable=SC2046
quietly "$mpicc" -I "$root" -o by_pkg_config "$tests/test_mpi.c" $(pkg-config --cflags --libs tow_mpi tow) "$path"
run by_pkg_config
readelf -d by_pkg_config | grep -q 'NEEDED.*libtow_mpi\.so\.0' || fail "the program does not use libtow_mpi"

# shellcheck disable=SC2046
quietly "$mpicc" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -I "$root" -o with_source "$tests/test_mpi.c" "$prefix/share/tow/src/tow_mpi.c" \
    $(pkg-config --cflags --libs tow) "$path"
run with_source
