# calibrate_example.awk : an answer to show, from `specrt-eval generate --ids`: the first with the
# fewest tokens in repetition loops, rather one that ended before -v max_tokens=N, and one without
# text last. Prints its prompt, the first line of its text, and how much of it repeats a loop, if it
# does. Prompts of several lines are passed over: nobody types them.

function number(key) {
    match($0, "\"" key "\":[0-9]+")
    return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}
# The first line of prose or code in a JSON string, `several` if more follows; "" where it has control
# characters.
function first_line(key,  i, c, out) {
    i = index($0, "\"" key "\":\"") + length(key) + 4
    while ((c = substr($0, i++, 1)) != "\"" && c != "") {
        if (c == "\\") {
            c = substr($0, i++, 1)
            if (c == "u") return ""
            if (c == "n" && out != "" && out !~ /^```/) break
            if (c == "n") out = ""
            if (c ~ /[bfnrt]/) c = out == "" ? "" : " "
        }
        out = out c
    }
    several = c == "n"
    return out
}
{
    n_loop = number("n_loop")
    text = first_line("output")
    score = (text == "" ? 1e9 : 2 * n_loop) + (number("n_tokens") >= max_tokens)
    asked = first_line("prompt")
    if (asked == "" || several || (chosen != "" && score >= best)) next
    chosen = asked
    best = score
    answer = text
    warning = n_loop ? "(" n_loop " of its " number("n_tokens") " tokens repeat a loop)" : ""
}
END {
    print chosen
    print answer
    if (warning != "") print warning
}
