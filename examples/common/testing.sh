# What the tests of examples share. A test.sh reads it first, with the path of the program as its argument; it then is in an empty
# directory that goes away.
set -euo pipefail
program=$(realpath "$1")
name=$(basename "$program")
here=$(dirname "$(realpath "$0")")
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"

fail() {
    printf '%s test: %s\n' "$name" "$*" >&2
    exit 1
}

expect_status() { # expect_status STATUS MESSAGE arguments...: the program ends so, with the message in err
    local expected=$1 message=$2 status=0
    shift 2
    "$program" "$@" >out 2>err </dev/null || status=$?
    [ $status -eq "$expected" ] || fail "$*: expected status $expected, found $status: $(cat err)"
    grep -qF -- "$message" err || fail "$*: expected a message with '$message', found: $(cat err)"
}

interrupt_at() { # interrupt_at TEXT arguments...: Ctrl-C when a line of out begins with TEXT, after which the status is 130
    local text=$1 status=0 pid
    shift
    : >out # so that it is not the output of the run before that is looked at
    "$program" "$@" >out 2>err </dev/null &
    pid=$!
    for _ in $(seq 12000); do
        if grep -q "^$text" out; then break; fi
        sleep 0.005
    done
    kill -INT $pid || fail "ended before Ctrl-C: $(cat out err)"
    wait $pid || status=$?
    [ $status -eq 130 ] || fail "Ctrl-C: expected status 130, found $status: $(cat err)"
}
