#!/usr/bin/env bash
# Gradients of some thousand steps: the bits of the loop that keeps everything, steps by the formula, memory within the limit, and
# files that cannot be written.  test.sh path/to/oscillators
. "$(dirname "$0")/../common/testing.sh"

value() { sed -n "s/^$1 *\([0-9.-]*\).*/\1/p" out; } # of a line of out

"$program" --steps 3000 --oscillators 64 --memory 1 --compare >out || fail "$(cat out)"
grep -q 'the same bits' out || fail "gradients differ: $(cat out)"
[ "$(value 'bytes of memory')" -le $((1 << 20)) ] || fail "more than 1 MiB: $(cat out)"
[ "$(value 'steps forward')" -lt 9000 ] || fail "too many steps: $(cat out)"

# 3,000 steps with 8 slots: C(13, 5) = 1287 < 3000 <= C(14, 6) = 3003, so 3000 + 6 * 3000 - C(14, 5) + 1
"$program" --steps 3000 --oscillators 64 --slots 8 --compare >out
[ "$(value 'steps forward')" = $((7 * 3000 - 2002 + 1)) ] || fail "other steps: $(cat out)"
grep -q 'the same bits' out || fail "gradients differ: $(cat out)"
memory=$(value 'bytes of memory')

# the others in a file: each step runs once more, in hardly more memory
mkdir folder
"$program" --steps 3000 --oscillators 64 --slots 8 --file-slots 2991 --folder folder --compare >out
[ "$(value 'steps forward')" = 6000 ] || fail "other steps: $(cat out)"
grep -q 'the same bits' out || fail "gradients differ: $(cat out)"
[ "$(value 'bytes of memory')" -le $((memory + 2991 * 24 + 8192)) ] || fail "memory: $(cat out), $memory without a file"
[ -z "$(ls folder)" ] || fail "files are left: $(ls folder)"

(
    ulimit -f 100
    expect_status 1 "File too large" --steps 3000 --oscillators 64 --slots 8 --file-slots 2000 --folder folder
)
expect_status 1 "nowhere" --steps 3000 --slots 8 --file-slots 2000 --folder nowhere
expect_status 2 "--slots" --slots 0
