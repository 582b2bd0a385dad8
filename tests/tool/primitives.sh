#!/bin/sh
# primitives.sh [--write] FILE TOW...: FILE, docs/primitives.md, is what `tow primitives` prints. With --write, as the build
# calls it, it is written if it differs. Tests tool/primitives.c.
write=false
if [ "$1" = --write ]; then write=true && shift; fi
file=$1
shift
if $write; then
    "$@" primitives | cmp -s - "$file" && exit 0
    "$@" primitives >"$file.new" && mv "$file.new" "$file" && echo "$file: written anew"
else
    "$@" primitives | diff "$file" - || {
        echo "docs/primitives.md is out of date: build/release/bin/tow primitives >docs/primitives.md"
        exit 1
    }
fi
