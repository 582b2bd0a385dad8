#!/bin/sh
# mpi.sh SCRATCH PROGRAM WHAT [COUNT]: runs test_mpi over mpirun (or $MPIEXEC), more processes than there are processors, as
# root where the caller is root. Status 77: there is no mpirun.
set -eu
scratch=$1 program=$2 what=$3 count=${4:-2}
mkdir -p "$scratch"
run=${MPIEXEC:-mpirun}
command -v "$run" >/dev/null 2>&1 || {
    echo "left out: there is no $run (Debian: openmpi-bin, mpich)"
    exit 77
}
fail() {
    cat "$scratch/$what.log"
    echo "mpi.sh: $*" >&2
    exit 1
}
# Of Open MPI; others do not know them.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_base_warn_component_unused=0
# A host name that nobody can look up is no hindrance on one machine.
export HYDRA_IFACE="${HYDRA_IFACE:-lo}"

# True while processes of the program run; those that have ended and that nobody has asked for are none.
real=$(realpath "$program")
any_alive() { [ -n "$(find /proc/[0-9]*/exe -maxdepth 0 -lname "$real" 2>/dev/null)" ]; }

begin=$(date +%s)
status=0
"$run" -n "$count" "$program" "$what" >"$scratch/$what.log" 2>&1 </dev/null &
launcher=$!
# After a failure, the mpirun of Open MPI 4.1 sometimes waits for itself (in PMIx_server_finalize) when all processes have
# ended. That is not what is tested.
case $what in
    aborts | killed | stops)
        empty=0
        while kill -0 "$launcher" 2>/dev/null && [ "$empty" -lt 20 ]; do
            sleep 0.5
            if any_alive; then empty=0; else empty=$((empty + 1)); fi
        done
        if kill -9 "$launcher" 2>/dev/null; then echo "$run did not end by itself; all its processes had ended"; fi
        ;;
esac
wait "$launcher" || status=$?
seconds=$(($(date +%s) - begin))
says() { grep -q -- "$1" "$scratch/$what.log" || fail "expected '$1'"; }
case $what in
    sums | own)
        [ "$status" -eq 0 ] || fail "status $status"
        says "^$count ranks: all sums are equal"
        cat "$scratch/$what.log"
        ;;
    saves)
        [ "$status" -eq 0 ] || fail "status $status"
        says "^$count ranks: all files are whole"
        ;;
    differs)
        [ "$status" -ne 0 ] || fail "status 0"
        for rank in 0 1; do
            says "rank $rank: the programs of a group must be the same: seed is 1 at rank 0 (.*), and 2 at rank 1 ("
        done
        ;;
    aborts | killed)
        [ "$status" -ne 0 ] || fail "status 0"
        [ "$what" = killed ] || says "tow: rank 1 (.*process [0-9]*): the file is not there"
        [ "$seconds" -lt 60 ] || fail "took $seconds seconds, as long as the watchdog"
        ;;
    stops)
        [ "$status" -ne 0 ] || fail "status 0"
        says "tow: rank 1 (.*): nothing has moved for 1 s: .*step 12, gpt.c:41"
        says "tow: rank 2 (.*): nothing has moved for 1 s: .*step 12, gpt.c:41"
        says "tow: rank 0 (.*) has not arrived"
        [ "$(grep -c 'has not arrived' "$scratch/$what.log")" -eq 1 ] || fail "expected one rank that has not arrived"
        ;;
    *) fail "unknown test" ;;
esac
