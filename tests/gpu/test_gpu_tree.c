/* test_gpu_tree.c : trees grown, cut and verified on the device against the CPU's: the same nodes, masks and
 * tokens, in chains and in the widest trees, with ties, and with distributions that filters make hard. */
#include <stdbool.h>
#include "specrt.h"
#include "cuda/kernels.h"
#include "gpu.h"

enum { BATCH = 3, MAX_NODES = SPECRT_TREE_MAX_NODES };

GPU_RANDOM(5)

/* --- trees --- */

/* Log-probabilities that often tie, or are none. */
static float draw_logprob(int kind) {
    if (random_below(12) == 0) return random_below(2) ? -INFINITY : NAN;
    if (kind == 0) return -0.5f * (float)random_below(4);
    return kind == 1 ? -1.0f : -(float)fabs((double)fixture_normal(&random_state));
}

static void compare_beam(const specrt_cuda_beam *device, const specrt_beam *beam) {
    CHECK_INT(device->n, beam->n);
    for (int32_t i = 0; i < beam->n; i++) {
        CHECK_INT(device->tokens[i], beam->tokens[i]);
        CHECK_INT(device->parents[i], beam->parents[i]);
        CHECK(device->logprobs[i] == beam->logprobs[i]);
    }
}

static void compare_draft(const specrt_cuda_draft *device, const specrt_draft *draft,
                          int64_t root) {
    CHECK_INT(device->n, draft->n);
    for (int32_t i = 0; i < draft->n; i++) {
        CHECK_INT(device->tokens[i], draft->tokens[i]);
        CHECK_INT(device->parents[i], draft->parents[i]);
        CHECK_INT(device->depths[i], draft->depths[i]);
        CHECK_INT(device->positions[i], root + draft->depths[i]);
        CHECK(device->masks[i] == draft->masks[i]);
        CHECK(device->logprobs[i] == draft->logprobs[i]);
    }
}

typedef struct forest {
    specrt_tree *trees[BATCH];
    specrt__cuda_tree *device;
    specrt_cuda_beam *beams;
    specrt_cuda_draft *drafts;
    void *memory[BATCH];
} forest;

static void make_forest(forest *f, const specrt_tree_params *p, int64_t position) {
    specrt__cuda_tree host[BATCH];
    for (int b = 0; b < BATCH; b++) {
        REQUIRE(specrt_tree_create(p, NULL, &f->trees[b], NULL) == SPECRT_STATUS_OK);
        f->memory[b] = gpu_alloc(specrt__cuda_tree_bytes(p));
        REQUIRE(specrt__cuda_tree_place(p, position, f->memory[b], &host[b]) == SPECRT_STATUS_OK);
    }
    f->device = (specrt__cuda_tree *)gpu_copy(host, sizeof host);
    f->beams = (specrt_cuda_beam *)gpu_alloc(BATCH * sizeof *f->beams);
    f->drafts = (specrt_cuda_draft *)gpu_alloc(BATCH * sizeof *f->drafts);
}

static void free_forest(forest *f) {
    for (int b = 0; b < BATCH; b++) {
        specrt_tree_close(f->trees[b]);
        gpu_free(f->memory[b]);
    }
    gpu_free(f->device);
    gpu_free(f->beams);
    gpu_free(f->drafts);
}

/* The last sequence of a batch rests. */
static void begin_forest(forest *f, int32_t n_emitted) {
    specrt_verdict verdicts[BATCH];
    specrt_cuda_beam beams[BATCH];
    memset(verdicts, 0, sizeof verdicts);
    for (int b = 0; b < BATCH - 1; b++) {
        verdicts[b].n = n_emitted;
        verdicts[b].tokens[n_emitted - 1] = 40 + b;
        specrt_tree_begin(f->trees[b], 40 + b);
    }
    specrt_verdict *d = (specrt_verdict *)gpu_copy(verdicts, sizeof verdicts);
    CHECK_INT(specrt__cuda_tree_begin(BATCH, d, f->device, f->beams, NULL), SPECRT_STATUS_OK);
    gpu_get(beams, f->beams, sizeof beams);
    for (int b = 0; b < BATCH; b++) CHECK_INT(beams[b].n, b < BATCH - 1);
    CHECK_INT(beams[1].tokens[0], 41);
    gpu_free(d);
}

