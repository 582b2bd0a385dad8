#!/bin/sh
# presets.sh ROOT CMAKE: scripts/setup.sh finds the presets that cmake finds, and CONTRIBUTING.md has a line for each.
set -u
cd "$1" || exit 1
cmake=$2
. scripts/setup.sh
found=$(presets)
expected=$("$cmake" --list-presets | sed -n 's/^ *"\([^"]*\)".*/\1/p')
failed=0
[ -n "$found" ] && [ "$found" = "$expected" ] ||
    { echo "expected the presets" $expected "and found" $found; failed=1; }
for preset in $expected; do
    is_preset "$preset" || { echo "$preset is a preset, but not to is_preset"; failed=1; }
    grep -q "^| \`$preset\` |" CONTRIBUTING.md || { echo "CONTRIBUTING.md has no line for the preset $preset"; failed=1; }
done
for word in base "" rel 'rel.*' --help; do
    ! is_preset "$word" || { echo "'$word' is taken for a preset"; failed=1; }
done
exit "$failed"
