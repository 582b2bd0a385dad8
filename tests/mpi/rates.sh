#!/bin/bash
# rates.sh SCRATCH PROGRAM: two machines on this one (network namespaces with a pair of virtual cards whose rate is limited),
# and the time of collectives between them beside that of the model of docs/scaling.md. Status 77: not permitted here.
set -eu
scratch=$1 program=$2
skip() {
    echo "left out: $*"
    exit 77
}
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
for command in ip tc unshare mpirun timeout; do
    command -v "$command" >/dev/null 2>&1 || skip "there is no $command"
done
mpirun --version 2>/dev/null | grep -q 'Open MPI' || skip "the options of mpirun are those of Open MPI"
mkdir -p "$scratch"
id=$$
a=towa$id b=towb$id
clean() {
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
}
trap clean EXIT
ip netns add "$a" 2>"$scratch/why" || skip "network namespaces are not permitted: $(cat "$scratch/why")"
ip netns add "$b"
ip link add "va$id" type veth peer name vb netns "$b" 2>"$scratch/why" || skip "virtual cards are not permitted: $(cat "$scratch/why")"
ip link set "va$id" netns "$a" name va
ip -n "$a" addr add 10.9.0.1/24 dev va
ip -n "$b" addr add 10.9.0.2/24 dev vb
ip -n "$a" link set va up
ip -n "$b" link set vb up
ip -n "$a" link set lo up
ip -n "$b" link set lo up

# mpirun starts its daemon on the other machine with this.
cat >"$scratch/agent" <<END
#!/bin/sh
host=\$1
shift
case \$host in *.1) space=$a ;; *) space=$b ;; esac
exec ip netns exec \$space unshare --uts sh -c "hostname node\${host##*.}; \$*"
END
chmod +x "$scratch/agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

limit() { # RATE: both ways
    ip netns exec "$a" tc qdisc replace dev va root tbf rate "$1" burst 128kb latency 10ms 2>"$scratch/why" || return 1
    ip netns exec "$b" tc qdisc replace dev vb root tbf rate "$1" burst 128kb latency 10ms
}
run() { # BITS_PER_SECOND BYTES,... REPEATS
    timeout 100 ip netns exec "$a" unshare --uts sh -c 'hostname node1; exec "$@"' sh \
        mpirun -n 2 -H 10.9.0.1,10.9.0.2 --map-by node --bind-to none --mca plm_rsh_agent "$scratch/agent" \
        --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include 10.9.0.0/24 --mca oob_tcp_if_include 10.9.0.0/24 \
        --mca mpi_yield_when_idle 1 "$program" --bytes "$2" --repeat "$3" --bandwidth "$1" --latency 100e-6
}

# The rate counts the headers of packets, of which the model knows nothing (4 to 6 %), and lets the first 128 KiB pass at once. A
# machine that is busy makes times longer, so only with TOW_STRICT_RATES=1 they may be at most 15 % longer than predicted.
most=8
[ "${TOW_STRICT_RATES:-0}" = 0 ] || most=1.15
failed=0
for rate in 100 1000; do
    limit "${rate}mbit" || skip "rates cannot be limited: $(cat "$scratch/why")"
    bytes=$((rate * 1000000 / 8 / 2)) # half of it goes each way, in a quarter of a second
    run "${rate}e6" "$bytes" 3 >"$scratch/rate$rate" 2>&1 || { cat "$scratch/rate$rate"; exit 1; }
    echo "$rate Mbit/s:"
    grep -E '^(coll|reduce|all)' "$scratch/rate$rate"
    awk -v most="$most" '/^(reduce|all)/ { r = $3 / $5; printf "  %-15s measured / predicted %.3f\n", $1, r
        if (r < 0.9 || r > most) bad = 1 } END { exit bad }' "$scratch/rate$rate" || failed=1
done
exit $failed
