#!/bin/sh
# commands.sh README BIN SCRATCH: the commands of README.md that look into a program, as they are typed, with the tools in BIN and the
# file that README.md shows below `cat`. Each prints something and succeeds.
set -eu
readme=$1 bin=$2 scratch=$3
rm -rf "$scratch"
mkdir -p "$scratch/build/release"
ln -s "$bin" "$scratch/build/release/bin"
cd "$scratch"
sed -n 's/^    \$ build/build/p' "$readme" >commands
sed -n '/^    \$ cat sines.tow$/,/^    \$ build/s/^    \([^$].*\)$/\1/p' "$readme" >sines.tow
[ "$(wc -l <commands)" -ge 3 ] && [ -s sines.tow ] || { cat commands sines.tow; echo "$readme has no such commands"; exit 1; }
while IFS= read -r command; do
    sh -c "$command" >out 2>errors </dev/null && [ -s out ] || { cat out errors; echo "failed: $command"; exit 1; }
done <commands
