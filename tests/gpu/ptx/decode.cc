/* decode.cc : an entry's statements as instructions, with what it calls in place of the calls. */
#include "ptx.h"
#include "source.h"

#include <set>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

namespace ptx {

namespace {

/* What a name stands for in a scope. */
struct named {
    enum { reg, local, param } is;
    int at; /* register, or offset in its memory */
    int bits;
};

typedef std::map<std::string, named> scope;

[[noreturn]] void refuse(const statement &s, const std::string &what) {
    fprintf(stderr, "ptx: line %d: %s: %s\n", s.line, s.text.c_str(), what.c_str());
    exit(2);
}

const char *keep(const std::string &text) {
    static std::set<std::string> all;
    return all.insert(text).first->c_str();
}

/* The parts of "ld.global.v4.u32". */
std::vector<std::string> parts_of(const std::string &op) {
    std::vector<std::string> parts(1);
    for (char c : op) {
        if (c == '.')
            parts.emplace_back();
        else
            parts.back() += c;
    }
    return parts;
}

bool has(const std::vector<std::string> &parts, const char *what) {
    for (const std::string &p : parts)
        if (p == what) return true;
    return false;
}

struct builder {
    source &s;
    program p;
    std::vector<scope> scopes;
    std::map<cell, int> constants;
    uint32_t static_end = 0;
    const statement *now = NULL;
    /* of the function that is being expanded */
    std::map<std::string, int> labels;
    std::vector<std::pair<int, std::string>> branches;

    /* --- names --- */

    int constant(cell value) {
        auto found = constants.find(value);
        if (found != constants.end()) return ~found->second;
        int n = (int)constants.size();
        constants[value] = n;
        p.constants.resize(p.constants.size() + LANES, value);
        return ~n;
    }
    const named *find(const std::string &name) const {
        for (size_t i = scopes.size(); i-- > 0;) {
            auto found = scopes[i].find(name);
            if (found != scopes[i].end()) return &found->second;
        }
        return NULL;
    }
    uint32_t local(uint32_t bytes) {
        uint32_t at = (p.local_bytes + 15) / 16 * 16;
        p.local_bytes = at + bytes;
        return at;
    }
    /* Variables stand apart, so that what leaves one is in none. */
    uint32_t shared(const shared_variable &v) {
        auto found = p.shared.find(v.name);
        if (found != p.shared.end()) return found->second.offset;
        uint32_t at = v.bytes == 0 ? (uint32_t)DYNAMIC_AT : static_end;
        p.shared[v.name] = {at, v.bytes};
        p.shared_bytes = (p.shared_bytes + 7) / 8 * 8 + v.bytes;
        static_end += v.bytes == 0 ? 0 : (v.bytes + 15) / 16 * 16 + 32;
        if (static_end > DYNAMIC_AT) refuse(*now, "too much static shared memory");
        return at;
    }
    void declare_registers(const std::string &text) { /* ".b32 %r<9>, low" */
        size_t space = text.find_first_of(" \t");
        std::string type = text.substr(1, space - 1);
        int bits = type == "pred" ? 8 : atoi(type.c_str() + 1);
        for (const std::string &name : split(text.substr(space))) {
            size_t open = name.find('<');
            int n = open == std::string::npos ? 1 : atoi(name.c_str() + open + 1);
            for (int k = 0; k < n; k++) {
                std::string full = name.substr(0, open);
                if (open != std::string::npos) full += std::to_string(k);
                scopes.back()[full] = {named::reg, p.n_registers++, bits};
            }
        }
    }
    void declare_bytes(const std::string &text) { /* ".align 8 .b8 name[24]", ".b32 name" */
        size_t space = text.find_last_of(" \t"), open = text.find('[');
        size_t dot = text.find_last_of('.');
        uint32_t n = open == std::string::npos ? 1 : (uint32_t)atoi(text.c_str() + open + 1);
        std::string name =
            text.substr(space + 1, open == std::string::npos ? open : open - space - 1);
        uint32_t bytes = n * type_bytes(text.substr(dot + 1, space - dot - 1));
        scopes.back()[name] = {named::local, (int)local(bytes), 64};
    }

    /* --- operands --- */

