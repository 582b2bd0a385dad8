#!/bin/sh
# compile.sh COMPILER LANGUAGE STANDARD INCLUDE PROGRAM: every public header alone, and a program that uses every macro,
# compile with strict warnings. Status 77: there is no such compiler, or it does not know the standard.
set -eu
compiler=$1 language=$2 standard=$3 include=$4 program=$5
check() { "$compiler" -x "$language" "-std=$standard" "$@" -fsyntax-only; }

command -v "$compiler" >/dev/null 2>&1 && check /dev/null 2>/dev/null || {
    echo "left out: there is no $compiler with -std=$standard"
    exit 77
}
failed=0
for header in "$include"/tow/*.h; do
    check -Wall -Wextra -Wshadow -Wpedantic -Wconversion -Werror "-I$include" -include "$header" /dev/null || failed=1
done
check -Wall -Wextra -Wshadow -Wpedantic -Wconversion -Werror "-I$include" "$program" || failed=1
exit $failed
