#!/bin/sh
# installed.sh CMAKE BUILD CC PROGRAM.c [EMULATOR]: PROGRAM.c builds against the installed tree, shared and static, with what pkg-config
# says and nothing else, and runs.
set -eu
cmake=$1 build=$2 cc=$3 program=$4
shift 4
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
"$cmake" --install "$build" --prefix "$tree" >"$tree/log"
pc=$(find "$tree" -name tow.pc)
libraries=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH="$(dirname "$pc")"
# shellcheck disable=SC2046
"$cc" "$program" $(pkg-config --cflags --libs tow) -lm -o "$tree/shared"
LD_LIBRARY_PATH=$libraries "$@" "$tree/shared"
rm "$libraries"/libtow.so*
# shellcheck disable=SC2046
"$cc" "$program" $(pkg-config --static --cflags --libs tow) -o "$tree/static"
"$@" "$tree/static"
