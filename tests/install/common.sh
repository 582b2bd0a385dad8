# What the scripts of this folder share. Sourced; $1 of each script is a directory of its own, made anew.
# Exit status 77 means: left out, with the reason printed.

fail() { printf '%s: %s\n' "$0" "$*" >&2; exit 1; }
skip() { printf 'left out: %s\n' "$*"; exit 77; }

# quietly COMMAND...: prints what it says only if it fails
quietly() {
    "$@" >log 2>&1 || { cat log >&2; fail "failed: $*"; }
}

fresh_directory() {
    rm -rf "$1"
    mkdir -p "$1"
    cd "$1" || exit 1
}

needs() {
    for needed; do
        command -v "$needed" >/dev/null 2>&1 || skip "$needed is not installed"
    done
}
