#!/bin/sh
# programs.sh FAULT RANDOM_MODELS CC FLAG...: what random_models prints.
#
# FAULT value, derivative: an operation that is wrong is planted in every model. random_models finds it and prints a program
# with nothing else in its model; compiled, that program finds it as well. FAULT bit_of_*: random_models flips a bit of its
# second side in models with a scan, and finds that; the library is right, so the program says so. FAULT nothing: whole
# models, printed as they are, compute the very numbers that random_models computes.
set -u
fault=$1
models=$2
compiler=$3
shift 3
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

die() { echo "programs.sh $fault: $*" >&2; exit 1; }

# compile FILE FLAG...: as $scratch/program, then runs it: its output is $scratch/said.
run_program() {
    file=$1
    shift
    "$compiler" -std=gnu11 -O1 "$file" -o "$scratch/program" "$@" -lm >"$scratch/log" 2>&1 ||
        { cat "$scratch/log"; die "$file does not compile"; }
    "$scratch/program" >"$scratch/said"
}

if [ "$fault" = nothing ]; then
    for seed in 0 5 9 14 23 101 102 106 117; do
        expected=$("$models" --first "$seed" --print "$scratch/m.c") || die "model $seed is not printed"
        run_program "$scratch/m.c" "$@" || die "the program of model $seed fails: $(cat "$scratch/said")"
        [ "$(head -n 1 "$scratch/said")" = "$expected" ] ||
            die "model $seed: expected the hash $expected, its program has $(head -n 1 "$scratch/said")"
    done
    exit 0
fi

# Model 26 is the first with a scan: those long before it, which pass all comparisons, are left out.
near="--first 24"
case $fault in
    value) planted="--fault unsteady" says="^(value|gradient .*), number [0-9]+: " layer="ops n0 = OPS(op_unsteady)" ends=1 ;;
    derivative) planted="--fault wrong_derivative" says="^error: .*derivative with respect to input [0-9]+ .*, by differences " \
        layer="ops n0 = OPS(op_wrong_derivative)" ends=1 ;;
    bit_of_value) planted="$near --flip value" says="^the same bits$" layer="TOW_SCAN(" ends=0 ;;
    bit_of_gradient) planted="$near --flip gradient" says="^the same bits$" layer="TOW_SCAN(" ends=0 ;;
    bit_of_training) planted="$near --flip trained" says="^the same bits$" layer="TOW_SCAN(" ends=0 ;;
    *) die "unknown fault" ;;
esac

# shellcheck disable=SC2086
"$models" --count 60 $planted --output "$scratch/m" >"$scratch/log" 2>&1
[ $? -eq 1 ] || { cat "$scratch/log"; die "expected the exit status 1: a failure that was found"; }
grep -Eq "^[0-9]+ models .* 1 failures" "$scratch/log" || { cat "$scratch/log"; die "expected one failure"; }
program=$(ls "$scratch"/m_*.c) || die "no program was printed"
run_program "$program" "$@"
[ $? -eq "$ends" ] || { cat "$scratch/said"; die "expected the exit status $ends of the printed program"; }
grep -Eq "$says" "$scratch/said" || { cat "$scratch/said"; die "expected '$says' in what the printed program says"; }
grep -Fq "$layer" "$program" || { cat "$program"; die "expected '$layer' in the program"; }

# Shrunk: on the first side, a planted operation is alone, and a scan has at most its body and what that contains.
layers=$(sed -n '/^static results first/,/^}/p' "$program" | grep -Ec '^    (const )?[a-z_]+ \*?n[0-9]+ = ')
[ "$layers" -le $((ends == 1 ? 1 : 3)) ] || { cat "$program"; die "$layers layers are left: it was not shrunk"; }