    static cell immediate(const std::string &text) {
        char mark = text.size() > 2 ? text[1] : ' ';
        if (text[0] == '0' && (mark == 'f' || mark == 'F' || mark == 'd' || mark == 'D'))
            return strtoull(text.c_str() + 2, NULL, 16);
        return text[0] == '-' ? (cell)strtoll(text.c_str(), NULL, 0)
                              : strtoull(text.c_str(), NULL, 0);
    }
    int operand(const std::string &text) {
        static const char *const fixed[] = {"%tid", "%ntid", "%ctaid", "%nctaid"};
        if (text == "_") return (int)SINK;
        if (text == "%laneid") return LANE;
        for (int k = 0; k < 4; k++)
            for (int d = 0; d < 3; d++)
                if (text == std::string(fixed[k]) + "." + "xyz"[d]) return 3 * k + d;
        if (const named *n = find(text)) return n->is == named::reg ? n->at : constant((cell)n->at);
        auto v = s.shared.find(text);
        if (v != s.shared.end()) return constant(shared(v->second));
        if (!strchr("-0123456789", text[0])) refuse(*now, "unknown operand " + text);
        return constant(immediate(text));
    }
    int address(instruction *i, const std::string &text, int64_t *offset) { /* "[%rd1+16]" */
        size_t plus = text.find('+');
        std::string name =
            trim(text.substr(1, (plus == std::string::npos ? text.size() - 1 : plus) - 1));
        *offset = plus == std::string::npos ? 0 : strtoll(text.c_str() + plus + 1, NULL, 0);
        const named *n = find(name);
        i->narrow = n && n->is == named::reg && n->bits == 32;
        if (i->where == space::param && n && n->is == named::local) i->where = space::local;
        return operand(name);
    }
    std::vector<int> operands(const std::string &text) { /* "{a, b}" or "a" */
        std::vector<int> out;
        if (text[0] != '{') return {operand(text)};
        for (const std::string &part : split(text.substr(1, text.size() - 2)))
            out.push_back(operand(part));
        return out;
    }
    void take(instruction *i, int at, const std::vector<int> &from) {
        if (at + from.size() > MAX_OPERANDS) refuse(*now, "too many operands");
        for (int x : from) i->x[at++] = x;
    }

    /* --- operations --- */

