#!/bin/sh
# structure.sh ROOT arrows|names|types|tests|frames: what no compiler checks about the sources.
#
# arrows: every include between folders of the library is in arrows.txt, and every entry there is used.
# names:  plans, running and kernels compare no names, outside the files that find primitives, passes and kernels by name.
# types:  no two files define a type of one tow__ name.
# tests:  every src/plan/FOLDER/NAME.c has the test tests/unit/plan/FOLDER/test_NAME.c, or the head comment of a test there
#         names it in a line such as "Tests fuse.c, row_program.c.", with its folder if that is another one; unit tests are
#         where the build looks for them.
# frames: functions that look at the frame of their caller are not inlined into it.
set -u
root=$1
cd "$root" || exit 1
failed=0

fail() {
    echo "$*"
    failed=1
}

sources() {
    find src data layers log transforms train weights -name '*.[ch]' -o -name '*.inc' | sort
}

# Lines "folder other", once each, for every include of a header of another folder.
includes() {
    sources | while read -r file; do
        from=$(echo "$file" | sed -E 's#^src/([a-z]+)/.*#\1#; s#^(data|layers|log|transforms|train|weights)/.*#\1#')
        sed -n -E -e 's#^ *\# *include "src/([a-z]+)/.*#\1#p' -e 's#^ *\# *include "(data|layers|log|transforms|train|weights)/.*#\1#p' "$file" |
            sed "s/^/$from /"
    done | sort -u | awk '$1 != $2'
}

arrows() {
    grep -v '^#' tests/structure/arrows.txt | sed 's/://' | while read -r from rest; do
        for to in $rest; do echo "$from $to"; done
    done | sort -u
}

# Lines "name file" for every struct, union, enum and typedef that a file of the library defines with a name tow__...; an
# announcement of a struct ("struct tow__x;", "typedef struct tow__x tow__x;") defines nothing.
types() {
    sources | xargs awk '
        function define(rest) { if (match(rest, /tow__[a-z0-9_]+/)) print substr(rest, RSTART, RLENGTH), FILENAME }
        /^typedef (struct|union|enum) (tow__[a-z0-9_]+) tow__[a-z0-9_]+;/ { if ($3 ";" != $4) define($4); next }
        /^(typedef )?(struct|union|enum) tow__[a-z0-9_]+ \{/ || /^\} tow__[a-z0-9_]+;/ { define($0); next }
        /^typedef .*\(\*?tow__[a-z0-9_]+\)\(/ { sub(/^[^(]*\(/, ""); define($0); next }
        /^typedef .*[ *]tow__[a-z0-9_]+(\[.*\])?;/ { sub(/.*[ *]tow__/, "tow__"); define($0); next }
        /^typedef .*[ *]tow__[a-z0-9_]+\(/ { sub(/\(.*/, ""); sub(/.*[ *]tow__/, "tow__"); define($0) }' | sort -u
}

# The files that the head comments of the tests in tests/unit/plan name, one a line, relative to src/plan. An end of a comment
# ends the head.
named() {
    find tests/unit/plan -name 'test_*.c' | while read -r file; do
        folder=$(dirname "${file#tests/unit/plan/}")
        sed -n -e 's#^ \* Tests \(.*\.c\)\..*#\1#p' -e '/\*\//q' "$file" | tr -d ' ' | tr ',' '\n' |
            sed -e "\#/#!s#^#$folder/#" -e 's#^\./##'
    done
}

case $2 in
    arrows)
        found=$(mktemp) allowed=$(mktemp)
        trap 'rm -f "$found" "$allowed"' EXIT
        includes >"$found"
        arrows >"$allowed"
        [ -s "$found" ] || fail "no includes found: is $root the checkout?"
        new=$(comm -23 "$found" "$allowed")
        [ -z "$new" ] || fail "includes that tests/structure/arrows.txt does not allow (folder, other folder):
$new"
        unused=$(comm -13 "$found" "$allowed")
        [ -z "$unused" ] || fail "entries of tests/structure/arrows.txt that nothing uses any more; remove them:
$unused"
        ;;
    names)
        compares=$(sources | grep -E '^src/(plan|run|kernels)/' | xargs grep -n 'strn*cmp(' |
            grep -v -e '^src/plan/operations.c:' -e '^src/plan/pipeline.c:' -e '^src/kernels/registry.c:' -e '^src/kernels/products/gemm.c:' -e '^src/kernels/context.c:')
        [ -z "$compares" ] || fail "comparisons of names; compare descriptors or ask for traits (src/graph/primitive.h):
$compares"
        ;;
    types)
        found=$(types)
        [ -n "$found" ] || fail "no types found: is $root the checkout?"
        twice=$(echo "$found" | awk '{ files[$1] = files[$1] " " $2; n[$1]++ }
            END { for (name in n) if (n[name] > 1) print name ":" files[name] }' | sort)
        [ -z "$twice" ] || fail "types of one name; give each its own:
$twice"
        ;;
    tests)
        named=$(named)
        for file in $(find src/plan -name '*.c'); do
            path=${file#src/plan/} name=$(basename "$file")
            test=tests/unit/plan/${path%"$name"}test_$name
            [ -f "$test" ] || echo "$named" | grep -qx "$path" ||
                fail "$file has no test; write $test, or name $path in the head of the test that has it"
        done
        for name in $named; do
            [ -f "src/plan/$name" ] || fail "a test in tests/unit/plan says that it tests $name, but there is no src/plan/$name"
        done
        stray=$(find tests/unit -name 'test_*.c' ! -path 'tests/unit/*/test_*.c' -o -path 'tests/unit/*/*/*/test_*.c')
        [ -z "$stray" ] || fail "unit tests that are not built; they belong in a folder of tests/unit:
$stray"
        ;;
    frames)
        # A function begins in column 1, and ends with the brace there.
        inlined=$(sources | xargs grep -l TOW__CALLERS_FRAME | grep '\.c$' | xargs awk '
            /^[A-Za-z].*\(/ { head = FILENAME ": " $0; kept = /^TOW__OWN_FRAME / }
            /TOW__CALLERS_FRAME/ && !kept { print head }')
        [ -z "$inlined" ] || fail "functions that look at TOW__CALLERS_FRAME without TOW__OWN_FRAME in front (layers/tree.h):
$inlined"
        raw=$(sources | xargs grep -l __builtin_dwarf_cfa | grep -vx layers/tree.h)
        [ -z "$raw" ] || fail "frames that are not TOW__CALLERS_FRAME (layers/tree.h):
$raw"
        ;;
    *) fail "expected arrows, names, types, tests or frames, found '$2'" ;;
esac
exit "$failed"
