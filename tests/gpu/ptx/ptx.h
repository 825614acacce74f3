/* ptx.h : nvcc's PTX of cuda/specrt_kernels.cu, executed on a CPU.
 *
 * A kernel is decoded at its first launch (decode.cc). A warp executes an instruction for all of its lanes
 * that stand at it (warp.cc); lanes have places of their own, as from sm_70 on, and come together where their
 * ways do. Blocks run one after another. Blocks, warps and parts of a warp take turns in an order drawn from
 * `seed` of $SPECRT_PTX. Memory knows who wrote and read each word and what was never written (memory.cc).
 * What is wrong is reported once for a place; the program then fails when it ends (report.cc). */
#ifndef PTX_H
#define PTX_H

#include <stdint.h>
#include <string.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ptx {

enum { LANES = 32, MAX_OPERANDS = 14 };

/* A register of one lane; narrow values are extended as their type says. */
typedef uint64_t cell;

enum class flow : uint8_t { plain, branch, exit, warp, block };
enum class space : uint8_t { generic, global, shared, local, param };
enum class access : uint8_t { read, read_only, write, atomic };

struct instruction;
struct warp;
struct block;
typedef void (*handler)(warp &, const instruction &, uint32_t lanes);

struct instruction {
    handler run;
    flow flows;
    space where;
    access how;
    uint8_t n;      /* elements of a vector */
    bool narrow;    /* the address has 32 bits */
    bool guard_not; /* executed where the guard is false */
    bool is_volatile;
    int guard;            /* predicate register, or -1 */
    int x[MAX_OPERANDS];  /* registers, or ~index of constants */
    int64_t offset;       /* of the address; also what else an operation was told */
    int target;           /* of a branch, or mode of an operation */
    uint32_t used;        /* bytes of a load that anybody looks at */
    int line, source, at; /* line of the PTX; file and line of the source */
    const char *name;
    mutable bool has_run; /* for any lane */
};

struct variable {
    uint32_t offset, bytes;
};

/* An entry with all that it calls, in place of the calls. */
struct program {
    std::string name;
    std::vector<instruction> code;
    std::vector<cell> constants; /* [n, LANES] */
    std::map<std::string, variable> shared;
    int n_registers;
    uint32_t shared_bytes, local_bytes, param_bytes;
    std::vector<variable> params;
    int most_threads; /* 0: any */
};

/* Registers that hold what PTX calls by a name of its own, first of all. */
enum { TID, NTID = 3, CTAID = 6, NCTAID = 9, LANE = 12, SINK = 13, N_FIXED = 14 };

/* decode() : the entry of a name in the PTX that $SPECRT_PTX names, or NULL. */
const program *decode(const std::string &name);
const char *source_name(int file);
/* Handlers of plain operations, by name; NULL where there is none. */
handler find_plain(const std::string &op);
/* The same of those that lanes of a warp do together. */
handler find_warp(const std::string &op);
/* memory.cc's: of elements of a type. */
handler find_load(const std::string &type);
handler find_store(const std::string &type);
handler find_atomic(const std::string &op, const std::string &type);
void copy_async(warp &, const instruction &, uint32_t lanes);
void copy_commit(warp &, const instruction &, uint32_t lanes);
void copy_wait(warp &, const instruction &, uint32_t lanes);
void fence(warp &, const instruction &, uint32_t lanes);
void prefetch(warp &, const instruction &, uint32_t lanes);

/* --- what runs --- */

/* One copy that a thread began. */
struct copy {
    uint32_t to;
    uint64_t from;
    uint32_t bytes, group;
};

struct warp {
    block *owner;
    const program *code;
    int index, n_lanes;
    std::vector<cell> registers; /* [n, LANES] */
    std::vector<char> local;     /* [LANES, local_bytes] */
    int pc[LANES];
    uint32_t alive, ready, in_warp, in_block; /* lanes */
    uint32_t masks[LANES];                    /* of the warp operations they wait in */
    /* What lane i knows of lane j: all it did before seen[i][j]. */
    uint16_t seen[LANES][LANES];
    std::vector<copy> copies[LANES];
    uint32_t groups[LANES];

    const cell *in(int x) const {
        return x >= 0 ? &registers[(size_t)x * LANES] : &code->constants[(size_t)~x * LANES];
    }
    cell *out(int x) { return &registers[(size_t)x * LANES]; }
};

struct block {
    const program *code;
    const char *params;
    uint32_t size[3], grid[3], at[3];
    uint32_t serial, first_serial; /* of the block and of its launch's first */
    uint32_t dynamic_bytes;
    uint16_t epoch; /* barriers so far */
    bool fenced;
};

/* run_grid() : runs all blocks of a launch. */
void run_grid(const program &code, const uint32_t grid[3], const uint32_t size[3],
              uint32_t dynamic_bytes, const char *params);

/* new_serial() : a number for a block, or for what the host does to memory. operation_serial() : the first of
 * the operation that runs. is_past() : whether what has this number comes before that operation: in its own
 * stream, or by events, graphs' edges and what the host waited for. */
uint32_t new_serial();
uint32_t operation_serial();
bool is_past(uint32_t serial);

/* --- numbers --- */

template <typename T> T get(const cell *c) {
    T x;
    if constexpr (std::is_same<T, bool>::value) return *c != 0; /* "-1" is true, too */
    memcpy(&x, c, sizeof x);
    return x;
}
template <typename T> void put(cell *c, T x) {
    if constexpr (std::is_integral<T>::value) {
        *c = (cell)x; /* extends signs */
    } else {
        *c = 0;
        memcpy(c, &x, sizeof x);
    }
}

template <typename F> void each(uint32_t lanes, F f) {
    if (lanes == 0xffffffffu)
        for (int lane = 0; lane < LANES; lane++) f(lane);
    else
        for (; lanes != 0; lanes &= lanes - 1) f(__builtin_ctz(lanes));
}

/* --- memory.cc: memory --- */

/* Addresses of shared and local memory among all others. */
const uint64_t SHARED_WINDOW = 1ull << 62, LOCAL_WINDOW = 1ull << 61;
/* Static shared memory begins at 0, what the launch asks for here. */
enum { DYNAMIC_AT = 64 << 10, SHARED_MOST = DYNAMIC_AT + (228 << 10) };
/* What shared memory a launch has, which is the same for all of its blocks; then what a block finds in it. */
void begin_grid(const block &b);
void begin_block(const block &b);

/* --- report.cc: what is wrong --- */

uint32_t draw(uint32_t n); /* below n */
void report(const warp &w, const instruction &i, int lane, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same of what no instruction does. */
void report_launch(const std::string &kernel, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* And the end, since nothing sensible can follow. */
[[noreturn]] void stop(const warp &w, const instruction &i, int lane, const char *what);

} // namespace ptx

#endif
