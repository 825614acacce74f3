/* memory.cc : global, shared and local memory: who wrote and read each word, what was never written; loads,
 * stores, atomics and asynchronous copies, which are checked by it. */
#include "ptx.h"
#include "numbers.h"
#include "memory.h"

#include <algorithm>
#include <stdlib.h>
#include <sys/mman.h>

namespace ptx {

namespace {

enum { MANY = 0xff }; /* warps that read */

/* An access: its block, its place in the order of that block, and who. Reads add up. */
struct mark {
    uint32_t serial, lanes;
    uint16_t epoch, clock;
    uint8_t warp, bytes; /* bytes of the word */
    bool atomic;
};
struct word {
    mark written, read;
    uint8_t known, on_the_way; /* bytes that were written; that cp.async has yet to bring */
    bool once;                 /* read as what nobody writes */
};

/* Words of an allocation, zeros at first. Only pages that are used take memory, so rows may lie GiB apart. */
class lazy_words {
    size_t bytes = 0;
    word *first = NULL;

  public:
    lazy_words() = default;
    lazy_words(const lazy_words &) = delete;
    ~lazy_words() {
        if (first) munmap(first, bytes);
    }
    void make(size_t n) {
        bytes = n * sizeof *first;
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) abort();
        first = (word *)p;
    }
    word &operator[](size_t k) { return first[k]; }
};

struct allocation {
    size_t bytes;
    bool mapped; /* the host writes it, too */
    lazy_words words;
};

std::map<uint64_t, allocation> allocations; /* by where they end */
alignas(16) char shared_bytes[SHARED_MOST];
std::vector<word> shared_words(SHARED_MOST / 4);
std::vector<uint8_t> shared_is(SHARED_MOST / 4); /* bytes of each word that a variable has */

/* The last one found, which is mostly the next one too. */
uint64_t last_begin, last_end;
allocation *last;

allocation *find(uint64_t address, uint64_t *begin) {
    if (address < last_begin || address >= last_end) {
        auto found = allocations.upper_bound(address);
        if (found == allocations.end() || address < found->first - found->second.bytes) return NULL;
        last = &found->second;
        last_end = found->first, last_begin = last_end - last->bytes;
    }
    *begin = last_begin;
    return last;
}

/* What a lane did that stands in `m` comes before what it does now. */
bool is_before(const warp &w, int lane, const mark &m) {
    bool all = true;
    if (m.serial != w.owner->serial || m.epoch != w.owner->epoch) return true;
    if (m.warp != w.index) return false;
    each(m.lanes, [&](int k) { all = all && (k == lane || m.clock < w.seen[lane][k]); });
    return all;
}

mark mark_of(const warp &w, int lane, uint8_t bytes, bool atomic) {
    return {w.owner->serial,  1u << lane, w.owner->epoch, w.seen[lane][lane],
            (uint8_t)w.index, bytes,      atomic};
}

/* What was read before, and this: what comes after this read comes after all that it came after. */
mark join(const warp &w, int lane, const mark &old, mark now) {
    if (is_before(w, lane, old)) return now;
    if (!(old.bytes & now.bytes)) return now;
    if (old.warp != now.warp) now.warp = MANY;
    now.lanes |= old.lanes;
    now.bytes |= old.bytes;
    now.clock = std::max(now.clock, old.clock);
    return now;
}

/* What two threads do to a word with nothing in between. */
void check_order(const warp &w, const instruction &i, int lane, word *x, uint8_t bytes, access how,
                 bool is_shared) {
    const char *where = is_shared ? "shared" : "global";
    bool writes = how == access::write || how == access::atomic, atomic = how == access::atomic;
    if (i.is_volatile) return; /* meant for others */
    if ((x->written.bytes & bytes) && !is_before(w, lane, x->written) &&
        !(atomic && x->written.atomic))
        report(w, i, lane, "race: %s %s memory that another thread wrote, with no barrier between",
               writes ? "writes" : "reads", where);
    if (writes && !atomic && (x->read.bytes & bytes) && !is_before(w, lane, x->read))
        report(w, i, lane,
               "race: writes %s memory that another thread read, with no barrier between", where);
    mark now = mark_of(w, lane, bytes, atomic);
    if (writes)
        x->written = now;
    else
        x->read = join(w, lane, x->read, now);
}

/* The same between blocks of a launch, which fences order. */
void check_blocks(const warp &w, const instruction &i, int lane, word *x, uint8_t bytes,
                  access how) {
    uint32_t own = w.owner->serial, first = w.owner->first_serial;
    bool other =
        x->written.serial != own && x->written.serial >= first && (x->written.bytes & bytes);
    if (other && how == access::read_only)
        report(w, i, lane, "reads as constant what its launch writes");
    else if (other && how != access::atomic && !x->written.atomic && !w.owner->fenced &&
             !i.is_volatile)
        report(w, i, lane, "race: another block wrote this, and no fence came since");
    if (how == access::read_only) x->once = true;
    if (how == access::write && x->once && x->read.serial >= first)
        report(w, i, lane, "writes what its launch reads as constant");
    if (x->read.serial < first && how != access::read_only) x->once = false;
}

/* The same between operations of streams. */
void check_streams(const warp &w, const instruction &i, int lane, const word &x, uint8_t bytes,
                   access how) {
    uint32_t first = w.owner->first_serial;
    bool writes = how == access::write || how == access::atomic;
    auto unordered = [&](const mark &m) {
        return (m.bytes & bytes) && m.serial < first && !is_past(m.serial);
    };
    if (i.is_volatile) return;
    if (unordered(x.written))
        report(w, i, lane, "race: another stream wrote this, and no event orders them");
    if (writes && unordered(x.read))
        report(w, i, lane, "race: writes what another stream read, and no event orders them");
}

void check_known(const warp &w, const instruction &i, int lane, word *x, uint8_t bytes, access how,
                 bool is_shared) {
    const char *where = is_shared ? "shared" : "global";
    if (how == access::write || how == access::atomic) {
        if (how == access::atomic && (bytes & ~x->known))
            report(w, i, lane, "uninitialised %s memory is added to", where);
        x->known |= bytes;
        return;
    }
    if (x->on_the_way & bytes)
        report(w, i, lane, "reads what cp.async has yet to bring");
    else if (bytes & ~x->known)
        report(w, i, lane, "reads uninitialised %s memory", where);
}

/* Words of [at, at + bytes), and which bytes of each. */
template <typename F> void each_word(uint64_t at, uint64_t bytes, F f) {
    for (uint64_t k = at / 4; k <= (at + bytes - 1) / 4; k++) {
        uint64_t from = k * 4 < at ? at - k * 4 : 0;
        uint64_t to = at + bytes < k * 4 + 4 ? at + bytes - k * 4 : 4;
        f(k, (uint8_t)((1u << to) - (1u << from)), (uint32_t)(k * 4 + from - at));
    }
}

/* Shared variables of a launch that have any bytes. */
template <typename F> void each_variable(const block &b, F f) {
    for (const auto &v : b.code->shared) {
        uint32_t bytes = v.second.bytes ? v.second.bytes : b.dynamic_bytes;
        if (bytes > 0) f(v.second.offset, bytes);
    }
}

char *reach_shared(const warp &w, const instruction &i, int lane, uint64_t at, uint32_t bytes,
                   access how, uint32_t used) {
    uint64_t end = at + bytes;
    if (end > SHARED_MOST || at > end) stop(w, i, lane, "shared memory out of bounds");
    each_word(at, bytes, [&](uint64_t k, uint8_t mask, uint32_t offset) {
        word *x = &shared_words[k];
        if (mask & ~shared_is[k]) stop(w, i, lane, "shared memory out of bounds");
        if (!(used >> offset & 1)) return;
        if (x->written.serial != w.owner->serial && x->read.serial != w.owner->serial) *x = word();
        check_order(w, i, lane, x, mask, how, true);
        check_known(w, i, lane, x, mask, how, true);
    });
    return shared_bytes + at;
}

char *reach_global(const warp &w, const instruction &i, int lane, uint64_t at, uint32_t bytes,
                   access how, uint32_t used) {
    uint64_t begin = 0;
    allocation *a = find(at, &begin);
    if (!a || at + bytes > begin + a->bytes) stop(w, i, lane, "global memory out of bounds");
    each_word(at - begin, bytes, [&](uint64_t k, uint8_t mask, uint32_t offset) {
        word *x = &a->words[k];
        if (!(used >> offset & 1)) return;
        check_streams(w, i, lane, *x, mask, how);
        check_blocks(w, i, lane, x, mask, how);
        check_order(w, i, lane, x, mask, how, false);
        if (!a->mapped) check_known(w, i, lane, x, mask, how, false);
    });
    return (char *)at;
}

/* The bytes that a lane asks for, after all checks. */
char *reach(warp &w, const instruction &i, int lane, uint64_t at, uint32_t bytes, access how) {
    space where = i.where;
    if (where == space::generic) {
        where = at & SHARED_WINDOW  ? space::shared
                : at & LOCAL_WINDOW ? space::local
                                    : space::global;
        at &= ~(SHARED_WINDOW | LOCAL_WINDOW);
    }
    if (at & (bytes - 1)) stop(w, i, lane, "misaligned address");
    if (where == space::shared) return reach_shared(w, i, lane, at, bytes, how, i.used);
    if (where == space::global) return reach_global(w, i, lane, at, bytes, how, i.used);
    uint32_t size = where == space::local ? w.code->local_bytes : w.code->param_bytes;
    if (at + bytes > size) stop(w, i, lane, "local memory or parameters out of bounds");
    if (where == space::local) return &w.local[(size_t)lane * w.code->local_bytes + at];
    return const_cast<char *>(w.owner->params) + at;
}

uint64_t address(const warp &w, const instruction &i, int lane, int x, int64_t offset,
                 bool narrow) {
    uint64_t at = w.in(i.x[x])[lane] + (uint64_t)offset;
    return narrow ? (uint32_t)at : at;
}

template <typename T> void load(warp &w, const instruction &i, uint32_t lanes) {
    each(lanes, [&](int lane) {
        uint64_t at = address(w, i, lane, 4, i.offset, i.narrow);
        const char *p = reach(w, i, lane, at, (uint32_t)sizeof(T) * i.n, i.how);
        for (int k = 0; k < i.n; k++) {
            T value;
            memcpy(&value, p + k * (int)sizeof(T), sizeof value);
            put<T>(w.out(i.x[k]) + lane, value);
        }
    });
}

template <typename T> void store(warp &w, const instruction &i, uint32_t lanes) {
    each(lanes, [&](int lane) {
        uint64_t at = address(w, i, lane, 4, i.offset, i.narrow);
        char *p = reach(w, i, lane, at, (uint32_t)sizeof(T) * i.n, i.how);
        for (int k = 0; k < i.n; k++)
            memcpy(p + k * (int)sizeof(T), w.in(i.x[k]) + lane, sizeof(T));
    });
}

struct exchange {
    template <typename T> T operator()(T, T value) const { return value; }
};

template <typename F, typename T> void atomic(warp &w, const instruction &i, uint32_t lanes) {
    each(lanes, [&](int lane) {
        uint64_t at = address(w, i, lane, 4, i.offset, i.narrow);
        char *p = reach(w, i, lane, at, sizeof(T), i.how);
        T old, value = get<T>(w.in(i.x[1]) + lane);
        memcpy(&old, p, sizeof old);
        if constexpr (std::is_same<F, equal>::value)
            value = old == value ? get<T>(w.in(i.x[2]) + lane) : old;
        else
            value = F()(old, value);
        memcpy(p, &value, sizeof value);
        put<T>(w.out(i.x[0]) + lane, old);
    });
}

template <typename T> handler atomic_of(const std::string &op) {
    return op == "add"    ? atomic<add, T>
           : op == "min"  ? atomic<least, T>
           : op == "max"  ? atomic<greatest, T>
           : op == "exch" ? atomic<exchange, T>
           : op == "or"   ? atomic<either, T>
           : op == "and"  ? atomic<both, T>
           : op == "xor"  ? atomic<differ, T>
           : op == "cas"  ? atomic<equal, T>
                          : NULL;
}

} // namespace

