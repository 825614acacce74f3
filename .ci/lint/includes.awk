# includes.awk FILE... : folders include only those below them: base <- formats <- tokenizer, corpus
# <- counts, model <- engine <- tools. The engine knows nothing of the command line, and no tool of another. An
# adapter is for other programs: it has the header, its engine's own ones, and its folder's. A tool on an adapter
# has that and the engine's headers, too; specrt-llama is specrt-eval with one engine more.
# In src/: core <- sources, adapt <- decode <- trace, cuda. What is in its folders is private to it: everybody
# else has the public headers.
# A header's guard is its folder and name, so that no two are the same; a public one's is its name. In a
# folder of a tool the tool's name is before both.
BEGIN {
    below["src"] = ""
    below["core"] = "core"
    below["sources"] = "core sources"
    below["adapt"] = "core adapt"
    below["decode"] = "core sources adapt decode"
    below["trace"] = "core decode trace"
    below["cuda"] = "core sources adapt decode cuda"
    below["base"] = "base"
    below["formats"] = "base formats"
    below["tokenizer"] = "base formats tokenizer"
    below["corpus"] = "base formats corpus"
    below["counts"] = "base formats tokenizer corpus counts"
    below["model"] = "base formats tokenizer corpus model"
    below["engine"] = "base formats tokenizer corpus counts model engine"
    below["tools"] = below["engine"]
    below["adapters"] = ""
    engines["llama"] = "llama.h ggml.h ggml-backend.h gguf.h"
    engines["cuda"] = "harness.h"
    engines["specrt-llama"] = engines["llama"] " llama/specrt_llama.h ../specrt-eval/shared/eval.h"
}

FNR == 1 {
    split(FILENAME, part, "/")
    folder = part[1] == "lib" || part[1] == "src" && part[3] ? part[2] : part[1]
    guarded = 0
}

/^#ifndef / && FILENAME ~ /\.(h|cuh)$/ && !guarded++ {
    n = split(FILENAME, part, "/")
    own = folder == "src" || part[n] ~ "^" part[n - 1] "[_.]" ? part[n] : part[n - 1] "_" part[n]
    if (folder == "tools" && n == 4) own = part[2] "_" own
    own = toupper(own)
    gsub(/[^A-Z0-9]/, "_", own)
    if ($2 != own) {
        printf "%s:%d: guard %s; expected %s\n", FILENAME, FNR, $2, own
        bad = 1
    }
}

/^#include "/ {
    split($2, name, "\"")
    theirs = folder ~ /^(adapters|tools|cuda)$/ ? " " engines[part[2]] " " : ""
    if (!index(name[2], "/")) { # a public header, or a file of the tool's own folder
        beside = FILENAME
        sub(/[^\/]*$/, name[2], beside)
        own = folder == "tools" || folder == "adapters"
        known = name[2] == "specrt.h" || folder != "adapters" && name[2] ~ /^specrt_(block|tools|adapt|cuda)\.h$/
        if (!known && index(theirs, " " name[2] " ") == 0 &&
            (!own || (getline line < beside) < 0)) complain()
        close(beside)
    } else if (folder == "tools" && of_its_tool(name[2])) {
    } else {
        split(name[2], at, "/")
        if (index(" " below[folder] " ", " " at[1] " ") == 0 && index(theirs, " " name[2] " ") == 0)
            complain()
        if (folder == "engine" && name[2] == "base/cli.h") complain()
    }
}

# Whether a tool has such a file in one of its folders.
function of_its_tool(path,    file, line, found) {
    sub(/^(\.\.\/)+/, "", path)
    split(FILENAME, part, "/")
    file = "tools/" part[2] "/" path
    found = (getline line < file) >= 0
    close(file)
    return found
}

function complain() {
    printf "%s:%d: %s may not include %s\n", FILENAME, FNR, folder, name[2]
    bad = 1
}

END { exit bad }
