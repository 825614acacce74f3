/* test_gpu_state.c : membership, packed rows and the window on the device against the CPU's, over long
 * histories, at windows smaller and larger than what a cycle brings. */
#include "specrt.h"
#include "core/base.h"
#include "core/pool.h"
#include "sources/window.h"
#include "cuda/kernels.h"
#include "gpu.h"

enum { N_IDS = 211, BATCH = 3, CAPACITY = 200, K = 5, N_PROMPT = 40, N_CYCLES = 8, N_COLS = 2 };

GPU_RANDOM(99)

/* Tokens of all kinds: mostly few, so that they come again; some that are none. */
static int32_t draw_token(void) {
    int32_t kind = random_below(20);
    if (kind == 0) return -1;
    if (kind == 1) return N_IDS + random_below(3);
    return kind < 10 ? random_below(20) : random_below(N_IDS);
}

/* One sequence on both sides. */
typedef struct sequence {
    specrt__cuda_state_params params;
    specrt__pool *pool;
    specrt__window *window;
    specrt__cuda_mailbox *mailbox; /* of the host, which a device sees */
    int32_t packed[CAPACITY];      /* what the device's rows hold, by following `fresh` */
} sequence;

typedef struct cycle_input {
    specrt_cuda_draft drafts[BATCH];
    specrt_verdict verdicts[BATCH];
    int32_t best[BATCH][SPECRT_TREE_MAX_NODES][K];
} cycle_input;

static specrt_head *head;
static float head_rows[N_IDS][N_COLS];
static int32_t frequent[N_IDS];

static void draw_params(specrt__cuda_state_params *p, int variant) {
    memset(p, 0, sizeof *p);
    p->n_ids = N_IDS;
    p->capacity = CAPACITY;
    p->size = variant % 5 == 4 ? 150 : 1 + random_below(60);
    p->mode = variant / 3 % 2;
    p->positions = random_below(3);
    p->only = variant % 7 == 5 ? SPECRT__WINDOW_CTX : variant % 7 == 6 ? SPECRT__WINDOW_EXT : 0;
    p->kpre = random_below(K + 2);
    p->kver = random_below(K + 2);
    p->emitted = random_below(4) > 0;
    p->min = random_below(70);
    p->n_frequent = random_below(N_IDS);
}

static void mark(specrt__pool *pool) {
    for (int i = 0; i < 12; i++) specrt__pool_mark(pool, 17 * i, SPECRT__POOL_FIXED);
    for (int i = 0; i < 9; i++) specrt__pool_mark(pool, 5 + 21 * i, SPECRT__POOL_INVALID);
}

static void make_sequence(sequence *s, int variant) {
    specrt_env env = specrt__base_env(NULL);
    draw_params(&s->params, variant);
    specrt__window_params p = {.size = s->params.size,
                               .mode = s->params.mode,
                               .positions = s->params.positions,
                               .only = s->params.only,
                               .kpre = s->params.kpre,
                               .kver = s->params.kver,
                               .emitted = s->params.emitted,
                               .min = s->params.min,
                               .frequent = variant % 3 ? frequent : NULL,
                               .n_frequent = s->params.n_frequent};
    s->pool = specrt__pool_create(head, N_IDS, CAPACITY, &env);
    s->window = specrt__window_create(s->pool, &p, 0, &env);
    REQUIRE(s->window->bit == SPECRT__CUDA_WINDOW);
    REQUIRE(specrt__pool_register(s->pool) == SPECRT__CUDA_RETRIEVE);
    mark(s->pool);
    if (!s->mailbox)
        gpu_check(cudaHostAlloc((void **)&s->mailbox, sizeof *s->mailbox, cudaHostAllocMapped),
                  "cudaHostAlloc");
    memset(s->mailbox, 0, sizeof *s->mailbox);
    s->mailbox->posted = s->mailbox->taken = UINT32_MAX - 20; /* numbers wrap around */
    memset(s->packed, 0xff, sizeof s->packed);
}

/* --- comparison --- */

static int32_t *fetch(const int32_t *device, int32_t n) {
    int32_t *out = (int32_t *)malloc(((size_t)n + 1) * sizeof *out);
    gpu_get(out, device, (size_t)n * sizeof *out);
    return out;
}

