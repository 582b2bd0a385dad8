#!/bin/sh
# packages.sh SCRATCH CPACK BUILD PROGRAM.c: Debian packages, their dependencies, and a clean Debian 12 in which they are
# installed and used. Wants root, debootstrap and a mirror of Debian (TOW_DEBIAN_MIRROR, else that of this machine).
set -eu
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"
scratch=$1 cpack=$2 build=$3 program=$4
fresh_directory "$scratch"
needs dpkg-deb dpkg-shlibdeps dpkg-architecture file

# What is compressed for long is as good, and cpack's own packages are made anew by cmake/debian.cmake.
DPKG_DEB_COMPRESSOR_LEVEL=0 quietly "$cpack" -D CPACK_DEBIAN_COMPRESSION_TYPE=none --config "$build/CPackConfig.cmake" -G DEB -B "$PWD/packages"
set -- packages/*.deb
names="libtow0 libtow-dev tow-tools"
[ -z "$(find packages -name 'libtow-mpi*')" ] || names="$names libtow-mpi0 libtow-mpi-dev"
# shellcheck disable=SC2086
[ $# -eq $(echo $names | wc -w) ] || fail "expected the packages $names, found: $*"
field() { dpkg-deb -f packages/"$1"_*.deb "$2"; }
has() { # has PACKAGE FIELD TEXT
    case $(field "$1" "$2") in
        *"$3"*) ;;
        *) fail "$1: $2: expected '$3', found '$(field "$1" "$2")'" ;;
    esac
}
version=$(field libtow0 Version)
# Every library that a file of the package is linked with is in a package on which it depends.
depends_on_what_it_is_linked_with() { # PACKAGE FILE...
    package=$1
    shift
    for library in $(readelf -d "$@" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u); do
        [ "$library" = libtow.so.0 ] && continue
        # (32-bit libraries of the same name are in packages of their own)
        dpkg -S "*/$library" | sed 's/[:,].*//' | sort -u >owners
        field "$package" Depends | tr ',' '\n' | sed 's/^ *//; s/ .*//' | grep -qxFf owners ||
            fail "$package: Depends: expected one of '$(cat owners)' for $library, found '$(field "$package" Depends)'"
    done
}
dpkg-deb -x packages/libtow0_*.deb library
dpkg-deb -x packages/tow-tools_*.deb tools
depends_on_what_it_is_linked_with libtow0 "$(find library -name 'libtow.so.*.*')"
depends_on_what_it_is_linked_with tow-tools tools/usr/bin/*
has libtow0 Depends libmd0
has libtow0 Depends zlib1g
has tow-tools Depends libjansson4
has libtow-dev Depends "libtow0 (= $version)"
has libtow-dev Depends libmd-dev
has libtow-dev Depends zlib1g-dev
has tow-tools Depends "libtow0 (= $version)"
dpkg-deb -I packages/libtow0_*.deb shlibs | grep -q '^libtow 0 libtow0 (>= ' || fail "libtow0 has no shlibs"
case $names in *mpi*)
    dpkg-deb -x packages/libtow-mpi0_*.deb mpi
    # that of the other package is not installed here
    has libtow-mpi0 Depends "libtow0 (= $version)"
    has libtow-mpi0 Depends "$(dpkg -S "*/$(readelf -d mpi/usr/lib/*/libtow_mpi.so.0 | sed -n 's/.*(NEEDED).*\[\(libmpi.*\)\]/\1/p')" | sed 's/[:,].*//' | head -n 1)"
    has libtow-mpi-dev Depends "libtow-mpi0 (= $version)"
    has libtow-mpi-dev Depends "libtow-dev (= $version)"
    dpkg-deb -c packages/libtow-mpi-dev_*.deb >dev.files
    for file in libtow_mpi.so pkgconfig/tow_mpi.pc cmake/tow/tow-mpi-targets.cmake; do
        grep -q "/$file" dev.files || fail "libtow-mpi-dev has no $file"
    done
    ;;
esac
for package in $names; do
    dpkg-deb -c packages/"$package"_*.deb >"$package.files"
    grep -q " ./usr/share/doc/$package/copyright" "$package.files" || fail "$package has no license"
    if grep -v ' \./\(usr/\?.*\)\?$' "$package.files"; then fail "$package has files outside of /usr"; fi
    # As Debian counts: files in whole KiB, anything else as one; links are not what they point to.
    size=$(awk '/ \.\/$/ { next } /^-/ { n += int(($3 + 1023) / 1024); next } { n++ } END { print n }' "$package.files")
    [ "$(field "$package" Installed-Size)" = "$size" ] || fail "$package: Installed-Size: expected $size, found $(field "$package" Installed-Size)"
done
# Libraries are in the folder of their architecture, and what finds them knows.
arch=$(dpkg-architecture -q DEB_HOST_MULTIARCH)
dpkg-deb -x packages/libtow-dev_*.deb library
for file in libtow.so.0 libtow.so libtow.a pkgconfig/tow.pc cmake/tow/tow-config.cmake; do
    [ -e "library/usr/lib/$arch/$file" ] || fail "usr/lib/$arch/$file is in no package"
done
[ "$(find library/usr/lib -maxdepth 1 -mindepth 1)" = "library/usr/lib/$arch" ] || fail "usr/lib has files beside $arch"
mkdir configured
printf 'cmake_minimum_required(VERSION 3.16)\nproject(user C)\nfind_package(tow REQUIRED)\nadd_executable(user %s)\ntarget_link_libraries(user tow::tow m)\n' \
    "$program" >configured/CMakeLists.txt
quietly cmake -S configured -B configured/build "-DCMAKE_PREFIX_PATH=$PWD/library/usr"
quietly cmake --build configured/build
LD_LIBRARY_PATH="$PWD/library/usr/lib/$arch" quietly configured/build/user
PKG_CONFIG_LIBDIR="$PWD/library/usr/lib/$arch/pkgconfig" pkg-config --libs tow >flags
# shellcheck disable=SC2046
quietly cc -o by_pkg_config "$program" -Ilibrary/usr/include $(cat flags) -lm
if readelf -d tools/usr/bin/gpt | grep -q 'R.*PATH'; then fail "gpt in /usr/bin has a search path of its own"; fi

# ---- a clean root ------------------------------------------------------------------------------------------------------
# Debian's codename of the packages: shared libraries are those of the machine on which they were built.
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ "$codename" = bookworm ] || skip "packages were checked, not installed: this is not Debian 12"
[ "$(id -u)" -eq 0 ] || skip "packages were checked, not installed: that wants root"
needs debootstrap chroot
# The mirror that this machine itself uses.
mirror=${TOW_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' | sed -n "s/ $codename\$//p" | head -n 1)}
root=$scratch/root
debootstrap --variant=minbase "$codename" "$root" "$mirror" >bootstrap.log 2>&1 || {
    tail -n 20 bootstrap.log
    skip "packages were checked, not installed: debootstrap failed (is there a network?)"
}
trap 'rm -rf "$root"' EXIT
# The machine's way to the mirror.
for file in /etc/apt/apt.conf /etc/apt/apt.conf.d/*proxy* /etc/resolv.conf; do
    if [ -e "$file" ]; then cp -L "$file" "$root$file"; fi
done
cp packages/*.deb "$program" "$root/root"
inside() { quietly chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C sh -ec "$1"; }
inside 'apt-get update && apt-get install -y --no-install-recommends /root/libtow0_*.deb /root/tow-tools_*.deb'
inside 'printf "{ lambda ; x:f64[]\"x\". let\n    y:f64[] = mul x x\n  in (y) }\n" >/root/square.tow
    tow grad /root/square.tow --run --input 1.5 | grep -F "f64[] 3"
    gpt --steps 1 --layers 1 --width 8 --heads 1 --context 8 --batch 1 --no-sample
    test -e /usr/share/man/man1/tow.1 -o -e /usr/share/doc/tow-tools'
inside 'apt-get install -y --no-install-recommends gcc libc6-dev pkg-config /root/libtow-dev_*.deb
    cd /root
    cc -o shared program.c $(pkg-config --cflags --libs tow) -lm && ./shared
    cc -o archive program.c $(pkg-config --cflags tow) -l:libtow.a $(pkg-config --static --libs tow) && ./archive'
inside 'apt-get remove -y libtow0 && ! test -e /usr/bin/tow && ! ls /usr/lib/*/libtow.so.0'