    void add_memory(instruction *i, const std::string &op, const std::vector<std::string> &x) {
        std::vector<std::string> parts = parts_of(op);
        const bool loads = parts[0] == "ld";
        const std::vector<int> data = operands(x[loads ? 0 : 1]);
        i->where = where(parts);
        i->how = !loads ? access::write : has(parts, "nc") ? access::read_only : access::read;
        i->n = (uint8_t)data.size();
        i->run = loads ? find_load(parts.back()) : find_store(parts.back());
        take(i, 0, data);
        i->x[4] = address(i, x[loads ? 1 : 0], &i->offset);
        i->target = (int)type_bytes(parts.back());
        i->is_volatile = has(parts, "volatile");
    }
    static space where(const std::vector<std::string> &parts) {
        return has(parts, "global")   ? space::global
               : has(parts, "shared") ? space::shared
               : has(parts, "local")  ? space::local
               : has(parts, "param")  ? space::param
                                      : space::generic;
    }
    void add_atomic(instruction *i, const std::string &op, std::vector<std::string> x) {
        std::vector<std::string> parts = parts_of(op);
        if (parts[0] == "red") x.insert(x.begin(), "_");
        i->where = where(parts);
        i->how = access::atomic;
        i->run = find_atomic(parts[parts.size() - 2], parts.back());
        i->x[0] = operand(x[0]);
        i->x[4] = address(i, x[1], &i->offset);
        i->x[1] = operand(x[2]);
        if (x.size() > 3) i->x[2] = operand(x[3]);
        i->target = (int)type_bytes(parts.back());
    }
    void add_copy(instruction *i, const std::string &op, const std::vector<std::string> &x) {
        int64_t to_offset;
        if (op == "cp.async.commit_group") {
            i->run = copy_commit;
        } else if (op == "cp.async.wait_group" || op == "cp.async.wait_all") {
            i->run = copy_wait;
            i->offset = x.empty() ? -1 : atoi(x[0].c_str());
        } else {
            i->run = copy_async;
            i->x[0] = address(i, x[0], &to_offset);
            i->x[1] = address(i, x[1], &i->offset);
            i->target = (int)to_offset;
            i->n = (uint8_t)atoi(x[2].c_str());
            i->used = op.find(".cg.") != std::string::npos;
        }
    }
    void add_warp(instruction *i, const std::string &op, const std::vector<std::string> &x) {
        int at = 0;
        i->flows = flow::warp;
        i->run = find_warp(op);
        for (const std::string &text : x) {
            size_t bar = text.find('|');
            std::vector<int> some = operands(text.substr(0, bar));
            take(i, at, some);
            at += (int)some.size();
            if (bar != std::string::npos)
                i->x[at++] = operand(text.substr(bar + 1));
            else if (op.compare(0, 5, "shfl.") == 0 && at == 1)
                i->x[at++] = SINK;
        }
        i->offset = op.compare(0, 4, "mma.") == 0 ? -1 : at - 1; /* where the mask is */
    }
    void add_barrier(instruction *i, const std::string &op, const std::vector<std::string> &x) {
        bool counts = op.find(".red.popc") != std::string::npos;
        if (!counts && op != "bar.sync" && op != "barrier.sync") i->run = NULL;
        i->flows = flow::block;
        i->x[0] = counts ? operand(x[0]) : (int)SINK;
        i->x[1] = counts ? operand(x[2]) : constant(0);
        if (x[counts ? 1 : 0] != "0") refuse(*now, "another barrier than 0");
    }
    void add_plain(instruction *i, std::string op, const std::vector<std::string> &x) {
        int at = 0;
        std::vector<std::string> parts = parts_of(op);
        std::string form;
        if (op.compare(0, 4, "mov.") == 0 && x[0][0] == '{') form = "unpack";
        if (op.compare(0, 4, "mov.") == 0 && x[1][0] == '{') form = "pack";
        if (!form.empty())
            op = form + std::to_string(operands(x[form == "pack"]).size()) + "." + parts[1];
        i->run = find_plain(op);
        for (const std::string &text : x) {
            std::vector<int> some = operands(text);
            take(i, at, some);
            at += (int)some.size();
        }
    }
    static void nothing(warp &, const instruction &, uint32_t) {}
    static void trap(warp &w, const instruction &i, uint32_t lanes) {
        stop(w, i, __builtin_ctz(lanes), "trap");
    }

    /* Where "ret" goes: out of the entry, or past what stands in place of the call. */
    void add_flow(instruction *i, const std::string &op, const std::vector<std::string> &x,
                  bool inner) {
        bool leaves = op[0] != 'b' && !inner;
        i->flows = leaves ? flow::exit : flow::branch;
        i->run = nothing;
        if (!leaves) branches.push_back({(int)p.code.size(), op[0] == 'b' ? x[0] : "$end"});
    }

    void add(const statement &st, bool inner) {
        instruction i = {};
        std::string text = st.text;
        i.guard = -1;
        i.used = st.used;
        i.line = st.line, i.source = st.source, i.at = st.at;
        if (text[0] == '@') {
            size_t space = text.find_first_of(" \t");
            i.guard_not = text[1] == '!';
            i.guard = operand(text.substr(i.guard_not ? 2 : 1, space - (i.guard_not ? 2 : 1)));
            text = trim(text.substr(space));
        }
        size_t space = text.find_first_of(" \t");
        std::string op = text.substr(0, space), first = parts_of(op)[0];
        std::vector<std::string> x = split(space == std::string::npos ? "" : text.substr(space));
        i.name = keep(op);
        i.run = nothing;
        if (first == "call") {
            if (i.guard >= 0) refuse(st, "a call with a guard");
            expand_call(x);
            return;
        }
        if (first == "ld" || first == "st")
            add_memory(&i, op, x);
        else if (first == "atom" || first == "red")
            add_atomic(&i, op, x);
        else if (first == "cp")
            add_copy(&i, op, x);
        else if (first == "bra" || first == "ret" || first == "exit")
            add_flow(&i, op, x, inner);
        else if (op.compare(0, 8, "bar.warp") == 0 || first == "shfl" || first == "vote" ||
                 first == "match" || first == "mma")
            add_warp(&i, op, x);
        else if (first == "bar" || first == "barrier")
            add_barrier(&i, op, x);
        else if (first == "fence" || first == "membar")
            i.run = fence;
        else if (first == "prefetch")
            i.x[0] = address(&i, x[0], &i.offset), i.run = prefetch;
        else if (first == "trap")
            i.run = trap;
        else
            add_plain(&i, op, x);
        if (!i.run) refuse(st, "an operation that is not known here");
        p.code.push_back(i);
    }