handler find_atomic(const std::string &op, const std::string &type) {
    return type == "u32" || type == "b32"   ? atomic_of<uint32_t>(op)
           : type == "s32"                  ? atomic_of<int32_t>(op)
           : type == "u64" || type == "b64" ? atomic_of<uint64_t>(op)
           : type == "s64"                  ? atomic_of<int64_t>(op)
                                            : NULL;
}

#define BY_TYPE(what)                                                                              \
    (type == "u8" || type == "b8"     ? what<uint8_t>                                              \
     : type == "s8"                   ? what<int8_t>                                               \
     : type == "u16" || type == "b16" ? what<uint16_t>                                             \
     : type == "s16"                  ? what<int16_t>                                              \
     : type == "u32" || type == "b32" ? what<uint32_t>                                             \
     : type == "s32"                  ? what<int32_t>                                              \
     : type == "f32"                  ? what<float>                                                \
     : type == "f64"                  ? what<double>                                               \
     : type == "u64" || type == "b64" ? what<uint64_t>                                             \
     : type == "s64"                  ? what<int64_t>                                              \
                                      : NULL)

handler find_load(const std::string &type) {
    return BY_TYPE(load);
}
handler find_store(const std::string &type) {
    return BY_TYPE(store);
}

/* --- asynchronous copies --- */

