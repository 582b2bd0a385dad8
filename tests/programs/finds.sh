#!/bin/sh
# finds.sh RANDOM_PROGRAMS CHECK --fault|--break NAME MOST: what one check finds.
#
# A planted operation that is wrong (fault.c), or a check that goes wrong in programs that contain a certain primitive, is
# found by CHECK, shrunk to MOST equations, and written as a file that begins with a command that finds it again.
set -u
programs=$1
check=$2
option=$3
name=$4
most=$5
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

die() { echo "finds.sh $check $option $name: $*" >&2; exit 1; }

"$programs" --count 200 --check "$check" "$option" "$name" --output "$scratch/p" >"$scratch/log" 2>&1
[ $? -eq 1 ] || { cat "$scratch/log"; die "expected the exit status 1: a failure that was found"; }
file=$(ls "$scratch"/p_*.tow) || die "no program was written"
grep -q "fails the check $check " "$file" || { cat "$file"; die "expected a failure of $check"; }
equations=$(grep -Ec '^ +[a-z_]+:.* = ' "$file")
[ "$equations" -le "$most" ] || { cat "$file"; die "$equations equations are left, expected at most $most"; }
seed=$(sed -n 's/^# Program \([0-9]*\) .*/\1/p' "$file")

# The commands that the file names, as they stand there but for what makes this test's failure.
as_drawn=$(sed -n 's/^# As drawn: random_programs //p' "$file")
# shellcheck disable=SC2086
"$programs" $as_drawn "$option" "$name" --keep >"$scratch/again" 2>&1 && die "as drawn, program $seed does not fail"
[ "$name" = lost_parameter ] && exit 0 # which no file has
repeat=$(sed -n 's/^# Repeat: random_programs //p' "$file")
set -- $repeat
[ "$option" = --break ] && set -- "$@" --break "$name"
"$programs" "$@" --keep >"$scratch/again" 2>&1 && die "the file does not fail"
grep -q "fails the check $check " "$scratch/again" || { cat "$scratch/again"; die "the file fails in another way"; }
