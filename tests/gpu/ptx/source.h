/* source.h : the text of a PTX file as functions made of statements. */
#ifndef PTX_SOURCE_H
#define PTX_SOURCE_H

#include <map>
#include <string>
#include <vector>

namespace ptx {

enum class kind : uint8_t { plain, label, open, close };

struct statement {
    kind is;
    std::string text; /* without the semicolon; of a label its name */
    int line, source, at;
    uint32_t used; /* bytes that somebody looks at, for a load */
};

struct parameter {
    std::string name;
    uint32_t offset, bytes;
};

struct function {
    std::string name, result; /* "" without one */
    std::vector<parameter> parameters;
    uint32_t parameter_bytes;
    int most_threads;
    size_t from, to; /* its body in the text */
    int line;
};

struct shared_variable {
    std::string name;
    uint32_t bytes; /* 0: as many as the launch says */
};

struct source {
    std::string text;
    std::map<std::string, function> functions;
    std::map<std::string, shared_variable> shared; /* all of the file, and of bodies read so far */
    std::map<int, std::string> files;
};

/* $SPECRT_PTX : FILE[,NAME=VALUE...], a PTX file and settings: seed of what is drawn (ptx.h), the folder of
 * `cover` (decode.cc), and forget=1, a fault of the runtime that faults.py plants. */
std::string setting(const std::string &name);
/* The file of $SPECRT_PTX, read once. */
source &the_source();
/* The statements of a function's body, in order. */
std::vector<statement> statements_of(source &s, const function &f);
uint32_t type_bytes(const std::string &type);
/* What commas part, outside brackets of any kind. */
std::vector<std::string> split(const std::string &text);
std::string trim(const std::string &text);

} // namespace ptx

#endif
