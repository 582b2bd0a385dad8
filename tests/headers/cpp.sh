#!/bin/sh
# cpp.sh COMPILER STANDARD INCLUDE PROGRAM SCRATCH [LIBRARY]: tow/tow.hpp and a program that uses it compile with strict warnings, and
# with the shared LIBRARY the program runs. Status 77: there is no such compiler, or it does not know the standard.
set -eu
compiler=$1 standard=$2 include=$3 program=$4 scratch=$5 library=${6:-}
strict="-Wall -Wextra -Wshadow -Wpedantic -Wconversion -Werror"
command -v "$compiler" >/dev/null 2>&1 && "$compiler" -x c++ "-std=$standard" -fsyntax-only /dev/null 2>/dev/null || {
    echo "left out: there is no $compiler with -std=$standard"
    exit 77
}
mkdir -p "$scratch"
# shellcheck disable=SC2086
if [ -z "$library" ]; then
    "$compiler" "-std=$standard" $strict "-I$include" -fsyntax-only "$program"
else
    "$compiler" "-std=$standard" $strict "-I$include" "$program" -o "$scratch/program" "$library" "-Wl,-rpath,$(dirname "$library")"
    "$scratch/program"
fi
