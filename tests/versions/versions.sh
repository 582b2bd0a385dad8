# A program of headers of an earlier and of a later version runs with this library: versions.sh INCLUDE WORK LIBRARY COMPILER LANGUAGE OPTIONS...
set -eu
include=$1 work=$2 library=$3 compiler=$4 language=$5
shift 5
here=$(dirname "$0")
command -v "$compiler" > /dev/null || exit 77
rm -rf "$work"
mkdir -p "$work"
for version in earlier this later; do
    mkdir -p "$work/$version/tow"
    for header in "$include"/tow/*.h; do
        if [ $version = this ]; then
            cp "$header" "$work/$version/tow/"
        else
            awk -v version=$version -f "$here/other_headers.awk" "$header" > "$work/$version/tow/${header##*/}"
        fi
    done
    later=
    [ $version != later ] || later=-DTOW_LATER
    "$compiler" -x "$language" "$@" $later -I"$work/$version" "$here/program.c" -x none -o "$work/$version/program" \
        "$library" -Wl,-rpath,"${library%/*}" -lm
    TOW_CHECK=1 "$work/$version/program" > "$work/$version.txt"
done
test -s "$work/this.txt"
! cmp -s "$work/earlier/tow/model.h" "$work/this/tow/model.h"
cmp "$work/earlier.txt" "$work/this.txt"
cmp "$work/later.txt" "$work/this.txt"
