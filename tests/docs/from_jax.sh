#!/bin/sh
# from_jax.sh COMPILER INCLUDE PAGE.md: every public function that takes or gives a traced value is named in the page.
set -u
declarations=$(echo '#include <tow/tow.h>' | "$1" -std=c11 -E -P -DTOW_NO_SOURCE_LINES -I "$2" -x c -) || exit 1
# One declaration on each line, without inline functions and types; the name stands before the first parenthesis.
functions=$(echo "$declarations" | tr '\n' ' ' | tr ';' '\n' | grep -v -e typedef -e '{' | grep 'tow_value[ *]' |
    grep -oE '\(?tow_[a-z0-9_]+\)? *\(' | tr -d '() ' | sort -u)
missing=0 count=0
for function in $functions; do
    case $function in
    tow_value | tow_at | tow_is_null | tow_value_trace) continue ;; # not operations
    esac
    count=$((count + 1))
    grep -qw "$function" "$3" && continue
    echo "$function: not in $3; add it to the row of its JAX counterpart, or a row that says there is none"
    missing=1
done
[ "$count" -gt 200 ] || { echo "found only $count functions in the headers: an empty test"; missing=1; }
exit $missing
