#!/bin/sh
# dictionaries.sh DIRECTORY PROGRAM...: the committed dictionaries are what PROGRAM prints, so they know all primitives.
directory=$1
shift
failed=0
for name in graph policy safetensors npy; do
    "$@" "$name" | diff "$directory/$name.dict" - || {
        echo "$name.dict is out of date: build/release/tests/fuzz_dictionary $name >tests/fuzz/$name.dict"
        failed=1
    }
done
exit "$failed"
