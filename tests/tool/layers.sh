#!/bin/sh
# layers.sh [--write] FILE DIRECTORY: FILE, docs/layers.md, is what layers.awk makes of the headers in DIRECTORY. With --write, as
# the build calls it, it is written if it differs.
set -u
write=false
if [ "$1" = --write ]; then write=true && shift; fi
file=$1
cd "$2" || exit 1
classes=$(cat layers/*.c transforms/*.c | tr '\n' ' ' | grep -oE 'const tow_module_class tow_[a-z0-9_]+ = \{[^;]*\.name = "[A-Za-z_]+"' |
    sed -E 's/^const tow_module_class (tow_[a-z0-9_]+_class) = .*\.name = "([A-Za-z_]+)"$/\1 \2/' |
    while read -r class name; do
        echo "$class $name $(grep -l "tow_module_class $class = " layers/*.c transforms/*.c)"
    done)
awk -v classes="$classes" -f tests/tool/layers.awk include/tow/layers.h include/tow/attention.h include/tow/recurrent.h include/tow/transforms.h >"$file.new" || exit 1
if cmp -s "$file" "$file.new"; then
    rm "$file.new"
elif $write; then
    mv "$file.new" "$file" && echo "$file: written anew"
else
    diff "$file" "$file.new"
    rm "$file.new"
    echo "docs/layers.md is out of date: sh tests/tool/layers.sh --write docs/layers.md ."
    exit 1
fi
