#!/bin/sh
# man.sh SCRATCH PAGE PROGRAM COMPLETION: the manual page is well formed and has every option of the program's --help, and no
# other; so has the completion of bash.
set -eu
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"
scratch=$1 page=$2 program=$3 completion=$4
fresh_directory "$scratch"
name=$(basename "$page" .1)

"$program" --help | grep -o -- '--[a-z][a-z-]*' | sort -u >help
[ "$(wc -l <help)" -gt 10 ] || fail "--help has few options"
# Options of the page are those of its lists: .It Fl -name
sed -n '/^\.It/s/ Fl -\([a-z-]*\)/\n--\1\n/gp' "$page" | grep '^--' | sort -u >in_page
diff help in_page >difference || { cat difference; fail "--help (<) and the manual page (>) differ"; }
"$program" --version | grep -q "^$name .*[0-9]\.[0-9]" || fail "--version: $("$program" --version)"

# What bash offers for "--" are the long options.
bash -c "set -u; . '$completion'; COMP_WORDS=($name --); COMP_CWORD=1; COMP_LINE='$name --'; COMP_POINT=\${#COMP_LINE}
    _${name}_complete; printf '%s\n' \"\${COMPREPLY[@]}\"" | sed 's/[= ]*$//' | sort -u >in_completion
diff help in_completion >difference || { cat difference; fail "--help (<) and the completion (>) differ"; }

if command -v mandoc >/dev/null 2>&1; then
    mandoc -T lint -W warning "$page" >lint || { cat lint; fail "mandoc finds mistakes"; }
elif command -v groff >/dev/null 2>&1; then
    groff -mdoc -ww -z -T utf8 "$page" 2>lint
    [ ! -s lint ] || { cat lint; fail "groff finds mistakes"; }
else
    skip "neither mandoc nor groff is installed to check the page (its options are right)"
fi
