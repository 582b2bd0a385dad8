#!/bin/sh
# tour.sh TOUR.md PROGRAM BIN SCRATCH: the commands of the tour, as they are typed, with the tools in BIN. PROGRAM prints the graph that
# they read. Each line that the tour quotes below a command is in its output: parts of it, between "..." and in this order.
set -eu
tour=$1 program=$2 scratch=$4
PATH=$3:$PATH
mkdir -p "$scratch"
cd "$scratch"
"$program" >tour.tow
# "$ command" lines and what is quoted below them; blocks without a command are not read.
awk '/^    \$ /{on=1} !/^    /{on=0} on{print substr($0,5)}' "$tour" >lines
[ "$(grep -c '^\$ ' lines)" -ge 8 ] || { echo "$tour has fewer than 8 commands"; exit 1; }
: >out
while IFS= read -r line; do
    case $line in
    '$ '*)
        command=${line#??}
        sh -c "$command" >out 2>errors </dev/null || { cat errors; echo "failed: $command"; exit 1; }
        ;;
    *)
        # spaces count as one; what is no letter or digit stands for itself
        pattern=$(printf '%s\n' "$line" | tr -s ' ' | sed 's/^ //; s/[][\.*^$]/\\&/g; s/ *\(\\\.\)\{3\} */.*/g')
        tr -s ' ' <out | grep -q -e "$pattern" || { cat out; echo "'$command' does not print: $line"; exit 1; }
        ;;
    esac
done <lines
