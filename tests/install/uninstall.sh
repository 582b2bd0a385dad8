#!/bin/sh
# uninstall.sh SCRATCH CMAKE PREFIX SCRIPT: removes a copy of what is installed, and nothing else.
set -eu
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"
scratch=$1 cmake=$2 prefix=$3 script=$4
fresh_directory "$scratch"
cp -a "$prefix" root
sed "s|^$prefix|$scratch/root|" "$prefix.manifest" >manifest
grep -q . manifest || fail "an empty list of files"
echo mine >root/include/tow/mine.h
echo mine >root/mine
quietly "$cmake" -DMANIFEST="$scratch/manifest" -P "$script"
left=$(find root ! -type d | sort | tr '\n' ' ')
[ "$left" = "root/include/tow/mine.h root/mine " ] || fail "left: $left"
for directory in $(find root -type d -name tow); do
    [ "$directory" = root/include/tow ] || fail "left an empty $directory"
done
# Once more: nothing is there, and that is no error. Without a list it is one.
quietly "$cmake" -DMANIFEST="$scratch/manifest" -P "$script"
if "$cmake" -DMANIFEST="$scratch/absent" -P "$script" >log 2>&1; then fail "uninstalled what was not installed"; fi
grep -q 'nothing was installed' log || fail "$(cat log)"