static void compare_rows(sequence *s, const specrt_cuda_state *d) {
    int32_t *ids = fetch(d->ids, d->n_rows), *fresh = fetch(d->fresh, d->n_fresh);
    int32_t *slots = fetch(d->slots, N_IDS);
    bool seen[CAPACITY] = {false};
    CHECK_INT(d->n_rows, s->pool->n_rows);
    CHECK_INT(d->n_refused, 0);
    for (int32_t i = 0; i < d->n_fresh; i++) {
        REQUIRE(fresh[i] >= 0 && fresh[i] < d->n_rows && !seen[fresh[i]]);
        seen[fresh[i]] = true;
        s->packed[fresh[i]] = ids[fresh[i]];
    }
    for (int32_t i = 0; i < d->n_rows; i++) {
        CHECK_INT(s->packed[i], ids[i]);
        REQUIRE(ids[i] >= 0 && ids[i] < N_IDS);
        CHECK_INT(slots[ids[i]], i);
    }
    for (int32_t i = 0; i < N_IDS; i++) CHECK_INT(slots[i] >= 0, s->pool->slots[i] >= 0);
    free(ids);
    free(fresh);
    free(slots);
}

static void compare_window(const sequence *s, const specrt_cuda_state *d) {
    const specrt__window *w = s->window;
    bool stream = s->params.mode == SPECRT__WINDOW_STREAM;
    int32_t *list = fetch(d->list, d->n_list), i = 0;
    CHECK_INT(d->n_list, w->n_list);
    for (int32_t at = w->newer[w->list_size]; at != w->list_size && i < d->n_list;
         at = w->newer[at])
        CHECK_INT(list[i++], w->ids[at]);
    free(list);
    if (!stream) return;
    CHECK_INT(d->n_ring, w->n_ring);
    list = fetch(d->ring, s->params.size);
    for (i = 0; i < w->n_ring; i++)
        CHECK_INT(list[(d->ring_begin + i) % s->params.size],
                  w->ring[(w->ring_begin + i) % s->params.size]);
    free(list);
}

static void compare(sequence *s, const specrt_cuda_state *device, bool synced) {
    specrt_cuda_state d;
    uint8_t wants[N_IDS];
    gpu_get(&d, device, sizeof d);
    gpu_get(wants, d.wants, N_IDS);
    for (int32_t i = 0; i < N_IDS; i++)
        CHECK_INT(wants[i] % SPECRT__CUDA_LISTED, s->pool->wants[i] & ~SPECRT__POOL_CHANGED);
    CHECK_INT(d.n_wanted, s->pool->n_wanted);
    CHECK_INT(d.n_fill, s->window->n_fill);
    compare_window(s, &d);
    if (synced) compare_rows(s, &d);
    int32_t *marks = fetch(d.marks, N_IDS);
    for (int32_t i = 0; i < N_IDS; i++) CHECK_INT(marks[i], -1);
    free(marks);
}

/* --- what happens --- */

/* Wishes for both sides; a token may come several times. */
static void post(sequence *s) {
    int32_t n = random_below(4) ? random_below(8) : 0;
    for (int32_t i = 0; i < n; i++) {
        specrt__cuda_change c = {random_below(N_IDS), SPECRT__CUDA_RETRIEVE, 0, 0};
        if (random_below(3) == 0) c.bit = SPECRT__CUDA_PINNED;
        c.on = random_below(3) > 0;
        if (!specrt__pool_valid(s->pool, c.id)) c.on = 1; /* passed over */
        s->mailbox->changes[s->mailbox->posted++ % SPECRT__CUDA_CHANGES] = c;
        if (!specrt__pool_valid(s->pool, c.id)) continue;
        if (c.on)
            specrt__pool_want(s->pool, c.id, c.bit);
        else
            specrt__pool_drop(s->pool, c.id, c.bit);
    }
}

/* A tree's tokens, a path and what the target thought; some sequences rest. */
static void draw_cycle(cycle_input *in) {
    for (int b = 0; b < BATCH; b++) {
        specrt_cuda_draft *draft = &in->drafts[b];
        specrt_verdict *verdict = &in->verdicts[b];
        draft->n = 1 + random_below(SPECRT_TREE_MAX_NODES);
        verdict->n = random_below(8) ? 1 + random_below(draft->n) : 0;
        for (int i = 0; i < SPECRT_TREE_MAX_NODES; i++) {
            draft->tokens[i] = draw_token();
            verdict->tokens[i] = draw_token();
            verdict->nodes[i] = random_below(draft->n);
            for (int j = 0; j < K; j++) in->best[b][i][j] = draw_token();
        }
    }
}