static void finish_copy(warp &w, int lane, const copy &c) {
    memcpy(shared_bytes + c.to, (const void *)c.from, c.bytes);
    each_word(c.to, c.bytes, [&](uint64_t k, uint8_t mask, uint32_t) {
        shared_words[k].on_the_way = 0;
        shared_words[k].written = mark_of(w, lane, mask, false);
    });
}

/* The bytes come at once or not before the wait, by chance. */
void copy_async(warp &w, const instruction &i, uint32_t lanes) {
    each(lanes, [&](int lane) {
        copy c = {(uint32_t)address(w, i, lane, 0, i.target, true),
                  address(w, i, lane, 1, i.offset, false), i.n, w.groups[lane]};
        if (c.to % i.n != 0 || c.from % i.n != 0)
            stop(w, i, lane, "misaligned address of cp.async");
        instruction plain = i;
        plain.used = ~0u;
        reach_global(w, plain, lane, c.from, i.n, access::read, ~0u);
        char *to = reach_shared(w, plain, lane, c.to, i.n, access::write, ~0u);
        each_word(c.to, i.n,
                  [&](uint64_t k, uint8_t, uint32_t) { shared_words[k].on_the_way = 15; });
        if (draw(2)) memcpy(to, (const void *)c.from, i.n);
        w.copies[lane].push_back(c);
    });
}

