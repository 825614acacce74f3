/* order.cc : which operations of streams and graphs come before the one that runs. */
#include "ptx.h"
#include "memory.h"

#include <algorithm>

namespace ptx {

namespace {

struct operation {
    uint32_t first_serial; /* of its blocks; those of the next one follow */
    size_t lane;
    uint32_t number; /* in its lane */
};

std::vector<operation> operations(1);
std::vector<uint32_t> past; /* of the last one */
uint32_t next_serial = 1;

} // namespace

uint32_t new_serial() {
    return next_serial++;
}

void begin_operation(size_t lane, const std::vector<uint32_t> &of_lanes) {
    past = of_lanes;
    operations.push_back({next_serial, lane, past[lane]});
}

uint32_t operation_serial() {
    return operations.back().first_serial;
}

bool is_past(uint32_t serial) {
    static uint32_t asked_by, asked, answer;
    if (serial == 0) return true;
    if (asked_by == operations.size() && asked == serial) return answer != 0;
    auto next = std::upper_bound(operations.begin(), operations.end(), serial,
                                 [](uint32_t x, const operation &o) { return x < o.first_serial; });
    const operation &o = next[-1];
    asked_by = (uint32_t)operations.size(), asked = serial;
    answer = o.number == 0 || (o.lane < past.size() && past[o.lane] >= o.number);
    return answer != 0;
}

} // namespace ptx
