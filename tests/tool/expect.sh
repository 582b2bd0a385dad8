# Read by tests of the command tow. At the end, `failed` is 1 if any of them failed.
failed=0

# expect STATUS TEXT COMMAND...: exit status, and TEXT somewhere in what is printed
expect() {
    status=$1 text=$2
    shift 2
    "$@" >out 2>&1 </dev/null
    found=$?
    if [ "$found" -ne "$status" ] || { [ -n "$text" ] && ! grep -qF -- "$text" out; }; then
        echo "$*: expected exit status $status and '$text', found $found and:"
        cat out
        failed=1
    fi
}
