#!/bin/sh
# pages.sh ROOT WHAT: pages lead to each other, and none is lost.
#
# index: docs/README.md has five groups, which list every page of docs/ once, in one line each; docs/examples/README.md lists
#        the pages beside it.
# links: every link of a page, of README.md, CONTRIBUTING.md, CHANGELOG.md and the READMEs of other folders leads to a file
#        that is there, and to a section that it has.
# length: README.md has at most 110 lines.
set -u
cd "$1" || exit 1
failed=0

fail() {
    echo "$*"
    failed=1
}

# Lines "page target" for every link [text](target) outside of code, but for those into the web.
links() {
    for page; do
        awk -v page="$page" '
            /^ *```/ { fenced = !fenced }
            fenced || /^    [^-* ]/ { next }
            {
                gsub(/`[^`]*`/, "")
                while (match($0, /\]\([^() ]+\)/)) {
                    target = substr($0, RSTART + 2, RLENGTH - 3)
                    $0 = substr($0, RSTART + RLENGTH)
                    if (target !~ /^[a-z]+:/) print page, target
                }
            }' "$page"
    done
}

# The names of the sections of a page as links spell them: small letters and digits, with "-" for blanks.
sections() {
    awk '
        /^ *```/ { fenced = !fenced }
        !fenced && /^#+ / {
            sub(/^#+ +/, "")
            $0 = tolower($0)
            gsub(/\[|\]\([^)]*\)/, "")
            gsub(/[^a-z0-9_ -]/, "")
            gsub(/ /, "-")
            print seen[$0]++ ? $0 "-" (seen[$0] - 1) : $0
        }' "$1"
}

case $2 in
    index)
        groups=$(sed -n 's/^## //p' docs/README.md | paste -sd ' ')
        [ "$groups" = "Start Use Extend Understand Measure" ] || fail "docs/README.md has the groups: $groups"
        listed=$({ sed -n 's#^- \[\([^]]*\)\](\1) .*\.$#docs/\1#p' docs/README.md
            links docs/examples/README.md | sed 's#^[^ ]* #docs/examples/#'; } | sort)
        there=$({ find docs -name '*.md' -o -path 'docs/man/*'; echo docs/../README.md; echo docs/../CONTRIBUTING.md; } |
            grep -vx docs/README.md | sort)
        twice=$(echo "$listed" | uniq -d)
        [ -z "$twice" ] || fail "pages that are listed twice:
$twice"
        missing=$(echo "$there" | while read -r page; do echo "$listed" | grep -qxF "$page" || echo "$page"; done)
        [ -z "$missing" ] || fail "pages that docs/README.md (docs/examples/README.md) does not list as '- [PAGE](PAGE) says what.':
$missing"
        lines=$(grep -c '^- ' docs/README.md)
        [ "$lines" = "$(grep -c '^- \[\([^]]*\)\](\1) .*\.$' docs/README.md)" ] || fail "lines of docs/README.md that list no page"
        ;;
    links)
        found=$(links README.md CONTRIBUTING.md CHANGELOG.md $(find docs examples tests share -name '*.md' | sort))
        [ "$(echo "$found" | wc -l)" -gt 200 ] || fail "found only $(echo "$found" | wc -l) links: an empty test"
        broken=$(echo "$found" | while read -r page target; do
            file=${target%%#*}
            if [ -n "$file" ]; then file=$(dirname "$page")/$file; else file=$page; fi
            if [ ! -e "$file" ]; then
                echo "$page: no file $target"
            elif [ "$target" != "${target#*#}" ] && [ "${file%.md}" != "$file" ]; then
                sections "$file" | grep -qxF "${target#*#}" || echo "$page: no section $target"
            fi
        done)
        [ -z "$broken" ] || fail "links that lead nowhere:
$broken"
        ;;
    length)
        lines=$(wc -l <README.md)
        [ "$lines" -le 110 ] || fail "README.md has $lines lines, at most 110; pages of docs/ have the rest"
        ;;
    *) fail "expected index, links or length, found '$2'" ;;
esac
exit "$failed"
