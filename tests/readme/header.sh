#!/bin/sh
# header.sh README TOW_H PROGRAM: the program in the comment with which tow.h begins is that of README.md, which is in PROGRAM.
set -eu
awk '
    /\*\/$/ { exit }
    /^ \*     #include <math.h>$/ { on = 1 }
    on && /^ \*$/ { print ""; next }
    on && !/^ \*     / { exit }
    on { print substr($0, 8) }
    on && /^ \*     }$/ && main { exit }
    /int main/ { main = 1 }' "$2" | diff "$3" - || { echo "the program of $2 (right) is not that of $1 (left)"; exit 1; }
