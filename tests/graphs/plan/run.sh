#!/bin/sh
# run.sh TOW FILE.tow: compares what a pass of the compiler finds and leaves with the expectations at the head of FILE.tow.
# See README.md in this folder.
set -u
tow=$1
file=$2
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
failed=0

pass=$(sed -n 's/^# pass: *//p' "$file")
options=$(sed -n 's/^# options: *//p' "$file")

# "NAME OUTER" of each pass, in order; OUTER is the pass within which it does its work, or empty.
"$tow" plan --passes | awk '/^ *[0-9]+  / { name = $2; sub(/,$/, "", name); print name, $3 == "within" ? $4 : "" }' \
    >"$scratch/passes"
outer=$(awk -v pass="$pass" '$1 == pass { print $2 }' "$scratch/passes")
previous=$(awk -v pass="$pass" '$1 == pass { print last } $2 == "" { last = $1 }' "$scratch/passes")
if ! awk -v pass="$pass" '$1 == pass { found = 1 } END { exit !found }' "$scratch/passes"; then
    echo "$file: expected '# pass: NAME' with a name that 'tow plan --passes' lists, found '$pass'"
    exit 1
fi

# The expectations of a kind are looked for in the lines of a text, with runs of blanks as one. Each holds for a line after
# that of the one before it. A KIND-not holds for the lines between its neighbors, or the end. " ... " in an expectation
# stands for anything within the line.
check() {
    awk -v kind="$1" '
        function holds(line, text,    parts, n, i, at) {
            n = split(text, parts, / [.][.][.] /)
            for (i = 1; i <= n; i++) {
                at = index(line, parts[i])
                if (!at) return 0
                line = substr(line, at + length(parts[i]))
            }
            return 1
        }
        function none(first, end,    i, k) { # of the expectations that wait, in lines first to end
            for (k = 1; k <= waiting; k++)
                for (i = first; i <= end; i++)
                    if (holds(line[i], unwanted[k])) {
                        printf "%s-not: \"%s\" is in line %d\n", kind, unwanted[k], i
                        wrong = 1
                    }
            waiting = 0
        }
        FNR == 1 { which++ }
        { gsub(/[ \t]+/, " ") }
        which == 1 { n++; negative[n] = index($0, "# " kind "-not: ") == 1; text[n] = substr($0, index($0, ": ") + 2); next }
        { line[++lines] = $0 }
        END {
            if (lines == 0) { print kind ": nothing was printed"; exit 1 }
            for (e = 1; e <= n; e++) {
                if (negative[e]) { unwanted[++waiting] = text[e]; continue }
                i = at + 1
                while (i <= lines && !holds(line[i], text[e])) i++
                if (i > lines) { printf "%s: \"%s\" is not behind line %d\n", kind, text[e], at; exit 1 }
                none(at + 1, i - 1)
                at = i
            }
            none(at + 1, lines)
            exit wrong
        }' "$scratch/expected" "$scratch/found"
}

# compare KIND COMMAND...: what the command prints, if the file has expectations of that kind.
compare() {
    kind=$1
    shift
    grep -E "^# $kind(-not)?: " "$file" >"$scratch/expected" || return 0
    kinds="${kinds:-} $kind"
    if ! "$tow" "$@" "$file" >"$scratch/found" 2>"$scratch/err"; then
        echo "$file: tow $*: failed"
        cat "$scratch/err"
        failed=1
    elif ! check "$kind" >"$scratch/wrong"; then
        echo "$file: tow $*:"
        cat "$scratch/wrong" "$scratch/found"
        failed=1
    fi
}

# The options are words without blanks inside.
# shellcheck disable=SC2086
{
    if [ -n "$outer" ]; then
        compare before plan $options --without "$pass" --dump-after "$outer"
    elif [ -n "$previous" ]; then
        compare before plan $options --dump-after "$previous"
    else
        compare before print
    fi
    compare after plan $options --dump-after "${outer:-$pass}"
    compare without plan $options --without "$pass"
    compare plan plan $options
}
case " ${kinds:-} " in
*" after "* | *" plan "*) ;;
*)
    echo "$file: no line '# after: TEXT' or '# plan: TEXT'"
    failed=1
    ;;
esac
exit "$failed"