/* A pass: proposals of every row of the beam, fewer than topk of them at times. */
static void grow_forest(forest *f, int32_t topk, int kind, int32_t *n_beam) {
    static int32_t ids[BATCH][SPECRT_TREE_MAX_TOPK * SPECRT_TREE_MAX_TOPK];
    static float logprobs[BATCH][SPECRT_TREE_MAX_TOPK * SPECRT_TREE_MAX_TOPK];
    static specrt_beam beam;
    int32_t n = topk * topk;
    int32_t *all_ids = (int32_t *)malloc((size_t)(BATCH * n) * sizeof(int32_t));
    float *all_logprobs = (float *)malloc((size_t)(BATCH * n) * sizeof(float));
    for (int b = 0; b < BATCH; b++)
        for (int32_t i = 0; i < n; i++) {
            all_ids[b * n + i] = ids[b][i] = random_below(50);
            all_logprobs[b * n + i] = logprobs[b][i] = draw_logprob(kind);
        }
    int32_t *d_ids = (int32_t *)gpu_copy(all_ids, (size_t)(BATCH * n) * sizeof(int32_t));
    float *d_logprobs = (float *)gpu_copy(all_logprobs, (size_t)(BATCH * n) * sizeof(float));
    specrt_cuda_beam beams[BATCH];
    CHECK_INT(specrt__cuda_tree_expand(BATCH, topk, d_ids, d_logprobs, f->device, f->beams, NULL),
              SPECRT_STATUS_OK);
    gpu_get(beams, f->beams, sizeof beams);
    for (int b = 0; b < BATCH - 1; b++) {
        if (n_beam[b] == 0) continue;
        REQUIRE(specrt_tree_expand(f->trees[b], ids[b], logprobs[b], n_beam[b], topk, &beam) ==
                SPECRT_STATUS_OK);
        compare_beam(&beams[b], &beam);
        n_beam[b] = beam.n;
    }
    CHECK_INT(beams[BATCH - 1].n, 0);
    gpu_free(d_ids);
    gpu_free(d_logprobs);
    free(all_ids);
    free(all_logprobs);
}

static void run_forest(int32_t num_steps, int32_t topk, int32_t n_nodes, int kind) {
    specrt_tree_params p = {num_steps, topk, n_nodes};
    specrt_cuda_draft drafts[BATCH];
    specrt_draft draft;
    forest f;
    int64_t root = 0;
    make_forest(&f, &p, 100);
    for (int cycle = 0; cycle < 2; cycle++) {
        int32_t n_beam[BATCH] = {1, 1, 0}, n_emitted = 1 + random_below(5);
        begin_forest(&f, n_emitted);
        root = (cycle ? root : 99) + n_emitted;
        for (int32_t i = 0; i < num_steps - cycle; i++) grow_forest(&f, topk, kind, n_beam);
        CHECK_INT(specrt__cuda_tree_finish(BATCH, f.device, f.drafts, NULL), SPECRT_STATUS_OK);
        gpu_get(drafts, f.drafts, sizeof drafts);
        for (int b = 0; b < BATCH - 1; b++) {
            specrt_tree_finish(f.trees[b], &draft);
            compare_draft(&drafts[b], &draft, root);
        }
        CHECK_INT(drafts[BATCH - 1].n, 0);
    }
    free_forest(&f);
}

/* On the harness every case takes its turn at some of the data; long=1 takes all of it. */
static bool takes(size_t i, int kind, int n_kinds) {
    return gpu_long() || (int)i % n_kinds == kind;
}

