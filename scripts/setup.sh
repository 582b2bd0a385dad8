# Shared by train.sh and test.sh: installs what is missing, configures and builds a preset. Sourced, not run.

# Debian packages that Tow is built with. build-essential and pkg-config bring the compiler and find the libraries.
TOW_PACKAGES="build-essential cmake ninja-build pkg-config libblis-openmp-dev libxsmm-dev libjansson-dev libmd-dev libcmocka-dev"

say() { printf '%s\n' "tow: $*" >&2; }
die() { say "$*"; exit 1; }

# Installs the missing packages of TOW_PACKAGES; does nothing, and needs no rights, when all are there.
install_missing() {
    command -v dpkg-query >/dev/null 2>&1 || {
        say "this is not a Debian system: expecting a C11 compiler, cmake >= 3.25, ninja, pkg-config, jansson, libmd and cmocka to be installed"
        return 0
    }
    missing=""
    for package in $TOW_PACKAGES; do
        status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) || status=""
        case $status in
            "install ok installed") ;;
            *) missing="$missing $package" ;;
        esac
    done
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" = 0 ]; then
        as_root="env"
    elif command -v sudo >/dev/null 2>&1; then
        as_root="sudo env"
    else
        die "missing packages:$missing. Neither root nor sudo is available; as root, run: apt-get install$missing"
    fi
    say "installing Debian packages:$missing"
    $as_root DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null >&2 || say "apt-get update failed; trying with the lists at hand"
    # shellcheck disable=SC2086
    $as_root DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing </dev/null >&2 ||
        die "could not install:$missing. Install them by hand and run this script again"
}

is_preset() {
    case $1 in
        release | debug | sanitize | reference | avx2) return 0 ;;
        *) return 1 ;;
    esac
}

# build PRESET [cmake arguments]: configures and builds build/PRESET. Prints the log only if something fails.
build() {
    preset=$1
    shift
    say "building preset $preset in build/$preset"
    mkdir -p "build/$preset"
    log="build/$preset/setup.log"
    { cmake --preset "$preset" "$@" && cmake --build --preset "$preset"; } >"$log" 2>&1 </dev/null || {
        tail -n 80 "$log" >&2
        die "building preset $preset failed; the whole log is in $log"
    }
}
