#!/bin/sh
# structure.sh ROOT arrows|names: what no compiler checks about the sources.
#
# arrows: every include between folders of the library is in arrows.txt, and every entry there is used.
# names:  plans, running and kernels compare no names, outside the files that find primitives, passes and kernels by name.
set -u
root=$1
cd "$root" || exit 1
failed=0

fail() {
    echo "$*"
    failed=1
}

sources() {
    find src layers transforms train -name '*.[ch]' -o -name '*.inc' | sort
}

# Lines "folder other", once each, for every include of a header of another folder.
includes() {
    sources | while read -r file; do
        from=$(echo "$file" | sed -E 's#^src/([a-z]+)/.*#\1#; s#^(layers|transforms|train)/.*#\1#')
        sed -n -E -e 's#^ *\# *include "src/([a-z]+)/.*#\1#p' -e 's#^ *\# *include "(layers|transforms|train)/.*#\1#p' "$file" |
            sed "s/^/$from /"
    done | sort -u | awk '$1 != $2'
}

arrows() {
    grep -v '^#' tests/structure/arrows.txt | sed 's/://' | while read -r from rest; do
        for to in $rest; do echo "$from $to"; done
    done | sort -u
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
    *) fail "expected arrows or names, found '$2'" ;;
esac
exit "$failed"