TEST(trees, "beams, nodes, masks and positions") {
    static const int32_t shapes[][3] = {{6, 10, 60}, {4, 8, 32}, {1, 1, 2},   {6, 1, 7},
                                        {32, 1, 33}, {5, 1, 3},  {3, 64, 64}, {2, 3, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int kind = 0; kind < 3; kind++)
            if (takes(i, kind, 3)) run_forest(shapes[i][0], shapes[i][1], shapes[i][2], kind);
}

/* --- verification --- */

/* A row of logits: smooth, few values (ties), one token alone, none at all, or some at the edges of blocks of
 * 1,024 with nothing between. */
static void draw_logits(float *x, int32_t n, int kind) {
    for (int32_t i = 0; i < n; i++) {
        x[i] = 3 * fixture_normal(&random_state);
        if (kind == 1) x[i] = (float)random_below(3);
        if (kind == 2 && random_below(3)) x[i] = random_below(2) ? -INFINITY : NAN;
        if (kind == 3) x[i] = -INFINITY;
        if (kind == 4) x[i] = 1e-3f + 1e-9f * (float)random_below(1000); /* weights that tie */
    }
    if (kind == 5) x[random_below(n)] = INFINITY;
    if (kind == 6) {
        for (int32_t i = 0; i < n; i++) x[i] = -INFINITY;
        for (int k = 0; k < 6; k++) {
            int32_t id = 1024 * random_below(n / 1024 + 1) - random_below(2);
            if (id >= 0 && id < n) x[id] = fixture_normal(&random_state);
        }
        x[random_below(2) ? 0 : n - 1] = 1;
    }
}

/* Rows of logits [n, n_vocab + n_padding], whose padding is greater than all tokens' logits. */
static float *draw_rows(int32_t n, int32_t n_vocab, int32_t n_padding, int kind) {
    int32_t row = n_vocab + n_padding;
    float *out = (float *)malloc((size_t)n * (size_t)row * sizeof *out);
    for (int32_t i = 0; i < n; i++) {
        draw_logits(out + i * row, n_vocab, kind);
        for (int32_t j = n_vocab; j < row; j++) out[i * row + j] = 1e6f + (float)j;
    }
    return out;
}

/* Logits as the device takes them: NaN, which the twins refuse, counts as -inf. */
static float *without_nan(const float *logits, size_t n) {
    float *out = (float *)malloc(n * sizeof *out);
    for (size_t i = 0; i < n; i++) out[i] = isnan(logits[i]) ? -INFINITY : logits[i];
    return out;
}

/* Where the twin refuses logits, the device emits nothing. */
static void compare_verdict(const specrt_verdict *found, specrt_status status,
                            const specrt_verdict *expected) {
    CHECK(status == SPECRT_STATUS_OK || status == SPECRT_STATUS_BAD_INPUT);
    CHECK((status == SPECRT_STATUS_OK) == (expected->n > 0));
    CHECK_INT(found->n, expected->n);
    CHECK_INT(found->end, SPECRT_END_NONE);
    for (int32_t i = 0; i < expected->n; i++) {
        CHECK_INT(found->tokens[i], expected->tokens[i]);
        CHECK_INT(found->nodes[i], expected->nodes[i]);
    }
}

/* A tree whose children are often what the target draws. */
static void draw_draft(specrt_cuda_draft *d, int32_t n_vocab, bool chain) {
    d->n = 1 + random_below(MAX_NODES);
    for (int32_t i = 0; i < d->n; i++) {
        int32_t parent = i == 0 ? -1 : chain ? i - 1 : random_below(i);
        d->parents[i] = parent;
        d->depths[i] = i == 0 ? 0 : d->depths[parent] + 1;
        d->positions[i] = 1000 + d->depths[i];
        d->tokens[i] = random_below(n_vocab);
    }
}

/* Gives nodes the tokens that their parents draw, so that paths are long. */
static void plant(specrt_cuda_draft *d, specrt_verifier *v, const float *logits, int32_t n_logits) {
    for (int32_t i = 1; i < d->n; i++)
        if (random_below(3))
            d->tokens[i] = specrt_verifier_draw(v, logits + (int64_t)d->parents[i] * n_logits,
                                                d->positions[d->parents[i]] + 1);
}

typedef struct verify_case {
    specrt_cuda_draft drafts[BATCH];
    specrt_sampling samplings[BATCH];
    specrt_verdict verdicts[BATCH];
} verify_case;

static void draw_sampling(specrt_sampling *s, int32_t n_vocab, int sampled, int b) {
    memset(s, 0, sizeof *s);
    s->seed = fixture_random(&random_state);
    s->session = 1 + (uint64_t)b;
    s->generation = fixture_random(&random_state) % 5;
    if (sampled && b > 0) s->temperature = random_below(4) ? 0.7f : 1e-35f;
    if (sampled == 2 && random_below(3)) s->top_k = 1 + random_below(n_vocab + 5);
    if (sampled == 2 && random_below(3)) s->top_p = 0.05f + 0.09f * (float)random_below(10);
    if (sampled == 2 && random_below(3) == 0) s->min_p = 0.02f * (float)random_below(20);
}

static void run_padded(int32_t n_vocab, int32_t n_padding, int sampled, int kind) {
    static verify_case c;
    static specrt_verdict found[BATCH];
    specrt_status statuses[BATCH];
    int32_t row = n_vocab + n_padding;
    size_t n = BATCH * MAX_NODES * (size_t)row;
    float *logits = draw_rows(BATCH * MAX_NODES, n_vocab, n_padding, kind);
    float *known = without_nan(logits, n);
    specrt__cuda_verifier_params p = {BATCH, row, n_vocab, MAX_NODES, sampled};
    specrt__cuda_verifier verifier;
    for (int b = 0; b < BATCH; b++) {
        const float *mine = known + (size_t)b * MAX_NODES * (size_t)row;
        specrt_draft draft = {0};
        draw_sampling(&c.samplings[b], n_vocab, sampled, b);
        draw_draft(&c.drafts[b], n_vocab, b == 1);
        specrt_verifier *v = create_verifier(row, n_vocab, &c.samplings[b]);
        plant(&c.drafts[b], v, mine, row);
        draft.n = c.drafts[b].n;
        draft.tokens = c.drafts[b].tokens;
        draft.parents = c.drafts[b].parents;
        statuses[b] = specrt_verify_tree(v, &draft, mine, 1001, &c.verdicts[b]);
        specrt_verifier_close(v);
    }
    if (sampled == 0 && kind == 0) { /* rests */
        c.drafts[2].n = c.verdicts[2].n = 0;
        statuses[2] = SPECRT_STATUS_BAD_INPUT;
    }
    void *memory = gpu_zeros(specrt__cuda_verifier_bytes(&p)), *d_logits = gpu_copy(logits, n * 4);
    verify_case *d = (verify_case *)gpu_copy(&c, sizeof c);
    REQUIRE(specrt__cuda_verifier_place(&p, memory, &verifier) == SPECRT_STATUS_OK);
    CHECK_INT(specrt__cuda_verify(&verifier, d->drafts, d->samplings, (float *)d_logits,
                                  d->verdicts, NULL),
              SPECRT_STATUS_OK);
    gpu_get(found, d->verdicts, sizeof found);
    for (int b = 0; b < BATCH; b++) compare_verdict(&found[b], statuses[b], &c.verdicts[b]);
    gpu_free(memory), gpu_free(d_logits), gpu_free(d);
    free(logits), free(known);
}

static void run_verify(int32_t n_vocab, int sampled, int kind) {
    run_padded(n_vocab, 0, sampled, kind);
}

TEST(greedy, "the best token at every node") {
    static const int32_t n_vocab[] = {1, 7, 300, 9000};
    for (size_t i = 0; i < sizeof n_vocab / sizeof n_vocab[0]; i++)
        for (int kind = 0; kind < 6; kind++)
            if (takes(i, kind, n_vocab[i] < 1000 ? 2 : 3)) run_verify(n_vocab[i], 0, kind);
    run_verify(300, 0, 3);
    for (int i = 0; i < 3; i++) run_verify(3, 0, 2); /* some nodes of a path have no logit */
}

TEST(sampled, "the CPU's draws, token for token") {
    static const int32_t n_vocab[] = {1, 9, 1024, 2500};
    for (size_t i = 0; i < sizeof n_vocab / sizeof n_vocab[0]; i++)
        for (int kind = 0; kind < 6; kind++)
            if (n_vocab[i] < 1000 || takes(i, kind, 2)) run_verify(n_vocab[i], 1, kind);
}

TEST(filtered, "top_k, top_p and min_p") {
    for (size_t i = 0; i < 6; i++)
        for (int kind = 0; kind < 6; kind++)
            if (takes(i, kind, 6)) run_verify(1 + random_below(test_quick() ? 60 : 150), 2, kind);
    run_verify(test_quick() ? 130 : test_brief() ? 400 : 1100, 2, 4);
}

/* Vocabularies around a block, and of real size, whose tokens lie at the edges of blocks. */
TEST(blocks, "vocabularies of many blocks, most of them empty") {
    static const int32_t n_vocab[] = {1, 1023, 1024, 1025, 2049};
    for (size_t i = 0; i < sizeof n_vocab / sizeof n_vocab[0]; i++)
        for (int sampled = 1; sampled <= 2; sampled++)
            if (takes(i, sampled, 2)) run_verify(n_vocab[i], sampled, 6);
    if (!test_brief()) run_verify(128256, 1, 6);
}

/* Greedy and filtered nodes over the ids of a published vocabulary (long=1), else two blocks. */
TEST(whole, "the best token and filters over a whole vocabulary") {
    int32_t n_vocab = gpu_long() ? 151936 : 1025;
    run_verify(n_vocab, 0, 0);
    run_verify(n_vocab, 2, 0);
}

TEST(padded, "columns behind the vocabulary, whose logits are the greatest, are nobody's tokens") {
    for (int sampled = 0; sampled < 3; sampled++)
        for (int kind = 0; kind < 6; kind++)
            if (takes((size_t)sampled, kind, 3)) run_padded(500, 12, sampled, kind);
    run_padded(1023, 1026, 0, 1);
    run_padded(1023, 1026, 2, 6);
    if (!test_brief()) run_padded(4096, 5, 0, 0); /* the padding is a part of its own */
}

/* --- sampled chains --- */

enum { STEPS = 4, CYCLE = 77 };

/* Shortlists of two segments, not full, and the distributions that the twins draw from. */
typedef struct chain_case {
    int32_t n_columns, n_rows[BATCH][2], max_rows[2];
    int32_t *ids;  /* [BATCH, n_columns] distinct, where a row is */
    float *logits; /* [STEPS, BATCH, n_columns] */
    int32_t *distribution_ids;
    float *distribution_probs; /* [BATCH, STEPS, n_columns] without gaps */
    specrt_draft_distribution distributions[BATCH][STEPS];
    specrt_verifier *verifiers[BATCH];
    specrt_sampling samplings[BATCH];
    specrt_cuda_draft drafts[BATCH];
    specrt__cuda_segment *segments; /* DEVICE */
    int32_t *d_ids, *d_n_rows;
    specrt__cuda_distributions device;
} chain_case;

static void draw_chain(chain_case *c, int32_t n_vocab, int32_t n_logits, int kind, bool filters) {
    size_t n = (size_t)c->n_columns;
    c->ids = (int32_t *)malloc(BATCH * n * sizeof *c->ids);
    c->logits = (float *)malloc(STEPS * BATCH * n * sizeof *c->logits);
    c->distribution_ids = (int32_t *)malloc(BATCH * STEPS * n * sizeof *c->distribution_ids);
    c->distribution_probs = (float *)malloc(BATCH * STEPS * n * sizeof *c->distribution_probs);
    for (int i = 0; i < STEPS * BATCH; i++)
        draw_logits(c->logits + (size_t)i * n, c->n_columns, i % 5 ? kind : 0);
    for (int b = 0; b < BATCH; b++) {
        specrt_sampling *s = &c->samplings[b];
        for (int32_t i = 0; i < c->n_columns; i++)
            c->ids[b * c->n_columns + i] = (i * 7 + b) % n_vocab;
        for (int i = 0; i < 2; i++) c->n_rows[b][i] = 1 + random_below(c->max_rows[i]);
        memset(s, 0, sizeof *s);
        s->temperature = 0.8f;
        s->seed = fixture_random(&random_state);
        s->session = 1 + (uint64_t)b;
        s->generation = fixture_random(&random_state) % 5;
        if (filters) s->top_k = 1 + random_below(n_vocab), s->top_p = 0.8f;
        c->verifiers[b] = create_verifier(n_logits, n_vocab, s);
        c->drafts[b].n = b < BATCH - 1; /* the last rests */
    }
}

static void send_chain(chain_case *c, int32_t n_vocab) {
    specrt__cuda_segment segments[BATCH][2];
    size_t n = BATCH * STEPS * (size_t)c->n_columns * 4;
    memset(segments, 0, sizeof segments);
    c->d_ids = (int32_t *)gpu_copy(c->ids, BATCH * (size_t)c->n_columns * sizeof *c->ids);
    c->d_n_rows = (int32_t *)gpu_copy(c->n_rows, sizeof c->n_rows);
    for (int i = 0; i < 2 * BATCH; i++) {
        specrt__cuda_segment *s = &segments[i / 2][i % 2];
        s->ids = c->d_ids + i / 2 * c->n_columns + (i % 2 ? c->max_rows[0] : 0);
        s->n_rows = c->d_n_rows + i;
        s->max_rows = c->max_rows[i % 2];
    }
    c->segments = (specrt__cuda_segment *)gpu_copy(segments, sizeof segments);
    c->device.n_steps = STEPS;
    c->device.n_columns = c->n_columns;
    c->device.temperature = 0.6f;
    c->device.ids = (int32_t *)gpu_alloc(n);
    c->device.probs = (float *)gpu_alloc(n);
    c->device.chances = (float *)gpu_alloc(BATCH * STEPS * sizeof(float));
    c->device.sampled = (int32_t *)gpu_alloc(BATCH * STEPS * sizeof(int32_t));
    c->device.weights = (float *)gpu_alloc(BATCH * (size_t)n_vocab * sizeof(float));
}

static void free_chain(chain_case *c) {
    const void *used[] = {c->segments,     c->d_ids,          c->d_n_rows,       c->device.ids,
                          c->device.probs, c->device.chances, c->device.sampled, c->device.weights};
    for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) gpu_free((void *)(uintptr_t)used[i]);
    for (int b = 0; b < BATCH; b++) specrt_verifier_close(c->verifiers[b]);
    free(c->ids), free(c->logits), free(c->distribution_ids), free(c->distribution_probs);
}

