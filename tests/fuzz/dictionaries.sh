#!/bin/sh
# dictionaries.sh [--write] DIRECTORY PROGRAM...: the committed dictionaries are what PROGRAM prints, so they know all primitives. With
# --write, as the build calls it, those that differ are written.
write=false
if [ "$1" = --write ]; then write=true && shift; fi
directory=$1
shift
failed=0
names=$("$@") || exit 1
for name in $names; do
    "$@" "$name" | diff "$directory/$name.dict" - >/dev/null && continue
    if $write; then
        "$@" "$name" >"$directory/$name.dict" && echo "tests/fuzz/$name.dict: written anew"
    else
        "$@" "$name" | diff "$directory/$name.dict" -
        echo "$name.dict is out of date: build/release/tests/fuzz_dictionary $name >tests/fuzz/$name.dict"
        failed=1
    fi
done
exit "$failed"