static void observe_on_cpu(sequence *s, const cycle_input *in, int b, bool told) {
    specrt_draft draft = {0};
    specrt_target_rows rows = {.ids = in->best[b][0], .k = K};
    draft.n = in->drafts[b].n;
    draft.tokens = in->drafts[b].tokens;
    if (in->verdicts[b].n == 0) return;
    specrt__source_cycle cycle = {&draft, &in->verdicts[b], told ? &rows : NULL, NULL};
    specrt__window_observe(s->window, &cycle);
    specrt__pool_sync(s->pool);
}

static void prefill(sequence *s, specrt_cuda_state *states, bool told) {
    int32_t tokens[BATCH][N_PROMPT], n[BATCH], best[BATCH][N_PROMPT][K];
    for (int b = 0; b < BATCH; b++) {
        n[b] = b == 0 ? N_PROMPT : random_below(N_PROMPT);
        for (int i = 0; i < N_PROMPT; i++) tokens[b][i] = draw_token();
        for (int i = 0; i < N_PROMPT * K; i++) best[b][i / K][i % K] = draw_token();
        specrt_target_rows rows = {.ids = best[b][0], .k = K};
        specrt__window_prefill(s[b].window, tokens[b], n[b], told ? &rows : NULL);
    }
    void *d_tokens = gpu_copy(tokens, sizeof tokens), *d_n = gpu_copy(n, sizeof n);
    void *d_best = gpu_copy(best, sizeof best);
    CHECK_INT(specrt__cuda_state_prefill(BATCH, (int32_t *)d_tokens, (int32_t *)d_n, N_PROMPT,
                                         told ? (int32_t *)d_best : NULL, K, states, NULL),
              SPECRT_STATUS_OK);
    for (int b = 0; b < BATCH; b++) compare(&s[b], &states[b], false);
    gpu_free(d_tokens);
    gpu_free(d_n);
    gpu_free(d_best);
}

static void start(sequence *s, specrt_cuda_state *states) {
    specrt_verdict verdicts[BATCH];
    memset(verdicts, 0, sizeof verdicts);
    for (int b = 0; b < BATCH; b++) {
        verdicts[b].n = 1;
        verdicts[b].tokens[0] = draw_token();
        post(&s[b]);
        specrt__window_start(s[b].window, verdicts[b].tokens[0]);
        specrt__pool_sync(s[b].pool);
    }
    specrt_verdict *d = (specrt_verdict *)gpu_copy(verdicts, sizeof verdicts);
    CHECK_INT(specrt__cuda_state_start(BATCH, d, states, NULL), SPECRT_STATUS_OK);
    for (int b = 0; b < BATCH; b++) compare(&s[b], &states[b], true);
    gpu_free(d);
}

static void observe(sequence *s, specrt_cuda_state *states) {
    static cycle_input in;
    bool told = random_below(10) > 0;
    draw_cycle(&in);
    for (int b = 0; b < BATCH; b++) {
        if (in.verdicts[b].n > 0) post(&s[b]);
        observe_on_cpu(&s[b], &in, b, told);
    }
    cycle_input *d = (cycle_input *)gpu_copy(&in, sizeof in);
    CHECK_INT(specrt__cuda_state_observe(BATCH, d->drafts, d->verdicts, told ? d->best[0][0] : NULL,
                                         K, states, NULL),
              SPECRT_STATUS_OK);
    for (int b = 0; b < BATCH; b++) {
        if (in.verdicts[b].n == 0) gpu_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        if (in.verdicts[b].n > 0) compare(&s[b], &states[b], true);
        CHECK_INT(s[b].mailbox->taken, s[b].mailbox->posted);
    }
    gpu_free(d);
}