/* The twin's draw of sequence b at level t; its distribution without the columns that have no row. */
static void propose_twin(chain_case *c, int b, int32_t t, int32_t id, float logprob) {
    size_t at = ((size_t)b * STEPS + (size_t)t) * (size_t)c->n_columns;
    const float *logits = c->logits + (size_t)((b * STEPS + t) * c->n_columns);
    float *x = (float *)malloc((size_t)c->n_columns * sizeof *x), chance;
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_columns; i++) {
        int s = i >= c->max_rows[0], row = s ? i - c->max_rows[0] : i;
        if (row >= c->n_rows[b][s]) continue;
        c->distribution_ids[at + (size_t)n] = c->ids[b * c->n_columns + i];
        x[n++] = logits[i];
    }
    c->distributions[b][t] =
        (specrt_draft_distribution){n, c->distribution_ids + at, c->distribution_probs + at};
    int32_t i =
        specrt_verifier_propose(c->verifiers[b], x, n, 0.6f, CYCLE, t, c->distribution_probs + at);
    free(x);
    gpu_get(&chance, c->device.chances + b * STEPS + t, sizeof chance);
    CHECK_INT(isinf(logprob) != 0, i < 0);
    CHECK_NEAR((double)chance, i < 0 ? 0 : (double)c->distribution_probs[at + (size_t)i], 1e-6);
    if (i < 0) return;
    CHECK_INT(id, c->distribution_ids[at + (size_t)i]);
    CHECK_NEAR((double)logprob, log((double)c->distribution_probs[at + (size_t)i]), 1e-5);
    c->drafts[b].tokens[c->drafts[b].n++] = id;
}

