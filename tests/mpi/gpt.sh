#!/bin/sh
# gpt.sh SCRATCH GPT WHAT [COUNT]: the example gpt over mpirun (or $MPIEXEC), with more processes than processors. Status 77:
# there is no mpirun.
#   losses    those of one process, to the last bit, with dropped and resumed runs on other numbers of processes
#   shares    the same where processes have shares of the state, in each stage
#   differs   processes with other options are refused, with what differs, but for memory limits
#   fails     a process that cannot read its text ends all, with its message
set -eu
scratch=$1 program=$(realpath "$2") what=$3 count=${4:-2}
run=${MPIEXEC:-mpirun}
command -v "$run" >/dev/null 2>&1 || {
    echo "left out: there is no $run (Debian: openmpi-bin, mpich)"
    exit 77
}
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"
fail() {
    cat out err 2>/dev/null || true
    echo "gpt.sh: $*" >&2
    exit 1
}
# Of Open MPI; others do not know them.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_base_warn_component_unused=0
export HYDRA_IFACE="${HYDRA_IFACE:-lo}"
i=0
while [ $i -lt 400 ]; do
    echo "line $i of a text about $((i * i % 97)) things"
    i=$((i + 1))
done >text
small="--text text --layers 3 --width 16 --heads 2 --context 16 --batch 8 --row-groups 8 --threads 1 --no-sample --eval-every 2"
losses() { sed -n 's/.*"step": \([0-9]*\).*"loss": \([^,}]*\).*/\1 \2/p' "$1"; }
case $what in
    losses)
        # shellcheck disable=SC2086
        "$program" $small --steps 4 --log one >out 2>err || fail "one process"
        # shellcheck disable=SC2086
        timeout 100 "$run" -n "$count" "$program" $small --steps 4 --log many >out 2>err </dev/null || fail "$count processes"
        [ -n "$(losses one)" ] || fail "no losses"
        [ "$(losses one)" = "$(losses many)" ] || fail "$count processes have other losses: $(losses many)"
        [ "$(grep -c '^planned memory' out)" -eq 1 ] || fail "expected one report"
        # Two steps in so many processes, and two more in others.
        # shellcheck disable=SC2086
        timeout 100 "$run" -n "$count" "$program" $small --steps 2 --warmup 1 --checkpoint saved >out 2>err </dev/null || fail "saving"
        # shellcheck disable=SC2086
        "$program" $small --steps 4 --warmup 1 --checkpoint saved --resume --log resumed >out 2>err || fail "resuming"
        # shellcheck disable=SC2086
        "$program" $small --steps 2 --warmup 1 --checkpoint whole >out 2>err || fail "one process, saving"
        cmp saved/checkpoint.safetensors whole/checkpoint.safetensors >/dev/null 2>&1 && fail "expected the resumed run to save"
        # shellcheck disable=SC2086
        timeout 100 "$run" -n 3 "$program" $small --steps 4 --warmup 1 --checkpoint whole --resume >out 2>err </dev/null || fail "resuming on 3"
        cmp saved/checkpoint.safetensors whole/checkpoint.safetensors || fail "the resumed runs have other parameters"
        echo "$count processes: the losses and parameters of one"
        ;;
    shares)
        # shellcheck disable=SC2086
        "$program" $small --steps 4 --log one >out 2>err || fail "one process"
        # shellcheck disable=SC2086
        "$program" $small --steps 2 --warmup 1 --checkpoint whole >out 2>err || fail "one process, saving"
        # shellcheck disable=SC2086
        "$program" $small --steps 4 --warmup 1 --checkpoint whole --resume >out 2>err || fail "one process, resuming"
        for stage in 1 2 3; do
            # shellcheck disable=SC2086
            timeout 100 "$run" -n "$count" "$program" $small --steps 4 --shard $stage --log many >out 2>err </dev/null || fail "stage $stage"
            [ "$(losses one)" = "$(losses many)" ] || fail "stage $stage has other losses: $(losses many)"
            # Two steps, and two more in another number of processes without shares.
            rm -rf saved
            # shellcheck disable=SC2086
            timeout 100 "$run" -n "$count" "$program" $small --steps 2 --warmup 1 --shard $stage --checkpoint saved >out 2>err </dev/null || fail "saving"
            # shellcheck disable=SC2086
            timeout 100 "$run" -n 3 "$program" $small --steps 4 --warmup 1 --checkpoint saved --resume >out 2>err </dev/null || fail "resuming"
            cmp saved/checkpoint.safetensors whole/checkpoint.safetensors || fail "stage $stage: other parameters"
        done
        # Micro-batches, and text from parameters of which no process has all.
        # shellcheck disable=SC2086
        "$program" $small --steps 2 --sample 40 >alone 2>err || fail "one process, text"
        # shellcheck disable=SC2086
        timeout 100 "$run" -n "$count" "$program" $small --steps 2 --shard 3 --micro-batches 8 --sample 40 >out 2>err </dev/null || fail "text of shares"
        [ "$(sed -n '/^text from the model/,$p' out)" = "$(sed -n '/^text from the model/,$p' alone)" ] || fail "another text"
        echo "$count processes with shares: the losses and parameters of one"
        ;;
    differs)
        # shellcheck disable=SC2086
        if timeout 100 "$run" -n 1 "$program" $small --steps 2 : -n 1 "$program" $small --steps 2 --seed 7 >out 2>err </dev/null; then fail "status 0"; fi
        grep -q "the seed is 0 at rank 0 (.*), and 7 at rank 1 (" err || grep -q "description is .*seed 0.*seed 7" err || fail "expected the seeds"
        # shellcheck disable=SC2086
        if timeout 100 "$run" -n 1 "$program" $small --steps 1 : -n 1 "$program" $small --steps 1 --curve curve.svg >out 2>err </dev/null; then fail "status 0"; fi
        grep -q ", and 1, .*, curve at rank 1 (" err || fail "expected the curve"
        # A memory limit may differ.
        # shellcheck disable=SC2086
        timeout 100 "$run" -n 1 "$program" $small --steps 1 : -n 1 "$program" $small --steps 1 --memory-limit 100% >out 2>err </dev/null || fail "a limit at rank 1"
        ;;
    fails)
        # shellcheck disable=SC2086
        if timeout 100 "$run" -n 1 "$program" $small --steps 2 : -n 1 "$program" $small --steps 2 --text none >out 2>err </dev/null; then fail "status 0"; fi
        grep -q "gpt: none: " err || fail "expected the message about the text"
        grep -q "tow: rank 1 (.*): ends the run" err || fail "expected rank 1"
        ;;
    *) fail "unknown test" ;;
esac
