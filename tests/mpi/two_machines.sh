#!/bin/bash
# two_machines.sh: to be sourced, with $scratch set. Two machines on this one: network namespaces with a pair of virtual cards
# whose rate is limited. They go when the script ends.
#   skip WHY             ends with status 77
#   set_up_machines      skips where that is not permitted
#   limit RATE           of both directions, as tc says it: 100mbit
#   run_on_both N SECONDS PROGRAM ARGUMENTS...     N processes, over Open MPI, at most so long; YIELD=0: who waits keeps its
#                        processor
skip() {
    echo "left out: $*"
    exit 77
}
remove_machines() {
    ip netns del "$machine_a" 2>/dev/null || true
    ip netns del "$machine_b" 2>/dev/null || true
}
set_up_machines() {
    [ "$(id -u)" = 0 ] || skip "network namespaces need root"
    for command in ip tc unshare mpirun timeout; do
        command -v "$command" >/dev/null 2>&1 || skip "there is no $command"
    done
    mpirun --version 2>/dev/null | grep -q 'Open MPI' || skip "the options of mpirun are those of Open MPI"
    mkdir -p "$scratch"
    machine_a=towa$$ machine_b=towb$$
    trap remove_machines EXIT
    ip netns add "$machine_a" 2>"$scratch/why" || skip "network namespaces are not permitted: $(cat "$scratch/why")"
    ip netns add "$machine_b"
    ip link add "va$$" type veth peer name vb netns "$machine_b" 2>"$scratch/why" ||
        skip "virtual cards are not permitted: $(cat "$scratch/why")"
    ip link set "va$$" netns "$machine_a" name va
    ip -n "$machine_a" addr add 10.9.0.1/24 dev va
    ip -n "$machine_b" addr add 10.9.0.2/24 dev vb
    ip -n "$machine_a" link set va up
    ip -n "$machine_b" link set vb up
    ip -n "$machine_a" link set lo up
    ip -n "$machine_b" link set lo up
    # mpirun starts its daemon on the other machine with this.
    cat >"$scratch/agent" <<END
#!/bin/sh
host=\$1
shift
case \$host in *.1) space=$machine_a ;; *) space=$machine_b ;; esac
exec ip netns exec \$space unshare --uts sh -c "hostname node\${host##*.}; \$*"
END
    chmod +x "$scratch/agent"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}
limit() { # RATE
    ip netns exec "$machine_a" tc qdisc replace dev va root tbf rate "$1" burst 128kb latency 10ms 2>"$scratch/why" &&
        ip netns exec "$machine_b" tc qdisc replace dev vb root tbf rate "$1" burst 128kb latency 10ms 2>"$scratch/why" ||
        skip "rates cannot be limited: $(cat "$scratch/why")"
}
run_on_both() { # N SECONDS PROGRAM ARGUMENTS...
    local n=$1 seconds=$2
    shift 2
    timeout "$seconds" ip netns exec "$machine_a" unshare --uts sh -c 'hostname node1; exec "$@"' sh \
        mpirun -n "$n" -H 10.9.0.1,10.9.0.2 --map-by node --bind-to none --mca plm_rsh_agent "$scratch/agent" \
        --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include 10.9.0.0/24 --mca oob_tcp_if_include 10.9.0.0/24 \
        --mca mpi_yield_when_idle "${YIELD:-1}" "$@" </dev/null
}
