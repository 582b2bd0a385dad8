# Prints a public header as an earlier or a later version could have it: awk -v version=earlier -f other_headers.awk base.h
# Of every struct that says its size, an earlier version does not know the last member yet, and a later one has two
# more, `later` and `more`. Structs with one option alone keep it, and so do those whose macros set the last one, or where
# it begins in what would be padding without it: a later version adds no such member.

{
    text = text $0 "\n"
}

function without_comments(text)
{
    while (match(text, /\/\*([^*]|\*+[^*\/])*\*+\//))
        text = substr(text, 1, RSTART - 1) " " substr(text, RSTART + RLENGTH)
    return text
}

function of_other_version(body,    n, members, i, out)
{
    if (version == "later") return body "    int64_t later;\n    double more;\n"
    n = split(body, members, ";")
    while (n > 0 && members[n] ~ /^[ \n]*$/) n--
    if (n < 3 || members[n] ~ /(layers|branches|inner|transforms| n|activation|broadcast_axes\[TOW_MAX_RANK\])[ \n]*$/) return body
    for (i = 1; i < n; i++) out = out members[i] ";"
    return out "\n"
}

END {
    rest = without_comments(text)
    while (match(rest, /typedef struct tow_[a-z0-9_]+ \{[^{}]*\} tow_[a-z0-9_]+;/)) {
        printf "%s", substr(rest, 1, RSTART - 1)
        found = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        open = index(found, "{")
        close_at = match(found, /\}[^}]*$/)
        body = substr(found, open + 1, close_at - open - 1)
        if (body ~ /^[ \n]*(size_t size TOW__SIZE|tow_module module;|tow_gradient_transform base;)/)
            body = of_other_version(body)
        printf "%s%s%s", substr(found, 1, open), body, substr(found, close_at)
    }
    printf "%s", rest
}