    /* --- functions --- */

    void expand_call(std::vector<std::string> x) {
        scope arguments;
        if (x[0][0] == '(') {
            std::string result = x[0].substr(1, x[0].size() - 2);
            x.erase(x.begin());
            arguments[s.functions.at(x[0]).result] = *find(trim(result));
        }
        const function &f = s.functions.at(x[0]);
        std::vector<std::string> given;
        if (x.size() > 1) given = split(x[1].substr(1, x[1].size() - 2));
        for (size_t k = 0; k < given.size(); k++) arguments[f.parameters[k].name] = *find(given[k]);
        expand(f, arguments, true);
    }
    /* Appends a function's instructions, with names of its own. */
    void expand(const function &f, const scope &arguments, bool inner) {
        std::vector<scope> outer_scopes = {arguments};
        std::map<std::string, int> outer_labels;
        std::vector<std::pair<int, std::string>> outer_branches;
        const statement *outer_now = now;
        scopes.swap(outer_scopes);
        labels.swap(outer_labels);
        branches.swap(outer_branches);
        for (const statement &st : statements_of(s, f)) add_statement(st, inner);
        labels["$end"] = (int)p.code.size();
        for (const auto &b : branches) p.code[(size_t)b.first].target = labels.at(b.second);
        scopes.swap(outer_scopes);
        labels.swap(outer_labels);
        branches.swap(outer_branches);
        now = outer_now;
    }
    void add_statement(const statement &st, bool inner) {
        now = &st;
        switch (st.is) {
        case kind::open: scopes.emplace_back(); break;
        case kind::close: scopes.pop_back(); break;
        case kind::label: labels[st.text] = (int)p.code.size(); break;
        case kind::plain:
            if (st.text.compare(0, 4, ".reg") == 0)
                declare_registers(trim(st.text.substr(4)));
            else if (st.text[0] == '.')
                declare_bytes(trim(st.text.substr(st.text.find_first_of(" \t"))));
            else if (!st.text.empty())
                add(st, inner);
        }
    }
};

} // namespace

const char *source_name(int file) {
    return keep(the_source().files[file]);
}

/* By kernel. */
static std::map<std::string, std::unique_ptr<program>> decoded;

/* Which instructions ran, for cover.py: "KERNEL LINE SOURCE:LINE 1" each, in a file of the folder
 * `cover` of $SPECRT_PTX. */
static void write_cover() {
    std::string folder = setting("cover");
    FILE *f = folder.empty() ? NULL : fopen((folder + "/" + std::to_string(getpid())).c_str(), "w");
    if (!f) return;
    for (const auto &each : decoded)
        for (const instruction &i : each.second->code)
            fprintf(f, "%s %d %s:%d %d\n", each.first.c_str(), i.line, source_name(i.source), i.at,
                    i.has_run);
    fclose(f);
}

const program *decode(const std::string &name) {
    source &s = the_source();
    auto found = s.functions.find(name);
    if (decoded.count(name)) return decoded[name].get();
    if (found == s.functions.end()) return NULL;
    const function &f = found->second;
    builder b = {s, {}, {}, {}, 0, NULL, {}, {}};
    scope arguments;
    b.p.name = name;
    b.p.n_registers = N_FIXED;
    b.p.most_threads = f.most_threads;
    b.p.param_bytes = f.parameter_bytes;
    for (const parameter &x : f.parameters) {
        b.p.params.push_back({x.offset, x.bytes});
        arguments[x.name] = {named::param, (int)x.offset, 64};
    }
    b.expand(f, arguments, false);
    if (decoded.empty()) atexit(write_cover);
    decoded[name].reset(new program(b.p));
    return decoded[name].get();
}

} // namespace ptx
