# Prints, as macros, the structs of the public headers that say their size, and the functions that take them:
#   OPTIONS(type, macro, last member)    LAYER(type, macro, class, last member)    TRANSFORM(type, macro, class, last member)
#   FUNCTION(function, type)
#   WITHIN(struct or function, type)    a struct that has such a struct as a member, or a function that returns it by value
# Usage: awk -f structs.awk include/tow/*.h

{
    text = text $0 "\n"
}

# The text without comments and without lines that the preprocessor reads, whose macros are noted.
function strip(text,    out, lines, n, i, line, definition)
{
    while (match(text, /\/\*([^*]|\*+[^*\/])*\*+\//))
        text = substr(text, 1, RSTART - 1) " " substr(text, RSTART + RLENGTH)
    gsub(/\\\n/, " ", text)
    n = split(text, lines, "\n")
    for (i = 1; i <= n; i++) {
        line = lines[i]
        if (line ~ /^#/)
            note(line)
        else
            out = out line "\n"
    }
    return out
}

# #define TOW_X(...) TOW__OPTIONS(tow_x, ...), or TOW__LAYER, TOW__WRAPPER, TOW__TRANSFORM, TOW__AROUND, or ((tow_x){.module = {&tow_x_class, ...
function note(line,    parts, name)
{
    if (line !~ /^#define TOW_[A-Z0-9]/ || line ~ /^#define TOW__/) return
    split(line, parts, /[ (]/)
    name = parts[2]
    if (match(line, /TOW__(OPTIONS|LAYER|WRAPPER|TRANSFORM|AROUND)\(tow_[a-z0-9_]+/)) {
        split(substr(line, RSTART, RLENGTH), parts, "(")
        macro[parts[2]] = name
        class[parts[2]] = parts[2] "_class"
    } else if (match(line, /\(\(tow_[a-z0-9_]+\)\{ *\.(module|base) = \{&tow_[a-z0-9_]+_class/)) {
        split(substr(line, RSTART, RLENGTH), parts, /[()&]/)
        if (!(parts[3] in macro)) {
            macro[parts[3]] = name
            class[parts[3]] = parts[5]
        }
    }
}

# The name that the last declaration of a struct declares: "a", "*a", "a[3]", "(*a)(...)", the last one of "a, b".
function declared(statement,    parts, n)
{
    if (match(statement, /\(\*[a-z_0-9]+\)/)) return substr(statement, RSTART + 2, RLENGTH - 3)
    gsub(/\[[^\]]*\]/, "", statement)
    n = split(statement, parts, /[ ,*\n]+/)
    while (n > 0 && parts[n] == "") n--
    return parts[n]
}

# A declaration without a pointer, and what it stands in.
function within(declaration, place,    type)
{
    sub(/^[ \n]*(const )?/, "", declaration)
    type = substr(declaration, 1, index(declaration, " ") - 1)
    sub(/^typedef struct /, "", place)
    gsub(/[ \n(].*/, "", place)
    if (type in sized) print "WITHIN(" place ", " type ")"
}

# What begins a struct says what it is.
function kind(body)
{
    if (body ~ /^[ \n]*size_t size TOW__SIZE/) return "OPTIONS"
    if (body ~ /^[ \n]*tow_module module;/) return "LAYER"
    if (body ~ /^[ \n]*tow_gradient_transform base;/) return "TRANSFORM"
    return ""
}

END {
    text = strip(text)
    rest = text
    while (match(rest, /typedef struct tow_[a-z0-9_]+ \{[^{}]*\} tow_[a-z0-9_]+;/)) {
        found = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        body = found
        sub(/^[^{]*\{/, "", body)
        sub(/\}[^}]*$/, "", body)
        type = found
        sub(/;$/, "", type)
        sub(/.*\} /, "", type)
        of = kind(body)
        if (of == "") continue
        n = split(body, members, ";")
        while (n > 0 && members[n] ~ /^[ \n]*$/) n--
        sized[type] = 1
        if (of == "OPTIONS")
            print "OPTIONS(" type ", " macro[type] ", " declared(members[n]) ")"
        else
            print of "(" type ", " macro[type] ", " class[type] ", " declared(members[n]) ")"
    }
    rest = text
    while (match(rest, /typedef struct tow_[a-z0-9_]+ \{[^{}]*\} tow_[a-z0-9_]+;/)) {
        found = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        n = split(found, members, /[;{]/)
        for (i = 2; i <= n; i++)
            if (match(members[i], /^[ \n]*(const )?tow_[a-z0-9_]+ [a-z]/)) within(members[i], members[1])
    }
    n = split(text, statements, ";")
    for (i = 1; i <= n; i++) {
        if (statements[i] ~ /TOW_API +(const )?tow_[a-z0-9_]+ tow_/) {
            found = statements[i]
            sub(/.*TOW_API +/, "", found)
            within(found, substr(found, index(found, " ")))
        }
        if (statements[i] !~ /TOW_API/ || statements[i] ~ /\{/ || statements[i] ~ /extern/) continue
        sub(/.*TOW_API/, "", statements[i])
        gsub(/[ \n]+/, " ", statements[i])
        if (!match(statements[i], /tow_[a-z0-9_]+\(/)) continue
        function_name = substr(statements[i], RSTART, RLENGTH - 1)
        arguments = substr(statements[i], RSTART + RLENGTH)
        while (match(arguments, /tow_[a-z0-9_]+ \*/)) {
            type = substr(arguments, RSTART, RLENGTH - 2)
            arguments = substr(arguments, RSTART + RLENGTH)
            if (type in sized) print "FUNCTION(" function_name ", " type ")"
        }
    }
}