void copy_commit(warp &w, const instruction &, uint32_t lanes) {
    each(lanes, [&](int lane) { w.groups[lane]++; });
}

void copy_wait(warp &w, const instruction &i, uint32_t lanes) {
    each(lanes, [&](int lane) {
        std::vector<copy> left;
        for (const copy &c : w.copies[lane])
            if (i.offset < 0 || c.group + i.offset < w.groups[lane])
                finish_copy(w, lane, c);
            else
                left.push_back(c);
        w.copies[lane].swap(left);
    });
}

void fence(warp &w, const instruction &, uint32_t) {
    w.owner->fenced = true;
}

void prefetch(warp &w, const instruction &i, uint32_t lanes) {
    each(lanes, [&](int lane) { (void)address(w, i, lane, 0, i.offset, i.narrow); });
}

void begin_grid(const block &b) {
    std::fill(shared_is.begin(), shared_is.end(), (uint8_t)0);
    each_variable(b, [](uint32_t at, uint32_t bytes) {
        each_word(at, bytes, [](uint64_t k, uint8_t mask, uint32_t) { shared_is[k] |= mask; });
    });
}
void begin_block(const block &b) {
    each_variable(b, [](uint32_t at, uint32_t bytes) { memset(shared_bytes + at, 0xff, bytes); });
}

/* --- what the host does --- */

void allocate(void *p, size_t bytes, bool mapped) {
    allocation &a = allocations[(uint64_t)p + bytes];
    a.bytes = bytes;
    a.mapped = mapped;
    a.words.make(bytes / 4 + 1);
}

bool release(void *p) {
    auto found = allocations.upper_bound((uint64_t)p);
    if (found == allocations.end() || found->first - found->second.bytes != (uint64_t)p)
        return false;
    allocations.erase(found);
    last_begin = last_end = 0;
    return true;
}

void host_writes(void *p, size_t bytes) {
    uint64_t begin = 0;
    allocation *a = bytes ? find((uint64_t)p, &begin) : NULL;
    if (!a) return;
    if ((uint64_t)p + bytes > begin + a->bytes) {
        report_launch("a copy or memset", "beyond its allocation");
        return;
    }
    mark now = {new_serial(), 1, 0, 0, 0, 15, false};
    each_word((uint64_t)p - begin, bytes, [&](uint64_t k, uint8_t mask, uint32_t) {
        word &x = a->words[k];
        if (!is_past(x.written.serial) || !is_past(x.read.serial))
            report_launch("a copy or memset",
                          "race: another stream uses this, and no event orders them");
        x.known |= mask;
        x.written = now;
    });
}

} // namespace ptx