/* Levels until there is nothing to draw, of logits that stand as a block's. */
static void propose_chain(chain_case *c, const specrt__cuda_layout *layout,
                          const specrt_sampling *samplings, specrt__cuda_tree *d_trees) {
    int32_t ids[BATCH];
    float logprobs[BATCH];
    int32_t *d_ids = (int32_t *)gpu_alloc(sizeof ids);
    float *d_logprobs = (float *)gpu_alloc(sizeof logprobs);
    int32_t step = STEPS * c->n_columns;
    float *logits = (float *)gpu_copy(c->logits, (size_t)(BATCH * step) * sizeof *logits);
    for (int32_t t = 0; t < STEPS; t++) {
        specrt__cuda_tree trees[BATCH];
        memset(trees, 0, sizeof trees);
        for (int b = 0; b < BATCH; b++) {
            trees[b].n_beam = c->drafts[b].n == t + 1;
            trees[b].level = t;
            trees[b].cycle = CYCLE;
        }
        gpu_put(d_trees, trees, sizeof trees);
        CHECK_INT(specrt__cuda_propose(layout, c->segments, BATCH, logits + t * c->n_columns, step,
                                       d_trees, samplings, &c->device, d_ids, d_logprobs, NULL),
                  SPECRT_STATUS_OK);
        gpu_get(ids, d_ids, sizeof ids);
        gpu_get(logprobs, d_logprobs, sizeof logprobs);
        for (int b = 0; b < BATCH; b++)
            if (trees[b].n_beam) propose_twin(c, b, t, ids[b], logprobs[b]);
    }
    gpu_free(logits);
    gpu_free(d_ids);
    gpu_free(d_logprobs);
}

