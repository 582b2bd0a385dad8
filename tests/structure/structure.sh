#!/bin/sh
# structure.sh ROOT WHAT: what no compiler checks about the sources.
#
# arrows: every include between folders of the library is in arrows.txt, and every entry there is used; a public header
#         counts as a header of the folder that arrows.txt names first for it.
# circles: files include each other in one direction, a .c with the header of its name; but for folders in which a header
#         belongs to several files. Public headers do, too, without exception.
# names:  plans, running and kernels compare no names, outside the files that find primitives, passes and kernels by name.
# regions: no file compares an equation with a primitive that has nested graphs, but the one that defines it; nor does a
#         table list them by name.
# traits: no table in src/plan says something about each of several primitives; their descriptors do.
# types:  no two files define a type of one tow__ name.
# homes:  functions are defined in the folder of the header that declares them, those of a public header in one of the
#         folders that arrows.txt names for it.
# tests:  every FOLDER/PART/NAME.c of the library has the test tests/unit/FOLDER/PART/test_NAME.c, or the head comment of
#         a test names it: "Tests fuse.c, row_program.c, gemm*.c." means files of the test's own folder, "Tests
#         tile/tiles.c" those below its first folder, or below src or the root. Unit tests are where the build looks for
#         them, in folders that are named after those of the library.
# frames: functions that look at the frame of their caller are not inlined into it.
# comments: no comment begins a sentence with a clause instead of a subject ("What is kept.").
# columns: no line of C or C++ has more than 120, but for files that are written by scripts.
set -u
root=$1
cd "$root" || exit 1
failed=0

fail() {
    echo "$*"
    failed=1
}

sources() {
    find src layers transforms -name '*.[ch]' -o -name '*.inc' | sort
}

