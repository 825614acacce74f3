/* source.cc : reads the text of a PTX file. */
#include "ptx.h"
#include "source.h"

#include <fstream>
#include <regex>
#include <sstream>
#include <stdlib.h>

namespace ptx {

std::string trim(const std::string &text) {
    size_t from = text.find_first_not_of(" \t\n"), to = text.find_last_not_of(" \t\n");
    return from == std::string::npos ? "" : text.substr(from, to - from + 1);
}

std::vector<std::string> split(const std::string &text) {
    std::vector<std::string> parts;
    std::string part;
    int depth = 0;
    for (char c : text) {
        depth += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
        if (c == ',' && depth == 0) {
            parts.push_back(trim(part));
            part.clear();
        } else {
            part += c;
        }
    }
    if (!trim(part).empty()) parts.push_back(trim(part));
    return parts;
}

uint32_t type_bytes(const std::string &type) {
    return type == "pred" ? 1 : (uint32_t)atoi(type.c_str() + 1) / 8;
}

namespace {

void add_shared(source &s, const std::string &declaration) {
    static const std::regex form(
        "\\.shared\\s+\\.align\\s+\\d+\\s+\\.(\\w+)\\s+([\\w$]+)(\\[(\\d*)\\])?");
    std::smatch m;
    if (!std::regex_search(declaration, m, form)) return;
    uint32_t n = m[3].matched ? (uint32_t)atoi(m[4].str().c_str()) : 1;
    s.shared[m[2]] = {m[2], n * type_bytes(m[1])};
}

/* Parameters between brackets. */
void add_parameters(function *f, const std::string &text) {
    static const std::regex form(
        "\\.param\\s+(\\.align\\s+(\\d+)\\s+)?\\.(\\w+)\\s+([\\w$]+)(\\[(\\d+)\\])?");
    uint32_t at = 0;
    for (std::sregex_iterator m(text.begin(), text.end(), form), end; m != end; ++m) {
        uint32_t size = type_bytes((*m)[3]), align = size;
        uint32_t bytes = (*m)[5].matched ? size * (uint32_t)atoi((*m)[6].str().c_str()) : size;
        if ((*m)[1].matched) align = (uint32_t)atoi((*m)[2].str().c_str());
        at = (at + align - 1) / align * align;
        f->parameters.push_back({(*m)[4], at, bytes});
        at += bytes;
    }
    f->parameter_bytes = at;
}

/* A function from its head, which ends before `open`. @return where its body ends. */
size_t add_function(source &s, const std::string &head, size_t open, int line) {
    static const std::regex form(
        "\\.(entry|func)\\s*(\\(\\s*\\.param\\s+\\.\\w+\\s+([\\w$]+)\\s*\\))?"
        "\\s*([\\w$]+)");
    static const std::regex bound("\\.maxntid\\s+(\\d+)");
    std::smatch m, most;
    size_t depth = 0, to = open;
    do {
        depth += (size_t)(s.text[to] == '{') - (size_t)(s.text[to] == '}');
        to++;
    } while (depth > 0);
    if (!std::regex_search(head, m, form)) return to;
    function f = {m[4], m[3], {}, 0, 0, open + 1, to - 1, line};
    add_parameters(&f, m.suffix());
    if (std::regex_search(head, most, bound)) f.most_threads = atoi(most[1].str().c_str());
    s.functions[f.name] = f;
    return to;
}

/* Comments go; lines stay. */
std::string without_comments(const std::string &text) {
    std::string out;
    for (size_t i = 0; i < text.size(); i++) {
        if (text.compare(i, 2, "//") == 0) i = text.find('\n', i);
        out += text[i];
    }
    return out;
}

void read_source(source &s, const std::string &text) {
    static const std::regex file("\\.file\\s+(\\d+)\\s+\"([^\"]*)\"");
    int line = 1;
    std::string head;
    s.text = without_comments(text);
    for (size_t i = 0; i < s.text.size(); i++) {
        char c = s.text[i];
        if (c == '{' && head.find(".section") == std::string::npos) {
            size_t end = add_function(s, head, i, line);
            for (; i < end; i++) line += s.text[i] == '\n';
            i--;
            head.clear();
            continue;
        }
        line += c == '\n';
        head += c;
        if (c == ';') {
            add_shared(s, head);
            head.clear();
        }
    }
    for (std::sregex_iterator m(s.text.begin(), s.text.end(), file), end; m != end; ++m)
        s.files[atoi((*m)[1].str().c_str())] = (*m)[2];
}

/* Takes a body apart. */
struct reader {
    source &s;
    std::vector<statement> out;
    std::string text;
    int line, first_line, file = 0, at = 0;
    uint32_t used = ~0u;

    void add(kind is, const std::string &what) {
        out.push_back({is, what, is == kind::plain ? first_line : line, file, at, used});
        if (is == kind::plain) used = ~0u;
        text.clear();
    }
    /* A directive for what comes next. */
    void note(const std::string &what) {
        char name[40];
        unsigned mask;
        if (sscanf(what.c_str(), ".loc %d %d", &file, &at) == 2) return;
        if (sscanf(what.c_str(), ".pragma \"%39[a-z_] %u", name, &mask) == 2) used = mask;
    }
    void end_statement() {
        std::string what = trim(text);
        if (what.compare(0, 7, ".pragma") == 0)
            note(what);
        else if (what.compare(0, 7, ".shared") == 0)
            add_shared(s, what);
        else
            add(kind::plain, what);
        text.clear();
    }
    void read(char c, int *depth) {
        bool empty = trim(text).empty();
        if (empty) first_line = line;
        if (c == '\n') {
            line++;
            if (trim(text).compare(0, 4, ".loc") != 0) {
                text += ' ';
                return;
            }
            note(trim(text));
            text.clear();
        } else if (c == ';') {
            end_statement();
        } else if (c == '{' && empty) {
            add(kind::open, "");
        } else if (c == '}' && *depth == 0) {
            add(kind::close, "");
        } else if (c == ':' && trim(text)[0] == '$') {
            add(kind::label, trim(text));
        } else {
            *depth += (c == '{') - (c == '}');
            text += c;
        }
    }
};

} // namespace

std::string setting(const std::string &name) {
    const char *text = getenv("SPECRT_PTX");
    for (const std::string &part : split(text ? text : ""))
        if (part.compare(0, name.size() + 1, name + "=") == 0) return part.substr(name.size() + 1);
    return "";
}

source &the_source() {
    static source s;
    if (!s.text.empty()) return s;
    const char *given = getenv("SPECRT_PTX");
    std::string path = given ? given : "";
    path = path.substr(0, path.find(','));
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    if (!in || text.str().empty()) {
        fprintf(stderr, "ptx: SPECRT_PTX: expected a PTX file's path, found '%s'\n", path.c_str());
        exit(2);
    }
    read_source(s, text.str());
    return s;
}

std::vector<statement> statements_of(source &s, const function &f) {
    reader r = {s, {}, "", f.line, f.line};
    int depth = 0;
    for (size_t i = f.from; i < f.to; i++) r.read(s.text[i], &depth);
    return r.out;
}

} // namespace ptx
