#!/bin/sh
# Runs an example: scripts/example.sh [preset] NAME [options of the program, see --help]. Without a name it lists them.
# Installs missing Debian packages, builds the program, and runs build/<preset>/bin/NAME. Default preset: release.
set -eu
cd "$(dirname "$0")/.."
. scripts/setup.sh

# Each folder with a main.c is a program; the first sentence of main.c says what it does.
list() {
    say "usage: scripts/example.sh [preset] NAME [options]; the examples are"
    for main in examples/*/main.c; do
        folder=${main%/main.c}
        [ ! -e "$folder/CMakeLists.txt" ] || continue # a project of its own
        printf '    %-12s %s\n' "${folder#examples/}" "$(sed -n '1s#^/\* \([^.]*\.\).*#\1#p' "$main")"
    done
}

preset=release
if [ $# -gt 0 ] && is_preset "$1"; then
    preset=$1
    shift
fi
if [ $# -eq 0 ] || [ "$1" = --help ] || [ "$1" = -h ]; then
    list
    exit 0
fi
name=$1
shift
if [ ! -e "examples/$name/main.c" ] || [ -e "examples/$name/CMakeLists.txt" ]; then
    list >&2
    die "there is no example '$name'"
fi
install_missing "$preset"
targets=$name
build "$preset"
exec "build/$preset/bin/$name" "$@"