# Lines "folder other", once each, for every include of a header of another folder. The folder of src/plan/ir.h is plan,
# that of layers/dense.c layers; arrows.txt says which folders a public header belongs to. tow.h, which includes all,
# counts as none.
includes() {
    { sources; find include/tow -name '*.h' ! -name tow.h; } | sort | xargs awk '
        function folder(path,   parts) {
            split(path, parts, "/")
            return parts[1] == "src" ? parts[2] : parts[1]
        }
        FILENAME ~ /arrows\.txt$/ {
            if ($1 !~ /^tow\//) next
            sub(/:/, "", $1)
            first[$1] = $2
            for (i = 2; i <= NF; i++) owns[$i, $1] = 1
            next
        }
        FNR == 1 {
            header = FILENAME
            public = sub(/^include\//, "", header)
            from = public ? first[header] : folder(FILENAME)
        }
        /^ *# *include "/ {
            split($0, quoted, "\"")
            to = quoted[2]
            if (to == "tow/tow.h") next
            if (to ~ /^tow\//) to = (from, to) in owns ? from : first[to]
            else if (to ~ /^(src|layers|transforms)\//) to = folder(to)
            else next
            if (to != from) print from, to
        }' tests/structure/arrows.txt | sort -u
}

arrows() {
    grep -v -e '^#' -e '^tow/' tests/structure/arrows.txt | sed 's/://' | while read -r from rest; do
        for to in $rest; do echo "$from $to"; done
    done | sort -u
}

# Lines "name file" for every struct, union, enum and typedef that a file of the library defines with a name tow__...;
# an announcement of a struct ("struct tow__x;", "typedef struct tow__x tow__x;") defines nothing.
types() {
    sources | xargs awk '
        function define(rest) { if (match(rest, /tow__[a-z0-9_]+/)) print substr(rest, RSTART, RLENGTH), FILENAME }
        /^typedef (struct|union|enum) (tow__[a-z0-9_]+) tow__[a-z0-9_]+;/ { if ($3 ";" != $4) define($4); next }
        /^(typedef )?(struct|union|enum) tow__[a-z0-9_]+ \{/ || /^\} tow__[a-z0-9_]+;/ { define($0); next }
        /^typedef .*\(\*?tow__[a-z0-9_]+\)\(/ { sub(/^[^(]*\(/, ""); define($0); next }
        /^typedef .*[ *]tow__[a-z0-9_]+(\[.*\])?;/ { sub(/.*[ *]tow__/, "tow__"); define($0); next }
        /^typedef .*[ *]tow__[a-z0-9_]+\(/ { sub(/\(.*/, ""); sub(/.*[ *]tow__/, "tow__"); define($0) }' | sort -u
}

# Lines "name region", or "name -" without a description of nested graphs, for every descriptor in the files given.
descriptors() {
    awk '
        FNR == 1 { text = "" }
        /^TOW__PRIMITIVE\(/ { text = " " }
        text != "" { text = text $0 " " }
        text != "" && /;$/ {
            name = text
            sub(/^ *TOW__PRIMITIVE\( */, "", name)
            sub(/,.*/, "", name)
            print name, text ~ /\.region = / ? "region" : "-"
            text = ""
        }' "$@"
}

# The primitives with nested graphs, one a line: those with a description of them, and all that are defined beside them.
regions() {
    { sources | grep '\.c$' | xargs cat | descriptors | sed -n 's/ region$//p'
      descriptors src/autodiff/regions/*.c | sed 's/ .*//'; } | sort -u
}

# Lines "name folder" for every function with a name tow_... that is defined and not static.
defined() {
    sources | grep '\.c$' | xargs awk '
        FNR == 1 { name = "" }
        /^(static|typedef|#)/ { name = ""; next }
        /^[a-z_].*[ *]tow_[a-z0-9_]+\(/ && !/=/ {
            name = $0
            sub(/\(.*/, "", name)
            sub(/.*[ *]/, "", name)
        }
        name != "" && /;/ { name = "" }
        name != "" && /^\{/ {
            folder = FILENAME
            sub("/[^/]*$", "", folder)
            print name, folder
            name = ""
        }' | sort -u
}

# The same for every function that a header of the library declares, with the header behind it.
declared() {
    { sources | grep '\.h$'; find include/tow -name '*.h'; } | xargs awk '
        FNR == 1 { name = "" }
        /^(static|typedef|#)/ { name = ""; next }
        /^([a-z_]|TOW_API).*[ *]tow_[a-z0-9_]+\(/ && !/=/ {
            name = $0
            match(name, /[ *]tow_[a-z0-9_]+\(/)
            name = substr(name, RSTART + 1, RLENGTH - 2)
        }
        name != "" && /;/ {
            folder = FILENAME
            sub("/[^/]*$", "", folder)
            print name, folder, FILENAME
            name = ""
        }' | sort -u
}

# Lines "folder header": public headers belong to these folders.
owners() {
    sed -n 's#^tow/#include/tow/#p' tests/structure/arrows.txt | sed 's/://' | while read -r header rest; do
        for folder in $rest; do echo "$folder $header"; done
    done
}

# The files that tests name or are named after, one a line: "src/plan/fuse/fuse.c tests/unit/plan/fuse/test_fuse.c". A
# name for which there is no file has "-" before it.
tested() {
    {
        find tests/unit -name 'test_*.c' | sed -E 's#^tests/unit/(.*)test_([^/]*)$#& \1\2 .#'
        find tests/unit tests/mpi tests/property tests/tool -name 'test_*.c' -o -name 'cases_*.c' -o -name '*.sh' | xargs awk '
            FNR == 1 { text = ""; head = 1 }
            FILENAME ~ /\.sh$/ && !/^#/ { head = 0 }
            head {
                line = $0
                sub(/^ *[*#]+/, "", line)
                text = text " " line
                gsub(/ +/, " ", text)
                if (/\*\// || FILENAME ~ /\.sh$/) {
                    while (match(text, /Tests [a-z0-9_*\/]+\.c(, +[a-z0-9_*\/]+\.c)*/)) {
                        n = split(substr(text, RSTART + 6, RLENGTH - 6), names, /, +/)
                        text = substr(text, RSTART + RLENGTH)
                        for (i = 1; i <= n; i++) print FILENAME, names[i], "named"
                    }
                }
                if (/\*\//) head = 0
            }'
    } | while read -r test name how; do
        own=${test#tests/*/} first=${test#tests/*/}
        own=${own%/*} first=${first%%/*}
        found=
        set -f
        case $how:$name in
            .:*) places="src/$name $name" ;;
            *:*/*) places="src/$first/$name src/$name $name" ;;
            *) places="src/$own/$name $own/$name" ;;
        esac
        set +f
        for place in $places; do
            [ -f "$place" ] || continue
            found=$place
            echo "$place $test"
        done
        [ -n "$found" ] || [ "$how" = . ] || echo "- $test $name"
    done
}

case $2 in
    arrows)
        found=$(mktemp) allowed=$(mktemp)
        trap 'rm -f "$found" "$allowed"' EXIT
        includes >"$found"
        arrows >"$allowed"
        [ -s "$found" ] || fail "no includes found: is $root the checkout?"
        new=$(comm -23 "$found" "$allowed")
        [ -z "$new" ] || fail "includes that tests/structure/arrows.txt does not allow (folder, other folder):
$new"
        unused=$(comm -13 "$found" "$allowed")
        [ -z "$unused" ] || fail "entries of tests/structure/arrows.txt that nothing uses any more; remove them:
$unused"
        arrows | tsort >/dev/null 2>&1 || fail "the entries of tests/structure/arrows.txt go round in a circle:
$(arrows | tsort 2>&1 >/dev/null)"
        for header in include/tow/*.h; do
            [ "$header" = include/tow/tow.h ] || owners | grep -q " $header\$" ||
                fail "tests/structure/arrows.txt does not say which folder $header belongs to"
        done
        for header in $(owners | sed 's/.* //' | sort -u); do
            [ -f "$header" ] || fail "tests/structure/arrows.txt names $header, which is not there"
        done
        ;;
    circles)
        pairs=$(sources | grep -vE '^src/(base|graph|kernels|ops|plan|train)/' | xargs awk '
            /^ *# *include "(src|layers|transforms)\// {
                split($0, quoted, "\"")
                from = FILENAME
                sub(/\.[a-z]*$/, "", from)
                sub(/\.[a-z]*$/, "", quoted[2])
                if (from != quoted[2]) print from, quoted[2]
            }')
        [ -n "$pairs" ] || fail "no includes found: is $root the checkout?"
        echo "$pairs" | tsort >/dev/null 2>&1 || fail "files include each other in a circle:
$(echo "$pairs" | tsort 2>&1 >/dev/null)"
        pairs=$(grep -H '^ *# *include ["<]tow/' include/tow/* | sed -E 's#^include/([^:]*):.*["<](tow/[^">]*).*#\1 \2#')
        [ -n "$pairs" ] || fail "no includes found: is $root the checkout?"
        echo "$pairs" | tsort >/dev/null 2>&1 || fail "public headers include each other in a circle:
$(echo "$pairs" | tsort 2>&1 >/dev/null)"
        ;;
    names)
        compares=$(sources | grep -E '^src/(plan|run|kernels)/' | xargs grep -n 'strn*cmp(' |
            grep -v -e '^src/plan/operations.c:' -e '^src/plan/pipeline.c:' -e '^src/kernels/registry.c:' -e '^src/kernels/products/gemm.c:' -e '^src/kernels/context.c:')
        [ -z "$compares" ] || fail "comparisons of names; compare descriptors or ask for traits (src/graph/primitive.h):
$compares"
        ;;
    regions)
        regions=$(regions | paste -sd '|')
        [ -n "$regions" ] || fail "no descriptors found: is $root the checkout?"
        away=$(sources | grep '\.c$' | grep -v '^src/autodiff/regions/' | xargs cat | descriptors | sed -n 's/ region$//p')
        [ -z "$away" ] || fail "regions outside of src/autodiff/regions:
$away"
        compares=$(sources | xargs grep -nE -e "[=!]= *&tow__($regions)_p\b" -e "TOW__(IS|COMPUTES)\([^()]*, *($regions)\)" \
            -e "(strn*cmp|primitive_find)\(.*\"($regions)\"" -e "(\{|\] *=) *\"($regions)\"" |
            while IFS= read -r line; do
                file=${line%%:*}
                own=$(descriptors "$file" | sed 's/ .*//' | paste -sd '|')
                # the loop that reads a replay's rows one by one is a file of its own
                [ "$file" = src/autodiff/regions/fetch.c ] && own=replay
                echo "$line" | grep -qE "&tow__(${own:-none})_p\b" || echo "$line"
            done)
        [ -z "$compares" ] || fail "comparisons with regions; ask the descriptor (src/graph/region.h):
$compares"
        ;;
    traits)
        tables=$(sources | grep '^src/plan/' | xargs grep -nE '^ *\{ *&tow__[a-z_0-9]+_p *,[^;]*\},')
        [ -z "$tables" ] || fail "tables of primitives; make a field of the descriptor (src/graph/primitive.h):
$tables"
        ;;
    types)
        found=$(types)
        [ -n "$found" ] || fail "no types found: is $root the checkout?"
        twice=$(echo "$found" | awk '{ files[$1] = files[$1] " " $2; n[$1]++ }
            END { for (name in n) if (n[name] > 1) print name ":" files[name] }' | sort)
        [ -z "$twice" ] || fail "types of one name; give each its own:
$twice"
        ;;
    homes)
        # What inverts that on purpose: tables of primitives, which operations fill and graphs ask; kernels of fused
        # expressions, which have one header for two folders; the search within a memory limit, which compiles; the text of
        # functions, which passes ask for.
        turned='host_find|primitive_find|primitive_defined|fused_reduce_pieces|kernel_tile|compile_with_choice|compile_variants'
        turned="$turned|string_add_function"
        found=$(mktemp) where=$(mktemp) owned=$(mktemp)
        trap 'rm -f "$found" "$where" "$owned"' EXIT
        declared >"$found"
        defined >"$where"
        owners >"$owned"
        [ -s "$found" ] && [ -s "$where" ] || fail "no functions found: is $root the checkout?"
        away=$(awk '
            FILENAME == ARGV[1] { owns[$1, $2] = 1; next }
            FILENAME == ARGV[2] { home[$1] = $2; next }
            $1 in home && home[$1] != $2 {
                folder = home[$1]
                sub(/^src\//, "", folder)
                sub(/\/.*/, "", folder)
                if (!((folder, $3) in owns)) print $1 ": declared in " $3 ", defined in " home[$1]
            }' "$owned" "$where" "$found" | grep -v -E "^tow__($turned):")
        [ -z "$away" ] || fail "functions that are not defined in the folder of their header:
$away"
        ;;
    tests)
        found=$(tested)
        untested=$({ echo "$found" | sed -n 's/^\([^-].*\) .*/= \1/p'; sources | grep '\.c$'; } |
            awk '$1 == "=" { tested[$2] = 1; next } !($1 in tested)')
        [ -z "$untested" ] || fail "files without a test; write one of their name, or name them in the head of a test:
$untested"
        nothing=$(echo "$found" | sed -n 's/^- //p')
        [ -z "$nothing" ] || fail "tests whose heads say that they test what is not there (test, name):
$nothing"
        for folder in tests/unit/*/; do
            name=$(basename "$folder")
            [ -d "src/$name" ] || { [ -d "$name" ] && sources | grep -q "^$name/"; } || [ "$name" = support ] ||
                [ "$name" = include ] || fail "$folder is named after no folder of the library"
        done
        stray=$(find tests/unit -name 'test_*.c' ! -path 'tests/unit/*/test_*.c' -o -path 'tests/unit/*/*/*/test_*.c')
        [ -z "$stray" ] || fail "unit tests that are not built; they belong in a folder of tests/unit:
$stray"
        ;;
    frames)
        # A function begins in column 1, and ends with the brace there.
        inlined=$(sources | xargs grep -l TOW__CALLERS_FRAME | grep '\.c$' | xargs awk '
            /^[A-Za-z].*\(/ { head = FILENAME ": " $0; kept = /^TOW__OWN_FRAME / }
            /TOW__CALLERS_FRAME/ && !kept { print head }')
        [ -z "$inlined" ] || fail "functions that look at TOW__CALLERS_FRAME without TOW__OWN_FRAME in front (src/scope/tree.h):
$inlined"
        raw=$(sources | xargs grep -l __builtin_dwarf_cfa | grep -vx src/scope/tree.h)
        [ -z "$raw" ] || fail "frames that are not TOW__CALLERS_FRAME (src/scope/tree.h):
$raw"
        ;;
    comments)
        headless=$(find bench examples include/tow layers src tests transforms -name '*.[ch]' -o -name '*.inc' |
            sort | xargs awk '
            FNR == 1 { inside = 0 }
            {
                line = $0
                if (!inside && match(line, /\/\*/)) {
                    inside = 1
                    line = substr(line, RSTART + 2)
                } else if (!inside) next
                else sub(/^ *\*? */, "", line)
                begins = begins || /\/\*/
                if ((begins && line ~ /^ *(What|Where|Which|Whether|How) /) || line ~ /[.] (What|Where|Which|Whether|How) /)
                    print FILENAME ":" FNR ": " line
                begins = line ~ /[.:]$/
                if (line ~ /\*\//) inside = begins = 0
            }')
        [ -z "$headless" ] || fail "comments without a subject; write whole sentences:
$headless"
        ;;
    columns)
        long=$(find bench examples include layers src tests transforms -name '*.[ch]' -o -name '*.inc' -o -name '*.[ch]pp' |
            grep -vE '/(ops_lines\.h|layer_options\.hpp|unicode_tables\.inc)$' |
            sort | LC_ALL=C xargs awk '
            { gsub(/[\200-\277]/, "") } # all bytes of a character but the first
            length > 120 { print FILENAME ":" FNR }')
        [ -z "$long" ] || fail "lines of more than 120 columns:
$long"
        ;;
    *) fail "expected arrows, circles, names, regions, types, homes, tests, frames, comments or columns, found '$2'" ;;
esac
exit "$failed"
