#!/bin/sh
# Trains the example GPT: scripts/train.sh [preset] [arguments of the program gpt, see --help]
#   scripts/train.sh --processes 2    by two processes of this machine, with the losses of --row-groups 2
# Installs missing Debian packages, builds the library and that program alone, and runs build/<preset>/bin/gpt. Default preset:
# release.
set -eu
cd "$(dirname "$0")/.."
. scripts/setup.sh

preset=release
if [ $# -gt 0 ] && is_preset "$1"; then
    preset=$1
    shift
fi
install_missing "$preset"
targets=gpt
build "$preset"
exec "build/$preset/bin/gpt" "$@"
