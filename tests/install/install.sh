#!/bin/sh
# install.sh PREFIX CMAKE BUILD: installs into PREFIX, and finds there what the project says it installs.
set -eu
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"
prefix=$1 cmake=$2 build=$3
fresh_directory "$prefix"
# A list of installed files, for `uninstall`, is of the user's last installation and not of this one.
if [ -e "$build/install_manifest.txt" ]; then
    cp -p "$build/install_manifest.txt" "$build/install_manifest.txt.user"
fi
status=0
"$cmake" --install "$build" --prefix "$prefix" >"$prefix.log" 2>&1 || status=$?
cp "$build/install_manifest.txt" "$prefix.manifest"
rm "$build/install_manifest.txt"
if [ -e "$build/install_manifest.txt.user" ]; then mv "$build/install_manifest.txt.user" "$build/install_manifest.txt"; fi
[ $status -eq 0 ] || { cat "$prefix.log"; fail "the installation failed"; }

for file in include/tow/tow.h include/tow/base.h 'lib*/libtow.so' 'lib*/libtow.so.0' 'lib*/libtow.a' 'lib*/pkgconfig/tow.pc' \
    'lib*/cmake/tow/tow-config.cmake' 'lib*/cmake/tow/tow-config-version.cmake' share/doc/tow/LICENSE share/doc/tow/README.md \
    share/doc/tow/CHANGELOG.md share/doc/tow/docs/tour.md share/doc/tow/docs/versions.md share/doc/tow/examples/first.cpp \
    bin/tow share/man/man1/tow.1 share/bash-completion/completions/tow \
    include/tow/mpi.h share/tow/src/tow_mpi.c bin/gpt share/man/man1/gpt.1 share/bash-completion/completions/gpt share/tow/tow.txt; do
    # shellcheck disable=SC2086
    found=$(find "$prefix" -path "$prefix/$file" -o -path "$prefix/"${file%%/*}"/*/${file#*/}")
    [ -n "$found" ] || fail "$file is not installed"
done
# Text files name neither the source nor the build directory; the files for static linking name installed archives only.
if grep -rlI -e "$build" -e "$(realpath "$here/../..")" "$prefix"; then fail "these files name the build or source directory"; fi
# Programs run from where they are, without help for the loader.
unset LD_LIBRARY_PATH
"$prefix/bin/tow" --version | grep -qx 'tow [0-9.]*' || fail "tow --version: $("$prefix/bin/tow" --version)"
"$prefix/bin/gpt" --steps 0 --no-sample --layers 1 --width 8 --heads 1 --context 8 --batch 1 >"$prefix.log" 2>&1 ||
    { cat "$prefix.log"; fail "the installed gpt does not run"; }
grep -qF "$prefix/share/tow/tow.txt: " "$prefix.log" || { cat "$prefix.log"; fail "gpt reads another text than the installed one"; }
