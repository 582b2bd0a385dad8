#!/bin/sh
# completion.sh SCRATCH COMPLETION: what bash offers behind `tow ...`.
set -eu
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"
scratch=$1 completion=$2
fresh_directory "$scratch"
needs bash
echo >'a graph.tow'
# offers EXPECTED WORD...: what is offered for the last word, sorted, separated by commas
offers() {
    expected=$1
    shift
    found=$(bash -c 'set -u; . "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tow_complete
        printf "%s\n" "${COMPREPLY[@]}"' "$completion" "$@" | sort | paste -sd,)
    [ "$found" = "$expected" ] || fail "$*: expected '$expected', found '$found'"
}
offers 'check,convert-weights,count,grad,plan,plot,primitives,print,residuals,run,tokenize,vmap' tow ''
offers 'plan,plot,primitives,print' tow p
offers 'residuals,run' tow --json r
offers 'a graph.tow' tow grad a
offers '--jacfwd,--jacrev,--json,--jvp' tow grad --j
offers 'dots,dots_with_no_batch_dims' tow residuals --policy do
offers 'dots,dots_with_no_batch_dims' tow residuals --policy = do
offers 'everything' tow residuals -p e
offers 'a graph.tow' tow run x --input a
offers '' tow run x --threads ''
[ "$(bash -c '. "$0"; complete -p tow' "$completion")" = "complete -F _tow_complete tow" ] || fail "not registered"