/* Logits of the target at the chain's nodes: what the drafter had, and a little noise. */
static float *target_of_chain(const chain_case *c, int32_t n_vocab, int32_t n_padding, int kind) {
    float *out = draw_rows(BATCH * (STEPS + 1), n_vocab, n_padding, kind);
    for (int b = 0; b < BATCH; b++)
        for (int32_t t = 0; t <= STEPS; t++) {
            float *row = out + (b * (STEPS + 1) + t) * (n_vocab + n_padding);
            if (t == STEPS) draw_logits(row, n_vocab, 0);
            for (int32_t i = 0; i < c->n_columns && t < STEPS && kind == 0; i++)
                row[c->ids[b * c->n_columns + i]] =
                    1.2f * c->logits[(b * STEPS + t) * c->n_columns + i];
        }
    return out;
}

/* Where all levels are drawn. The first sequence's draft is replaced, the second's is cut. */
static specrt__cuda_tree *end_chain(chain_case *c, bool altered, int32_t n_vocab) {
    specrt__cuda_tree trees[BATCH];
    memset(trees, 0, sizeof trees);
    for (int b = 0; b < BATCH; b++) {
        trees[b].cycle = CYCLE;
        trees[b].level = c->drafts[b].n - 1;
    }
    if (altered && c->drafts[0].n > 1) {
        int32_t *token = &c->drafts[0].tokens[c->drafts[0].n - 1];
        *token = (*token + 1) % n_vocab;
    }
    if (altered && c->drafts[1].n > 1) c->drafts[1].n--;
    return (specrt__cuda_tree *)gpu_copy(trees, sizeof trees);
}

