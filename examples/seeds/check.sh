#!/bin/sh
# Runs a program and compares what it prints with a golden file: check.sh GOLDEN TOLERANCE PROGRAM [arguments]
# Of what the program prints, lists of residuals lose their source lines, bytes and totals, and times, memory and printed
# graphs are left out. Numbers may differ by TOLERANCE, relative to the larger of 1 and the expected number.
set -eu
golden=$1
tolerance=$2
shift 2
output=$(mktemp)
trap 'rm -f "$output" "$output.lines"' EXIT
"$@" >"$output"

sed -e 's/ from [^ ]*:[0-9].*$//' -e 's/  [0-9]* bytes$//' "$output" | awk '
    /forward and backward$/ { graph = 1; next }          # until the next title
    /^#/ { graph = 0 }
    graph || /^$/ || /^[0-9]+ residuals,/ || / Time: / || / Memory: / { next }
    { print }' >"$output.lines"

awk -v tolerance="$tolerance" -v golden="$golden" '
    function number(text) { return text ~ /^[-+]?[0-9.]+(e[-+]?[0-9]+)?$/ }
    function differ(what) { printf "%s:%d: expected \"%s\", found \"%s\"%s\n", golden, FNR, $0, found, what; failed = 1; exit 1 }
    {
        if ((getline found < output) <= 0) { found = "the end"; differ("") }
        n = split(found, words, " ")
        if (n != NF) differ("")
        for (i = 1; i <= n; i++) {
            if (number($i) && number(words[i])) {
                size = $i < 0 ? -$i : $i
                difference = words[i] - $i
                if (difference < 0) difference = -difference
                if (difference > tolerance * (size > 1 ? size : 1)) differ(": off by " difference)
            } else if ($i != words[i]) differ("")
        }
    }
    END { if (!failed && (getline found < output) > 0) { print golden ": more was printed: " found; exit 1 } else exit failed }
' output="$output.lines" "$golden"
