#!/bin/sh
# migrate.sh DIRECTORY SOURCE-ROOT COMPILER LIBRARY...: scripts/migrate.py makes a program of today of one in old names; a second
# run changes nothing, and the table in CHANGELOG.md is the script's.
set -eu
directory=$1 root=$2 compiler=$3
shift 3
rm -rf "$directory"
mkdir -p "$directory"
cd "$directory"
cp "$root/tests/scripts/migrate/old.c" program.c
[ "$(python3 "$root/scripts/migrate.py" .)" = ./program.c ]
cp program.c once.c
[ -z "$(python3 "$root/scripts/migrate.py" program.c)" ]
cmp program.c once.c
"$compiler" -std=c11 -Wall -Wextra -Werror -I "$root/include" program.c "$@" -lm -o program
LD_LIBRARY_PATH=$(dirname "$1") ./program >output
echo "5 inputs, 14 elements, one thread, tow_mappings" | cmp - output
python3 "$root/scripts/migrate.py" --table >table
grep -Fxf table "$root/CHANGELOG.md" | cmp - table