/* The verdicts on the device's drafts, beside the twin's; those of a draft that is another say nothing. */
static void compare_chain(chain_case *c, const specrt_verdict *found, const float *target,
                          int32_t n_logits, bool altered) {
    specrt_verdict expected;
    CHECK_INT(found[BATCH - 1].n, 0);
    for (int b = 0; b < BATCH - 1; b++) {
        if (altered && b == 0 && c->drafts[0].n > 1) {
            CHECK_INT(found[0].n, 0);
            continue;
        }
        specrt_status status = specrt_verify_chain(
            c->verifiers[b], c->drafts[b].tokens + 1, c->distributions[b], c->drafts[b].n - 1,
            target + b * (STEPS + 1) * n_logits, CYCLE, &expected);
        compare_verdict(&found[b], status, &expected);
    }
}

typedef struct chain_sizes {
    int32_t n_vocab, n_padding, n_first, n_second;
} chain_sizes;

static void run_chain(chain_sizes size, int kind, bool filters, bool altered) {
    static chain_case c;
    int32_t n_logits = size.n_vocab + size.n_padding;
    specrt__cuda_layout layout = {
        2, 32, {SPECRT_DTYPE_F16, SPECRT_DTYPE_F16}, {size.n_first, size.n_second}, {0}};
    specrt__cuda_verifier_params p = {BATCH, n_logits, size.n_vocab, STEPS + 1, filters ? 2 : 1};
    specrt__cuda_verifier verifier;
    specrt_verdict found[BATCH];
    memset(&c, 0, sizeof c);
    c.n_columns = size.n_first + size.n_second;
    c.max_rows[0] = size.n_first, c.max_rows[1] = size.n_second;
    draw_chain(&c, size.n_vocab, n_logits, kind, filters);
    send_chain(&c, size.n_vocab);
    specrt_sampling *samplings = (specrt_sampling *)gpu_copy(c.samplings, sizeof c.samplings);
    specrt__cuda_tree *levels = (specrt__cuda_tree *)gpu_alloc(BATCH * sizeof *levels);
    propose_chain(&c, &layout, samplings, levels);
    specrt__cuda_tree *trees = end_chain(&c, altered, size.n_vocab);
    float *target = target_of_chain(&c, size.n_vocab, size.n_padding, kind);
    size_t n = (size_t)(BATCH * (STEPS + 1) * n_logits);
    float *logits = (float *)gpu_copy(target, n * sizeof *target), *known = without_nan(target, n);
    void *memory = gpu_zeros(specrt__cuda_verifier_bytes(&p));
    specrt_cuda_draft *drafts = (specrt_cuda_draft *)gpu_copy(c.drafts, sizeof c.drafts);
    specrt_verdict *verdicts = (specrt_verdict *)gpu_alloc(sizeof found);
    REQUIRE(!specrt__cuda_verifier_place(&p, memory, &verifier));
    CHECK_INT(specrt__cuda_verify_chain(&verifier, &c.device, drafts, trees, samplings, logits,
                                        verdicts, NULL),
              SPECRT_STATUS_OK);
    gpu_get(found, verdicts, sizeof found);
    compare_chain(&c, found, known, n_logits, altered);
    void *used[] = {samplings, levels, trees, logits, memory, drafts, verdicts};
    for (int i = 0; i < 7; i++) gpu_free(used[i]);
    free(target), free(known);
    free_chain(&c);
}

