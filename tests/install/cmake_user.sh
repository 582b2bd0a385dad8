#!/bin/sh
# cmake_user.sh SCRATCH CMAKE WAY LANGUAGE COMPILER TOW [build|configure]: the project in user/ takes Tow in one of the
# ways that its CMakeLists.txt names. TOW is the prefix for find_package, else the source directory; a way
# fetch_repository fetches a git repository made of it. Then it is built and run, or only configured, and no flag of
# Tow's may be among those of the user's files.
set -eu
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"
scratch=$1 cmake=$2 way=$3 language=$4 compiler=$5 tow=$6 what=$7
fresh_directory "$scratch"
needs "$compiler" ninja
unset LD_LIBRARY_PATH
set -- -G Ninja -S "$here/user" -B build "-DUSER_LANGUAGE=$language" "-DCMAKE_${language}_COMPILER=$compiler" \
    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
case $way in
    find_package) set -- "$@" -DUSER_WAY=find_package "-DCMAKE_PREFIX_PATH=$tow" -DUSER_COMPONENTS=static ;;
    fetch_repository)
        needs git
        mkdir repository
        (cd "$tow" && tar -cf - --exclude=./build --exclude=./.git .) | tar -xf - -C repository
        quietly git -C repository init -q
        quietly git -C repository add -A
        quietly git -C repository -c user.name=user -c user.email=user@localhost commit -q -m user
        set -- "$@" -DUSER_WAY=fetch_content "-DUSER_REPOSITORY=file://$PWD/repository"
        ;;
    *) set -- "$@" "-DUSER_WAY=$way" "-DTOW_SOURCE=$tow" ;;
esac
# A user who knows nothing of cmocka: what is not built is not asked for.
quietly env -u CMAKE_BUILD_TYPE "$cmake" "$@"

# Flags of the user's files: his own, a directory of headers, and the standard.
sed -n 's/^ *"command": "\(.*\)",$/\1/p' build/compile_commands.json >commands
mine=0
while read -r command; do
    case $command in
        *user/program.*) ;;
        *) continue ;;
    esac
    mine=$((mine + 1))
    skip_next=yes # the compiler
    for word in $command; do
        if [ "$skip_next" = yes ]; then
            skip_next=no
            continue
        fi
        case $word in
            -Wall | -Wextra | -Wpedantic | -Wconversion | -Werror | -std=c11 | -std=c++17 | -I*/include | -c | */user/program.c*) ;;
            -isystem | -o) skip_next=yes ;;
            *) fail "a flag of Tow's in the user's command: $word, in: $command" ;;
        esac
    done
done <commands
[ $mine -eq 2 ] || fail "expected programs with the shared library and with the archive, found $mine"

# As part of a project without a build type the library is optimized all the same.
if [ "$way" != find_package ]; then
    grep -q -- '-O3 .*src/run/run\.c$' commands || fail "the library is not optimized: $(grep 'src/run/run\.c$' commands)"
    grep -q -- '-DNDEBUG .*src/run/run\.c$' commands || fail "the library checks its plans: $(grep 'src/run/run\.c$' commands)"
    if sed "s|$PWD/||g" commands | grep -e src/tool -e tests/ | grep -v user/program; then fail "programs of Tow are part of the user's project"; fi
    quietly "$cmake" build -DCMAKE_BUILD_TYPE=Debug
    if grep -q -- '-O3 .*src/run/run\.c"' build/compile_commands.json; then fail "the library is optimized in a debug build"; fi
    # What is built and run here is not optimized: that takes a quarter of the time.
    quietly "$cmake" build -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_${language}_FLAGS_DEBUG=-O0" -DCMAKE_C_FLAGS_DEBUG=-O0
fi
[ "$what" = build ] || exit 0

quietly "$cmake" --build build
quietly build/with_tow
quietly build/with_tow_static
readelf -d build/with_tow | grep -q 'NEEDED.*libtow\.so\.0' || fail "the program does not use the shared library"
if readelf -d build/with_tow_static | grep -q 'NEEDED.*libtow'; then fail "the program with the archive uses the shared library"; fi
