# Shared by the other scripts: installs what is missing, configures and builds a preset. Sourced, not run.

# Debian packages that Tow is built and tested with. build-essential and pkg-config bring the compiler and find the libraries; file
# tells CPack what is a program.
TOW_PACKAGES="build-essential cmake ninja-build pkg-config libblis-openmp-dev libxsmm-dev libjansson-dev libmd-dev zlib1g-dev libxxhash-dev libpcre2-dev libcmocka-dev file"

say() { printf '%s\n' "tow: $*" >&2; }
die() { say "$*"; exit 1; }

# as_root [VARIABLE=VALUE]... COMMAND...
as_root() {
    if [ "$(id -u)" = 0 ]; then env "$@"; else sudo env "$@"; fi
}

# is_installed PACKAGE[:ARCHITECTURE]. Without one it is this machine's: the same package may be there for others, too.
is_installed() {
    case $1 in
        *:*) wanted=${1#*:} ;;
        *) wanted=$(dpkg --print-architecture) ;;
    esac
    dpkg-query -W -f '${Status} ${Architecture}\n' "$1" 2>/dev/null | grep -qxE "install ok installed ($wanted|all)"
}

# install_missing [PRESET]: installs the missing packages of TOW_PACKAGES and of the preset; does nothing, and needs no rights,
# when all are there.
install_missing() {
    command -v dpkg-query >/dev/null 2>&1 || {
        say "this is not a Debian system: expecting a C11 compiler, cmake >= 3.25, ninja, pkg-config, jansson, libmd, zlib, xxhash and cmocka to be installed"
        return 0
    }
    missing=""
    for package in $TOW_PACKAGES $(packages_of "${1:-}"); do
        is_installed "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null 2>&1 ||
        die "missing packages:$missing. Neither root nor sudo is available; as root, run: apt-get install$missing"
    say "installing Debian packages:$missing"
    case $missing in
        *:arm64*) as_root dpkg --add-architecture arm64 || die "dpkg --add-architecture arm64 failed" ;;
    esac
    as_root DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null >&2 || say "apt-get update failed; trying with the lists at hand"
    # shellcheck disable=SC2086
    as_root DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing </dev/null >&2 ||
        die "could not install:$missing. Install them by hand and run this script again"
}

# Further packages of a preset: its compiler, and what goes with it. With clang, BLIS needs the OpenMP of clang. Of "long": what
# long tests of the release preset count instructions with, and the browser in which they open the page of a plan. Of "mpi": what
# its tests of groups over MPI run with. Of "ccache": what compiles once what presets have in common.
packages_of() {
    case $1 in
        long) echo "valgrind chromium" ;;
        clang) echo "clang libomp-dev" ;;
        fuzz | fuzz-fast) echo "clang libclang-rt-14-dev" ;;
        ccache) echo "ccache" ;;
        mpi) echo "openmpi-bin libopenmpi-dev" ;;
        arm64) echo "gcc-aarch64-linux-gnu qemu-user-static libc6-dev:arm64 libblis-openmp-dev:arm64 libjansson-dev:arm64 libmd-dev:arm64 zlib1g-dev:arm64 libxxhash-dev:arm64 libcmocka-dev:arm64" ;;
    esac
}

# The names in CMakePresets.json, one per line: those of its first list, without the hidden one.
presets() {
    sed -n -e '/"buildPresets"/q' -e 's/^ *"name": "\(.*\)",$/\1/p' CMakePresets.json | grep -vx base
}

is_preset() { presets | grep -qxF -e "$1"; }

# show_build LOG: copies what a build prints to a file, and says how far ninja is: on a terminal in one line that changes, else in
# a line for each tenth of a long build.
show_build() {
    : >"$1"
    shown=0
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$1"
        done=${line%%/*}
        done=${done#\[}
        total=${line#*/}
        total=${total%%\]*}
        case $line:$done$total in
            \[*/*\]*:*[!0-9]*) continue ;;
            \[*/*\]*) ;;
            *) continue ;;
        esac
        if [ -t 2 ]; then
            printf '\r\033[K[%s/%s]' "$done" "$total" >&2
        elif [ "$total" -ge 20 ] && [ $((10 * done / total)) -gt "$shown" ]; then
            shown=$((10 * done / total))
            say "built $done of $total"
        fi
    done
    [ ! -t 2 ] || printf '\r\033[K' >&2
}

# build PRESET [cmake arguments]: configures and builds build/PRESET, all of it or $targets, which are fewer for who runs fewer:
# the objects of the library are the same. Prints the log only if something fails. TOW_LAUNCHER=ccache in the environment: what
# starts the compiler.
targets=""
build() {
    preset=$1
    shift
    say "building preset $preset in build/$preset"
    mkdir -p "build/$preset"
    log="build/$preset/setup.log"
    # shellcheck disable=SC2086
    failed=$({
        {
            {
                cmake --preset "$preset" ${TOW_LAUNCHER:+"-DCMAKE_C_COMPILER_LAUNCHER=$TOW_LAUNCHER"} "$@" &&
                    cmake --build --preset "$preset" ${targets:+--target $targets}
            } 2>&1 </dev/null || echo yes >&3
        } | show_build "$log"
    } 3>&1) || failed=yes
    [ -z "$failed" ] || {
        tail -n 80 "$log" >&2
        die "building preset $preset failed; the whole log is in $log"
    }
}
