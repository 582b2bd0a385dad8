#!/bin/sh
# outputs.sh TOW PAGE.md [PROGRAM]: what a page shows is what comes out. In fenced blocks of the page,
#
#   ```tow NAME      is a file, and so are ```sh NAME and ```csv NAME
#   ```console       has commands behind "$ ", each with what it prints, standard error included
#   ```output        is what PROGRAM prints, which was compiled from the page's block of C; commands call it `program`
#
# Pictures (.svg) that commands write are those beside the page.
#
# Numbers of f32 are compared as text: they are few, and the functions behind them have the same bits everywhere.
set -u
directory=$(dirname "$1")
page=$2
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" && cd "$scratch" || exit 1
PATH=$scratch/bin:$directory:$PATH
[ $# -lt 3 ] || ln -s "$3" bin/program

# Files; commands 1, 2, ... with what is expected of each; what the program prints.
awk '
    /^```/ && inside { inside = 0; next }
    /^```(tow|sh|csv) /  { inside = 1; out = $2; printf "" >out; next }
    /^```console/    { inside = 2; next }
    /^```output/     { inside = 1; out = "program.expected"; printf "" >out; next }
    /^```/           { inside = 3; next }
    inside == 1      { print >out }
    inside == 2 && /^\$ / { n++; print substr($0, 3) >(n ".command"); printf "" >(n ".expected"); next }
    inside == 2      { print >(n ".expected") }
' "$page" || exit 1

failed=0
n=1
while [ -f "$n.command" ]; do
    sh "$n.command" >"$n.found" 2>&1 </dev/null
    diff "$n.expected" "$n.found" >difference || { printf '$ '; cat "$n.command" difference; failed=1; }
    n=$((n + 1))
done
[ "$n" -gt 1 ] || { echo "$page has no commands: an empty test"; failed=1; }
if [ -f program.expected ]; then
    "${3:?the page has a program}" >program.found 2>&1
    diff program.expected program.found || { echo "the program prints something else"; failed=1; }
fi
for picture in *.svg; do
    [ -f "$picture" ] || continue
    cmp "$picture" "$(dirname "$page")/$picture" || failed=1
done
exit $failed