TEST(chains, "draws of sampled chains, and what the target makes of them") {
    const chain_sizes few = {9, 0, 5, 2}, more = {333, 0, 200, 33}, blocks = {2503, 0, 1200, 611};
    for (int kind = 0; kind < 6; kind++) {
        if (!test_brief() || kind % 2 == 0) run_chain(few, kind, kind % 2, false);
        if (!test_brief() || kind % 2 == 1) run_chain(more, kind, kind % 2 == 0, false);
    }
    for (int i = 0; i < (test_brief() ? 1 : 2); i++) run_chain(blocks, 0, !i, false);
    for (int i = 0; i < (test_brief() ? 6 : 20); i++)
        run_chain(few, 1, true, false); /* filters that cut among equals */
}

TEST(padded_chains, "padding is never emitted instead of a rejected token") {
    const chain_sizes size = {500, 12, 200, 33};
    for (int kind = 0; kind < (test_brief() ? 2 : 6); kind++)
        run_chain(size, kind, kind % 2, false);
}

/* A chain whose tokens were not drawn has no distribution to be judged by; a part of the one that was has. */
TEST(altered_chains, "are not judged") {
    const chain_sizes few = {9, 0, 5, 2}, more = {333, 0, 200, 33};
    for (int i = 0; i < 3; i++) run_chain(i ? more : few, 0, i == 2, true);
}

TEST(remap, "rows to target ids") {
    int32_t ids[5] = {7, 90, 3, 12, 1000}, in[6] = {4, 0, -1, 5, 2, 1}, out[6];
    static const int32_t expected[6] = {1000, 7, -1, -1, 3, 90};
    int32_t *d_ids = (int32_t *)gpu_copy(ids, sizeof ids),
            *d_in = (int32_t *)gpu_copy(in, sizeof in);
    CHECK_INT(specrt__cuda_remap(d_ids, 5, d_in, 6, d_in, NULL), SPECRT_STATUS_OK);
    gpu_get(out, d_in, sizeof out);
    CHECK(memcmp(out, expected, sizeof out) == 0);
    CHECK_INT(specrt__cuda_remap(NULL, 5, d_in, 6, d_in, NULL), SPECRT_STATUS_BAD_ARG);
    gpu_free(d_ids);
    gpu_free(d_in);
}

TEST(refusals, "bad arguments give a status") {
    specrt_tree_params shape = {33, 1, 2};
    specrt__cuda_tree tree;
    specrt__cuda_verifier_params p = {1, 100, 100, 65, 0};
    specrt__cuda_verifier verifier;
    char memory[16];
    CHECK_INT(specrt__cuda_tree_bytes(&shape), 0);
    CHECK_INT(specrt__cuda_tree_place(&shape, 0, memory, &tree), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_tree_place(NULL, -1, memory, &tree), SPECRT_STATUS_BAD_ARG);
    CHECK(specrt__cuda_tree_bytes(NULL) > 0);
    CHECK_INT(specrt__cuda_tree_begin(1, NULL, &tree, NULL, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_tree_expand(1, 65, NULL, NULL, &tree, NULL, NULL),
              SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_tree_finish(2000, &tree, NULL, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_verifier_bytes(&p), 0);
    CHECK_INT(specrt__cuda_verifier_place(&p, memory, &verifier), SPECRT_STATUS_BAD_ARG);
    p.max_nodes = 64;
    CHECK(specrt__cuda_verifier_bytes(&p) > 0);
    p.n_logits = 99;
    CHECK_INT(specrt__cuda_verifier_bytes(&p), 0);
    p.n_logits = 100;
    p.n_batch = 1024;
    p.max_nodes = 64;
    CHECK_INT(specrt__cuda_verifier_bytes(&p), 0);
    CHECK_INT(specrt__cuda_verify(NULL, NULL, NULL, NULL, NULL, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_verify_chain(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
              SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_propose(NULL, NULL, 1, NULL, 0, &tree, NULL, NULL, NULL, NULL, NULL),
              SPECRT_STATUS_BAD_ARG);
}