static void begin(sequence *s, specrt_cuda_state *states, const int32_t *d_pinned,
                  const int32_t *pinned, int32_t n_pinned) {
    for (int b = 0; b < BATCH; b++) {
        specrt__pool_reset(s[b].pool);
        specrt__window_begin(s[b].window);
        for (int i = 0; i < n_pinned; i++)
            specrt__pool_want(s[b].pool, pinned[i], SPECRT__POOL_PINNED);
        specrt__pool_sync(s[b].pool);
    }
    CHECK_INT(specrt__cuda_state_begin(BATCH, d_pinned, n_pinned, states, NULL), SPECRT_STATUS_OK);
    for (int b = 0; b < BATCH; b++) compare(&s[b], &states[b], true);
}

static void run(int round) {
    static sequence s[BATCH];
    static const int32_t pinned[] = {3, 17, 200};
    int32_t *d_frequent = (int32_t *)gpu_copy(frequent, sizeof frequent);
    int32_t *d_pinned = (int32_t *)gpu_copy(pinned, sizeof pinned);
    specrt_cuda_state host[BATCH];
    void *memory[BATCH];
    for (int b = 0; b < BATCH; b++) {
        make_sequence(&s[b], round * BATCH + b);
        if (s[b].window->params.frequent) s[b].params.frequent = d_frequent;
        memory[b] = gpu_alloc(specrt__cuda_state_bytes(&s[b].params));
        REQUIRE(specrt__cuda_state_place(&s[b].params, memory[b], &host[b]) == SPECRT_STATUS_OK);
        host[b].n_fixed = s[b].pool->n_fixed;
        gpu_check(cudaHostGetDevicePointer((void **)&host[b].mailbox, s[b].mailbox, 0),
                  "cudaHostGetDevicePointer");
        gpu_put_marks(host[b].wants, s[b].pool->wants, N_IDS);
    }
    specrt_cuda_state *states = (specrt_cuda_state *)gpu_copy(host, sizeof host);
    for (int again = 0; again < 2; again++) {
        begin(s, states, d_pinned, pinned, 3);
        for (int chunk = 0; chunk < 3; chunk++) prefill(s, states, random_below(4) > 0);
        start(s, states);
        for (int i = 0; i < (test_brief() ? 3 : N_CYCLES); i++) observe(s, states);
    }
    for (int b = 0; b < BATCH; b++) {
        specrt__window_close(s[b].window);
        specrt__pool_free(s[b].pool);
        gpu_free(memory[b]);
    }
    gpu_free(states);
    gpu_free(d_frequent);
    gpu_free(d_pinned);
}

TEST(histories, "membership, rows and windows over many cycles") {
    head = bind_rows(NULL, head_rows, N_IDS, N_COLS);
    for (int32_t i = 0; i < N_IDS; i++) frequent[i] = i * 37 % N_IDS;
    for (int round = 0; round < 7; round++) run(round);
    specrt_head_close(head);
}

TEST(bits, "the device's numbers are the CPU's") {
    CHECK_INT(SPECRT__CUDA_INVALID, SPECRT__POOL_INVALID);
    CHECK_INT(SPECRT__CUDA_FIXED, SPECRT__POOL_FIXED);
    CHECK_INT(SPECRT__CUDA_PINNED, SPECRT__POOL_PINNED);
    CHECK_INT(SPECRT__CUDA_FILL, SPECRT__POOL_FILL);
}

TEST(refusals, "bad arguments give a status") {
    specrt__cuda_state_params p = {.n_ids = 10, .capacity = 8, .size = 4};
    specrt_cuda_state s;
    char memory[64];
    CHECK(specrt__cuda_state_bytes(&p) > 0);
    p.mode = 2;
    CHECK_INT(specrt__cuda_state_bytes(&p), 0);
    CHECK_INT(specrt__cuda_state_place(&p, memory, &s), SPECRT_STATUS_BAD_ARG);
    p.mode = 0;
    p.kver = SPECRT_LOGITS_MAX_K + 1;
    CHECK_INT(specrt__cuda_state_bytes(&p), 0);
    p.kver = 0;
    p.capacity = 11;
    CHECK_INT(specrt__cuda_state_bytes(&p), 0);
    p.capacity = 8;
    CHECK_INT(specrt__cuda_state_place(&p, NULL, &s), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_state_begin(0, NULL, 0, &s, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_state_begin(1, NULL, 1, &s, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_state_begin(1, NULL, 0, NULL, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_state_start(1, NULL, &s, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_state_observe(1, NULL, NULL, NULL, 1, &s, NULL), SPECRT_STATUS_BAD_ARG);
}
