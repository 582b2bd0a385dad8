#!/bin/sh
# run.sh TOW FILE.tow: runs the commands that the comments of FILE.tow name and compares what they print with the files
# beside it. See README.md in this folder.
set -u
tow=$1
cd "$(dirname "$2")" || exit 1
file=$(basename "$2")
name=${file%.tow}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
failed=0
number=0

tolerance=$(sed -n 's/^# tolerance: *//p' "$file" | head -n 1)
show=$(sed -n 's/^# show: *//p' "$file" | head -n 1)

# Words are compared one by one: numbers up to the tolerance, relative to the larger of 1 and the expected number; everything
# else exactly. Brackets, commas and parentheses are words; lines of the expected file that begin with # are comments.
same() {
    awk -v tolerance="${tolerance:-1e-5}" '
        function number(word) { return word ~ /^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$/ }
        function words(line, list) { gsub(/[][(),]/, " & ", line); return split(line, list, " ") }
        FNR == 1 { which++ }
        which == 1 && /^#/ { next }
        { n = words($0, list)
          for (i = 1; i <= n; i++) if (which == 1) want[++wanted] = list[i]; else got[++found] = list[i] }
        END {
            for (i = 1; i <= wanted || i <= found; i++) {
                w = want[i]; g = got[i]
                if (w "" == g "") continue
                if (i <= wanted && i <= found && number(w) && number(g)) {
                    size = w < 0 ? -w : w + 0; if (size < 1) size = 1
                    off = w - g; if (off < 0) off = -off
                    if (off <= tolerance * size) continue
                }
                printf "word %d: expected \"%s\", found \"%s\"\n", i, w, g
                exit 1
            }
            if (wanted == 0) { print "nothing is expected: an empty test"; exit 1 }
        }' "$1" "$2"
}

grep '^# \(test\|error\): ' "$file" >"$scratch/tests" || { echo "$file: no line '# test: COMMAND ...'"; exit 1; }
while IFS= read -r line; do
    kind=${line%%:*}
    kind=${kind#\# }
    arguments=${line#*: }
    command=${arguments%% *}
    rest=${arguments#"$command"}
    seen=$(grep -c "^$command\$" "$scratch/seen" 2>/dev/null)
    echo "$command" >>"$scratch/seen"
    expected=$name.$command.expected
    [ "${seen:-0}" -eq 0 ] || expected=$name.$command.$((seen + 1)).expected
    number=$((number + 1))

    # Arguments hold quoted JSON: the shell splits them as it does on a command line.
    eval "\"\$tow\" $command $file $rest" >"$scratch/out" 2>"$scratch/err" </dev/null
    status=$?
    want=0
    [ "$kind" = test ] || want=1
    if [ "$command" = count ] && [ -n "$show" ]; then
        awk -v show="$show" 'BEGIN { n = split(show, list, " "); for (i = 1; i <= n; i++) keep[list[i]] = 1 } $1 in keep' \
            "$scratch/out" >"$scratch/shown"
        mv "$scratch/shown" "$scratch/out"
    fi
    if [ "$status" -ne "$want" ]; then
        echo "$file: tow $arguments: exit status $status, expected $want"
        cat "$scratch/err"
        failed=1
    elif [ ! -s "$expected" ]; then
        echo "$file: tow $arguments: $expected is missing or empty; work out what it must say"
        failed=1
    elif [ "$kind" = error ]; then
        while IFS= read -r part; do
            grep -qF -- "$part" "$scratch/err" && continue
            echo "$file: tow $arguments: the message lacks '$part':"
            cat "$scratch/err"
            failed=1
        done <"$expected"
    elif ! same "$expected" "$scratch/out"; then
        echo "$file: tow $arguments: differs from $expected; found:"
        cat "$scratch/out"
        failed=1
    fi
done <"$scratch/tests"
exit "$failed"
