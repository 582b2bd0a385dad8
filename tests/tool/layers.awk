# layers.awk: docs/layers.md from the public headers, whose sections look like this:
#
#   /* ---- Title ---- */
#   /* What the layer computes, its inputs, parameters and results. */
#   typedef enum tow_KIND { ... } tow_KIND;                 options with names of their own
#   typedef struct tow_LAYER { tow_module module; ... } tow_LAYER;
#
# Variables: classes, lines "tow_LAYER_class name file" of all layers.

function trim(s) { sub(/^[ \t]+/, "", s); sub(/[ \t]+$/, "", s); return s }
# The text of a line of a comment.
function uncomment(s) { s = trim(s); sub(/^\/\*+ ?/, "", s); sub(/ *\*\/$/, "", s); sub(/^\* ?/, "", s); return trim(s) }
function cell(s) { gsub(/\|/, "\\|", s); return s }

BEGIN {
    n = split(classes, lines, "\n")
    for (i = 1; i <= n; i++) {
        split(lines[i], part, " ")
        name[part[1]] = part[2]
        file[part[1]] = part[3]
    }
}

/^\/\* ---- / {
    title = uncomment($0)
    gsub(/^-+ | -*$/, "", title)
    text = tables = ""
    comment = 0
    next
}

# A member: one or more lines up to its comment's end. A comment on lines of its own is that of the member below.
inside && /^}/ {
    if (is_layer || inside == "enum") tables = tables table "\n"
    if (is_layer) finish(structure)
    inside = ""
    next
}
inside {
    line = trim($0)
    if (pending != "") { sub(/^\* /, "", line); line = pending " " line }
    pending = ""
    if (line ~ /\/\*/ && line !~ /\*\//) { pending = line; next }
    meaning = ""
    if (match(line, /\/\*.*\*\//)) {
        meaning = uncomment(substr(line, RSTART, RLENGTH))
        line = trim(substr(line, 1, RSTART - 1))
    }
    if (line == "") { above = meaning; next }
    if (meaning == "") meaning = above
    above = ""
    if (line ~ /^tow_module module;/) { is_layer = 1; next }
    if (inside == "enum") {
        sub(/,$/, "", line)
        table = table "| `" line "` | " cell(meaning) " |\n"
    } else {
        sub(/;$/, "", line)
        table = table "| `" cell(line) "` | " cell(meaning) " |\n"
    }
    next
}
/^typedef (struct|enum) / {
    inside = $2
    structure = $3
    is_layer = 0
    pending = above = ""
    table = inside == "enum" ? "| `" structure "` | |\n|---|---|\n" : "| option | meaning, default |\n|---|---|\n"
    next
}

# Text of the section; lines that are indented are code.
comment || /^\/\*/ {
    if (title != "" && $0 ~ /^ \*     /) {
        code = $0
        sub(/^ \* /, "", code)
        sub(/ *\*\/$/, "", code)
        text = text "\n" code "\n"
    } else if (title != "") {
        text = text " " uncomment($0)
    }
    comment = $0 !~ /\*\//
    next
}

# A layer is complete.
function finish(structure,   class, key, macro) {
    key = structure "_class"
    if (!(key in name)) sub(/_layer_class$/, "_class", key)
    class = name[key]
    if (class == "") { print "layers.awk: no class " structure "_class" >"/dev/stderr"; failed = 1; return }
    macro = toupper(structure)
    sub(/_LAYER$/, "", macro)
    index_rows = index_rows "| [" class "](#" tolower(class) ") | `" macro "` | " cell(summary()) " | [" file[key] "](../" file[key] ") |\n"
    body = body "## " class "\n\n" paragraph() "\n" tables
    tables = ""
}
function summary(   s) {
    s = title
    sub(/^[A-Za-z]+(, [A-Z][A-Za-z]+)?(:| )? */, "", s)
    return s
}
# Title and text, filled to lines of 130 characters, code on lines of its own.
function paragraph(   parts, n, i, out, code) {
    n = split(title "." text, parts, "\n")
    for (i = 1; i <= n; i++) {
        if (trim(parts[i]) == "") continue
        if ((parts[i] ~ /^    /) != code) out = out "\n"
        code = parts[i] ~ /^    /
        out = out (code ? parts[i] "\n" : fill(parts[i]))
    }
    return out
}
function fill(s,   words, n, i, line, out) {
    n = split(trim(s), words, /[ \t]+/)
    for (i = 1; i <= n; i++) {
        if (length(line) + length(words[i]) > 130) { out = out line "\n"; line = "" }
        line = line (line == "" ? "" : " ") words[i]
    }
    return out line "\n"
}

END {
    print "# Layers"
    print ""
    print "Made by the build from the headers layers.h, attention.h, recurrent.h and transforms.h in include/tow. A layer is a struct of options,"
    print "in which zero means the default, made by its macro: `TOW_CONV(.features = 64, .kernel_size = {3, 3})`. Parameters have Flax's names, shapes and"
    print "initial values. [how-to-add-a-layer.md](how-to-add-a-layer.md) says how to write one."
    print ""
    print "| layer | macro | | code |"
    print "|---|---|---|---|"
    printf "%s\n", index_rows
    sub(/\n\n$/, "\n", body)
    printf "%s", body
    exit failed
}
