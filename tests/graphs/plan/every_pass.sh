#!/bin/sh
# every_pass.sh TOW [FOLDER]: fails if a pass of the compiler has fewer than two programs in the folder (this one).
set -u
folder=${2:-$(dirname "$0")}
failed=0
passes=$("$1" plan --passes | sed -n 's/^ *[0-9][0-9]*  \([a-z-]*\).*/\1/p')
[ -n "$passes" ] || { echo "'tow plan --passes' lists nothing"; exit 1; }
for pass in $passes; do
    programs=$(cat "$folder"/*.tow 2>/dev/null | grep -cx "# pass: $pass")
    [ "$programs" -ge 2 ] && continue
    echo "$pass has $programs programs in $folder, expected at least 2"
    failed=1
done
exit "$failed"
