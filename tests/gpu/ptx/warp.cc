/* warp.cc : blocks, warps and lanes take turns; what lanes of a warp and warps of a block do together. */
#include "ptx.h"
#include "numbers.h"

#include <algorithm>

namespace ptx {

namespace {

/* --- what a warp does together --- */

/* Each knows what all of them did so far. */
void meet(warp &w, uint32_t lanes) {
    uint16_t all[LANES] = {0};
    each(lanes, [&](int lane) {
        for (int k = 0; k < LANES; k++) all[k] = std::max(all[k], w.seen[lane][k]);
    });
    each(lanes, [&](int lane) { all[lane]++; });
    each(lanes, [&](int lane) { memcpy(w.seen[lane], all, sizeof all); });
}

/* bar.warp.sync: others know now what a lane did before, and not what it does from now on. */
void sync_warp(warp &w, const instruction &, uint32_t lanes) {
    meet(w, lanes);
}

enum { UP, DOWN, BUTTERFLY, INDEX };

/* The lane that one reads, and whether it is in range. */
template <int kMode> int source_of(int lane, int b, int c, bool *in_range) {
    int segment = c >> 8 & 31, clamp = c & 31;
    int most = (lane & segment) | (clamp & ~segment), first = lane & segment;
    int from = kMode == UP      ? lane - (b & 31)
               : kMode == DOWN  ? lane + (b & 31)
               : kMode == INDEX ? first | (b & 31 & ~segment)
                                : lane ^ (b & 31);
    *in_range = kMode == UP ? from >= most : from <= most;
    return *in_range ? from : lane;
}

/* x: result, predicate, value, b, c, mask. */
template <int kMode> void shuffle(warp &w, const instruction &i, uint32_t lanes) {
    cell values[LANES];
    memcpy(values, w.in(i.x[2]), sizeof values);
    each(lanes, [&](int lane) {
        bool in_range;
        int from = source_of<kMode>(lane, get<int>(w.in(i.x[3]) + lane),
                                    get<int>(w.in(i.x[4]) + lane), &in_range);
        if (!(lanes >> from & 1)) report(w, i, lane, "reads a lane that takes no part");
        put<uint32_t>(w.out(i.x[0]) + lane, get<uint32_t>(values + from));
        put<bool>(w.out(i.x[1]) + lane, in_range);
    });
}

/* x: result, predicate, mask. */
void ballot(warp &w, const instruction &i, uint32_t lanes) {
    uint32_t yes = 0;
    each(lanes, [&](int lane) { yes |= (uint32_t)get<bool>(w.in(i.x[1]) + lane) << lane; });
    each(lanes, [&](int lane) { put<uint32_t>(w.out(i.x[0]) + lane, yes); });
}

/* --- products of matrices --- */

enum format { F16, BF16 };

/* Element k of lane's operand that begins at register x: kPer elements in each of its registers. */
template <format kFormat>
double half_at(const warp &w, const instruction &i, int x, int lane, int k) {
    uint16_t bits16 = (uint16_t)(get<uint32_t>(w.in(i.x[x + k / 2]) + lane) >> (16 * (k % 2)));
    return kFormat == F16 ? from_half(bits16) : from_bfloat(bits16);
}

/* m16n8kK of 16-bit numbers: x holds c's 4 registers, then K / 4 of A, K / 8 of B, 4 of the sum. The order of
 * additions is the hardware's own; here they are rounded once. */
template <format kFormat, int K> void multiply(warp &w, const instruction &i, uint32_t) {
    float out[LANES][4];
    double a[16][K], b[8][K];
    for (int k = 0; k < K; k++) {
        int pair = k % 8 / 2, half = k % 2, later = k / 8;
        for (int row = 0; row < 16; row++)
            a[row][k] =
                half_at<kFormat>(w, i, 4, row % 8 * 4 + pair, 4 * later + row / 8 * 2 + half);
        for (int column = 0; column < 8; column++)
            b[column][k] = half_at<kFormat>(w, i, 4 + K / 4, column * 4 + pair, 2 * later + half);
    }
    for (int lane = 0; lane < LANES; lane++)
        for (int c = 0; c < 4; c++) {
            int row = lane / 4 + 8 * (c / 2), column = lane % 4 * 2 + c % 2;
            double sum = get<float>(w.in(i.x[4 + K / 4 + K / 8 + c]) + lane);
            for (int k = 0; k < K; k++) sum += a[row][k] * b[column][k];
            out[lane][c] = canonical((float)sum);
        }
    for (int lane = 0; lane < LANES; lane++)
        for (int c = 0; c < 4; c++) put<float>(w.out(i.x[c]) + lane, out[lane][c]);
}

/* m(8 kRows)n8k16 of bytes: 2 kRows registers of the result, kRows of A, 1 of B, 2 kRows of the sum. */
template <int kRows> void multiply_bytes(warp &w, const instruction &i, uint32_t) {
    int32_t out[LANES][2 * kRows];
    for (int lane = 0; lane < LANES; lane++)
        for (int c = 0; c < 2 * kRows; c++) {
            int column = lane % 4 * 2 + c % 2;
            int32_t sum = get<int32_t>(w.in(i.x[3 * kRows + 1 + c]) + lane);
            for (int k = 0; k < 4; k++)
                sum = dot<int8_t, int8_t>()(
                    get<uint32_t>(w.in(i.x[2 * kRows + c / 2]) + lane / 4 * 4 + k),
                    get<uint32_t>(w.in(i.x[3 * kRows]) + column * 4 + k), sum);
            out[lane][c] = sum;
        }
    for (int lane = 0; lane < LANES; lane++)
        for (int c = 0; c < 2 * kRows; c++) put<int32_t>(w.out(i.x[c]) + lane, out[lane][c]);
}

/* --- a warp's turn --- */

uint32_t mask_of(const warp &w, const instruction &i, int lane) {
    return i.offset < 0 ? ~0u : get<uint32_t>(w.in(i.x[i.offset]) + lane);
}

/* The lanes of `lanes` whose guard holds. */
uint32_t guarded(const warp &w, const instruction &i, uint32_t lanes) {
    uint32_t out = 0;
    if (i.guard < 0) return lanes;
    each(lanes, [&](int lane) {
        out |= (uint32_t)(get<bool>(w.in(i.guard) + lane) != i.guard_not) << lane;
    });
    return out;
}

/* Lets lanes go on that have all come to the same operation. */
bool finish_warp(warp &w) {
    for (uint32_t left = w.in_warp; left != 0; left &= left - 1) {
        int first = __builtin_ctz(left);
        uint32_t mask = w.masks[first], live = mask & w.alive;
        const instruction &i = w.code->code[(size_t)w.pc[first]];
        bool all = (live & ~w.in_warp) == 0;
        each(live & w.in_warp,
             [&](int lane) { all = all && w.pc[lane] == w.pc[first] && w.masks[lane] == mask; });
        if (!all) continue;
        if (i.offset < 0 && live != ~0u) stop(w, i, first, "not all lanes take part");
        if (live != (mask & (w.n_lanes == LANES ? ~0u : (1u << w.n_lanes) - 1)))
            report(w, i, first, "the mask names a lane that has returned");
        i.run(w, i, live);
        each(live, [&](int lane) { w.pc[lane]++; });
        w.in_warp &= ~live;
        w.ready |= live;
        return true;
    }
    return false;
}

/* Of the lanes that are ready some that stand at one place, mostly the first one of the code. */
uint32_t choose_lanes(const warp &w, int *pc, int *stop_at) {
    uint32_t group = 0;
    int chosen = 0x7fffffff, next = 0x7fffffff;
    each(w.ready, [&](int lane) { chosen = std::min(chosen, w.pc[lane]); });
    if (draw(16) == 0) {
        uint32_t left = w.ready;
        for (uint32_t skip = draw((uint32_t)__builtin_popcount(left)); skip > 0; skip--)
            left &= left - 1;
        chosen = w.pc[__builtin_ctz(left)];
    }
    each(w.ready, [&](int lane) {
        if (w.pc[lane] == chosen) group |= 1u << lane;
        if (w.pc[lane] > chosen) next = std::min(next, w.pc[lane]);
    });
    *pc = chosen, *stop_at = next;
    return group;
}

/* Lanes stop at something that others take part in. */
void wait(warp &w, const instruction &i, uint32_t lanes) {
    w.ready &= ~lanes;
    if (i.flows == flow::block) {
        w.in_block |= lanes;
        return;
    }
    w.in_warp |= lanes;
    each(lanes, [&](int lane) {
        w.masks[lane] = mask_of(w, i, lane);
        if (!(w.masks[lane] >> lane & 1)) stop(w, i, lane, "a lane is not in its own mask");
    });
}

void leave(warp &w, const instruction &i, uint32_t lanes) {
    each(lanes, [&](int lane) {
        if (!w.copies[lane].empty())
            report(w, i, lane, "returns before cp.async has been waited for");
    });
    w.alive &= ~lanes;
    w.ready &= ~lanes;
}

/* Runs one group until its ways part, or it waits, or comes to where others are. */
void run_group(warp &w) {
    int pc, stop_at;
    uint32_t group = choose_lanes(w, &pc, &stop_at);
    for (int n = 0; n == 0 || (pc < stop_at && n < 4096); n++) {
        const instruction &i = w.code->code[(size_t)pc];
        uint32_t lanes = guarded(w, i, group);
        i.has_run = i.has_run || lanes;
        if (i.flows == flow::plain) {
            if (lanes) i.run(w, i, lanes);
            pc++;
            continue;
        }
        each(group, [&](int lane) { w.pc[lane] = pc + !(lanes >> lane & 1); });
        if (i.flows == flow::branch)
            each(lanes, [&](int lane) { w.pc[lane] = i.target; });
        else if (i.flows == flow::exit)
            leave(w, i, lanes);
        else if (lanes)
            wait(w, i, lanes);
        if (i.flows != flow::branch || (lanes != 0 && lanes != group)) return;
        pc = lanes ? i.target : pc + 1;
        if (lanes && stop_at != 0x7fffffff) return; /* others may be behind */
    }
    each(group, [&](int lane) { w.pc[lane] = pc; });
}

void run_warp(warp &w) {
    do {
        while (w.ready) run_group(w);
    } while (finish_warp(w));
    if (w.in_warp) {
        int lane = __builtin_ctz(w.in_warp);
        stop(w, w.code->code[(size_t)w.pc[lane]], lane, "waits for lanes that never come");
    }
}

/* --- a block --- */

void begin_warp(warp &w, block &b, int index, int n_threads) {
    w.owner = &b;
    w.code = b.code;
    w.index = index;
    w.n_lanes = std::min<int>(LANES, n_threads - index * LANES);
    w.registers.resize((size_t)b.code->n_registers * LANES);
    w.local.assign((size_t)LANES * b.code->local_bytes, (char)0xff);
    w.alive = w.ready = w.n_lanes == LANES ? ~0u : (1u << w.n_lanes) - 1;
    w.in_warp = w.in_block = 0;
    for (int lane = 0; lane < LANES; lane++) {
        uint32_t x = (uint32_t)(index * LANES + lane);
        const uint32_t thread[3] = {x % b.size[0], x / b.size[0] % b.size[1],
                                    x / b.size[0] / b.size[1]};
        for (int d = 0; d < 3; d++) {
            w.out(TID + d)[lane] = thread[d];
            w.out(NTID + d)[lane] = b.size[d];
            w.out(CTAID + d)[lane] = b.at[d];
            w.out(NCTAID + d)[lane] = b.grid[d];
        }
        w.out(LANE)[lane] = (cell)lane;
        w.pc[lane] = 0;
        w.copies[lane].clear();
        w.groups[lane] = 0;
        for (int k = 0; k < LANES; k++) w.seen[lane][k] = k == lane;
    }
}

/* All that live are at the barrier: counts and lets them go on. @return false where nobody waits. */
bool finish_barrier(block &b, std::vector<warp> &warps, int n_warps) {
    uint32_t count = 0;
    int site = -1;
    bool waits = false, left = false;
    for (int k = 0; k < n_warps; k++) {
        warp &w = warps[(size_t)k];
        uint32_t all = w.n_lanes == LANES ? ~0u : (1u << w.n_lanes) - 1;
        left = left || w.alive != all;
        waits = waits || w.in_block;
        each(w.in_block, [&](int lane) {
            const instruction &i = w.code->code[(size_t)w.pc[lane]];
            if (site >= 0 && site != w.pc[lane])
                report(w, i, lane, "threads of a block wait at different barriers");
            site = w.pc[lane];
            count += get<bool>(w.in(i.x[1]) + lane);
        });
    }
    for (int k = 0; k < n_warps; k++) {
        warp &w = warps[(size_t)k];
        each(w.in_block, [&](int lane) {
            const instruction &i = w.code->code[(size_t)w.pc[lane]];
            if (left) report(w, i, lane, "a barrier after threads of the block have returned");
            put<uint32_t>(w.out(i.x[0]) + lane, count);
            w.pc[lane]++;
        });
        w.ready = w.in_block;
        w.in_block = 0;
    }
    b.epoch++;
    return waits;
}

void run_block(block &b, std::vector<warp> &warps) {
    int n_threads = (int)(b.size[0] * b.size[1] * b.size[2]),
        n_warps = (n_threads + LANES - 1) / LANES;
    std::vector<int> order;
    begin_block(b);
    for (int k = 0; k < n_warps; k++) {
        begin_warp(warps[(size_t)k], b, k, n_threads);
        order.push_back(k);
    }
    do {
        for (int k = n_warps - 1; k > 0; k--)
            std::swap(order[(size_t)k], order[draw((uint32_t)k + 1)]);
        for (int k : order) run_warp(warps[(size_t)k]);
    } while (finish_barrier(b, warps, n_warps));
}

} // namespace

handler find_warp(const std::string &op) {
    static const std::map<std::string, handler> all = {
        {"bar.warp.sync", sync_warp},
        {"shfl.sync.up.b32", shuffle<UP>},
        {"shfl.sync.down.b32", shuffle<DOWN>},
        {"shfl.sync.bfly.b32", shuffle<BUTTERFLY>},
        {"shfl.sync.idx.b32", shuffle<INDEX>},
        {"vote.sync.ballot.b32", ballot},
        {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", multiply<F16, 16>},
        {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", multiply<BF16, 16>},
        {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", multiply<F16, 8>},
        {"mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", multiply_bytes<2>},
        {"mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", multiply_bytes<1>},
    };
    auto found = all.find(op);
    return found == all.end() ? NULL : found->second;
}

void run_grid(const program &code, const uint32_t grid[3], const uint32_t size[3],
              uint32_t dynamic_bytes, const char *params) {
    static std::vector<warp> warps(1024 / LANES);
    uint64_t n = (uint64_t)grid[0] * grid[1] * grid[2];
    std::vector<uint64_t> order(n);
    block b = {};
    b.code = &code;
    b.params = params;
    b.dynamic_bytes = dynamic_bytes;
    b.first_serial = operation_serial();
    memcpy(b.size, size, sizeof b.size);
    memcpy(b.grid, grid, sizeof b.grid);
    for (uint64_t k = 0; k < n; k++) {
        uint64_t j = draw((uint32_t)k + 1);
        order[k] = order[j];
        order[j] = k;
    }
    begin_grid(b);
    for (uint64_t k : order) {
        b.at[0] = (uint32_t)(k % grid[0]);
        b.at[1] = (uint32_t)(k / grid[0] % grid[1]);
        b.at[2] = (uint32_t)(k / grid[0] / grid[1]);
        b.serial = new_serial();
        b.epoch = 0;
        b.fenced = false;
        run_block(b, warps);
    }
}

} // namespace ptx
