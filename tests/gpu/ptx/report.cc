/* report.cc : says what is wrong, once for each place, and ends the program with status 1 for it, unless
 * tests/gpu/ptx/known.txt gives a reason. */
#include "ptx.h"
#include "source.h"

#include <fstream>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

namespace ptx {

namespace {

std::map<std::string, long> counts; /* by report */
long n_unknown;

/* Whether a line "KERNEL: WHAT: REASON" of known.txt, in the folder of this file, names this report. */
bool is_known(const std::string &kernel, const std::string &what) {
    std::string here = __FILE__;
    std::ifstream in(here.substr(0, here.rfind('/') + 1) + "known.txt");
    for (std::string line; std::getline(in, line);) {
        size_t colon = line.find(": "), end = line.find(": ", colon + 2);
        if (line.empty() || line[0] == '#' || end == std::string::npos) continue;
        if (kernel.find(line.substr(0, colon)) != std::string::npos &&
            what.find(line.substr(colon + 2, end - colon - 2)) != std::string::npos)
            return true;
    }
    return false;
}

void finish() {
    if (n_unknown == 0) return;
    fflush(stdout);
    fprintf(stderr, "ptx: %ld reports\n", n_unknown);
    _exit(1);
}

/* Whether it said so: at first, if it is not known. */
bool count(const std::string &kernel, const std::string &place, const char *what) {
    static bool first = (atexit(finish), true);
    (void)first;
    if (counts[kernel + place + what]++ > 0 || is_known(kernel + place, what)) return false;
    n_unknown++;
    fprintf(stderr, "ptx: %s%s: %s\n", kernel.c_str(), place.c_str(), what);
    return true;
}

} // namespace

uint32_t draw(uint32_t n) {
    static uint64_t state = 0;
    if (state == 0) {
        uint64_t seed = strtoull(setting("seed").c_str(), NULL, 10);
        state = 0x9E3779B97F4A7C15u ^ seed * 0xD1342543DE82EF95u;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 33) % n);
}

void report(const warp &w, const instruction &i, int lane, const char *format, ...) {
    char what[300], place[300];
    va_list x;
    va_start(x, format);
    vsnprintf(what, sizeof what, format, x);
    va_end(x);
    snprintf(place, sizeof place, ": %s:%d: %s of PTX line %d", source_name(i.source), i.at, i.name,
             i.line);
    if (count(w.code->name, place, what))
        fprintf(stderr, "ptx:   block (%u, %u, %u), warp %d, lane %d\n", w.owner->at[0],
                w.owner->at[1], w.owner->at[2], w.index, lane);
}

void report_launch(const std::string &kernel, const char *format, ...) {
    char what[300];
    va_list x;
    va_start(x, format);
    vsnprintf(what, sizeof what, format, x);
    va_end(x);
    count(kernel, "", what);
}

void stop(const warp &w, const instruction &i, int lane, const char *what) {
    report(w, i, lane, "%s; stopped", what);
    fflush(stdout);
    fprintf(stderr, "ptx: stopped at block (%u, %u, %u), warp %d, lane %d\n", w.owner->at[0],
            w.owner->at[1], w.owner->at[2], w.index, lane);
    _exit(1);
}

} // namespace ptx
