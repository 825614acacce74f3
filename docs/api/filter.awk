# filter.awk HEADER : the header with Doxygen's marks. The headers themselves are plain text:
#
#     /* name() : Text.            becomes  /** Text.
#      *   a, b : text                       * @param a,b text
#     field; /* text */                     field; /**< text */
#     /* ---- title ---- text */            a group with this title; its text stays as it is
#
# Conventions that specrt.h states once are filled in: arguments such as n, out and err, the object that a call is
# about, what close, free and get_stats do, and the statuses that every call may return. Doxygen reports all else
# that lacks a comment. Line numbers of its reports are a few too high, for groups take lines.
BEGIN {
    usual["n"] = "rows of the arrays"; usual["n_bytes"] = "size in bytes"; usual["out"] = "receives the result"
    usual["err"] = "receives one line; may be NULL"; usual["env"] = "copied; NULL: all defaults"
    usual["desc"] = usual["params"] = "copied; NULL: all defaults"; usual["token"] = "target id"
    usual["host"] = "the application's models"; usual["stream"] = "a cudaStream_t; NULL: the default stream"
    usual["text"] = "the policy"; usual["batch"] = "from specrt_align_acquire()"
    usual["cycle"] = "the finished cycle"
    objects = " bundle head shortlist policy tree verifier a session worker stock align writer reader "
}

# parameters DECLARATION : the last word of each parameter; that of a function pointer is in its parentheses.
function parameters(text, names,    n, i) {
    while (match(text, /\(\*[a-z_]+\)\([^)]*\)/))
        text = substr(text, 1, RSTART - 1) " " \
            substr(text, RSTART + 2, index(substr(text, RSTART), ")") - 3) substr(text, RSTART + RLENGTH)
    gsub(/^[^(]*\(|\);.*|\[[0-9]*\]/, "", text)
    n = split(text, names, ",")
    for (i = 1; i <= n; i++) sub(/.*[ *]/, "", names[i])
    return n
}

# begins LAST : the first line of the comment that ends at a line; 0: none does.
function begins(last,    i) {
    if (line[last] !~ /\*\/$/ || line[last] ~ /; *\/\*/) return 0
    for (i = last; line[i] !~ /^ *\/\*/; i--) {}
    return i
}

# function_at FROM TO : marks the comment above a function, and fills in the conventions.
function function_at(from, to,    i, text, names, n, more, first, documented, has_return) {
    for (i = from; i <= to; i++) text = text line[i] " "
    first = begins(from - 1)
    documented = " "
    for (i = first; first && i < from; i++) {
        sub(/^\/\* (specrt_[a-z0-9_]+\(\) : )?/, "/** ", line[i])
        if (match(line[i], /^(\/\*| \*)[* ]+[a-z_0-9, ]+ : /)) {
            n = substr(line[i], 4, RLENGTH - 6)
            gsub(/[* ]/, "", n)
            line[i] = substr(line[i], 1, 3) " @param " n " " substr(line[i], RLENGTH + 1)
            gsub(/,/, " ", n)
            documented = documented n " "
        }
        if (line[i] ~ /@return/) has_return = 1
    }
    n = parameters(text, names)
    for (i = 1; i <= n; i++) {
        if (index(documented, " " names[i] " ")) continue
        if (i == 1 && index(objects, " " names[i] " ")) more = more " @param " names[i] " the object"
        else if (names[i] in usual) more = more " @param " names[i] " " usual[names[i]]
    }
    if (!has_return && text !~ /API void /)
        more = more " @return " (text ~ /specrt_status *specrt/ ? "OK, BAD_ARG." : "as above.")
    if (first)
        sub(/ *\*\/$/, more " */", line[from - 1])
    else if (text ~ /_(close|free|get_stats)\(/)
        line[from] = "/** " (text ~ /get_stats/ ? "Copies the statistics." : "Frees the object.") more " */ " line[from]
}

# group_at I : a heading, whose other lines stay as they are, without their stars.
function group_at(i,    title) {
    title = line[i]
    gsub(/^\/\* ---- | ----.*/, "", title)
    title = (n_groups++ ? "/** @} */\n" : "") "/** @defgroup " module n_groups " " title "\n"
    if (line[i] ~ /\*\/$/) {
        line[i] = title "@{ */"
        return
    }
    line[i] = title "@verbatim"
    do sub(/^ \*( |$)/, "", line[++i])
    while (line[i] !~ /\*\/$/)
    sub(/ *\*\/$/, "\n@endverbatim\n@{ */", line[i])
}

{
    line[NR] = $0
    if (!/@return/) gsub(/@/, "\\@", line[NR])
}
END {
    module = FILENAME
    gsub(/.*\/|\.h$/, "", module)
    for (i = 1; i <= NR; i++) {
        if (line[i] ~ /^SPECRT_(CUDA_)?API [^e]/) {
            for (j = i; line[j] !~ /;/; j++) {}
            function_at(i, j)
        } else if (line[i] ~ /^\/\* ----/)
            group_at(i)
        else if (line[i] ~ /^(typedef|enum|#define) / || line[i] ~ /^ +[a-z][a-z0-9_]* .*[;,]( |$)/) {
            j = begins(i - 1)
            if (j && line[j] !~ /\/\*\*/) sub(/\/\*/, "/**", line[j])
        }
        if (line[i] ~ /^( +[A-Za-z]|#define|typedef).* \/\* .*\*\/$/) sub(/\/\* /, "/**< ", line[i])
    }
    for (i = 1; i <= NR; i++) {
        if (line[i] ~ /^#ifdef __cplusplus/ && line[i + 1] == "}") print "/** @} */"
        print line[i]
    }
}
