/* llama_mtp.c : MTP layers inside llama.cpp, as its own type draft-mtp runs them and as our adapter does:
 * chain by chain the logits are the same, after a prompt of several passes and after drafts that were
 * accepted in part. Then which bytes of the drafter's file our passes read: none of a head. Where the
 * drafter's file is given once more with a cut head, llama.cpp drafts with that one: its logits are the whole
 * head's at the ids kept, and -inf elsewhere.
 *
 *     llama_mtp TARGET.gguf DRAFT.gguf [CUT.gguf]      exit code 0: all as it should be */
#include <sys/mman.h>
#include "inside.h"
#include "llama/specrt_llama.h"

enum { N_PROMPT = 200, N_PASS = 64, N_CYCLES = 4, N_CHAIN = 3, N_CONTEXT = 512 };

typedef struct test {
    struct llama_model *target, *draft;
    struct llama_model *theirs; /* the draft model of llama.cpp's own way */
    int32_t n_vocab;
    int64_t n_scored; /* tokens that it scores */
    size_t d;
    /* llama.cpp's own way. */
    struct llama_context *ctx, *mtp;
    bool shares; /* the drafter has no cache but the target's, and drafts at one position */
    float *pending, *rows; /* [d] the state that waits for a token; [N_PASS, d] of the last pass */
    /* Ours. */
    specrt_llama_head head;
    specrt_llama *pair;
    specrt_host host;
} test;

static struct llama_model *load(const char *path) {
    struct llama_model_params p = llama_model_default_params();
    p.load_mtp = true;
    return llama_model_load_from_file(path, p);
}

/* ---- as llama.cpp does ----------------------------------------------------------------------------- */

static int open_theirs(test *t) {
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = N_CONTEXT;
    p.n_threads = p.n_threads_batch = 1;
    p.n_rs_seq = N_CHAIN;
    t->ctx = llama_init_from_model(t->target, p);
    p.n_rs_seq = 0;
    p.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
    p.ctx_other = t->ctx;
    t->mtp = llama_init_from_model(t->theirs, p);
    if (!t->ctx || !t->mtp) return fail("llama.cpp", "no context");
    char arch[64] = "";
    llama_model_meta_val_str(t->draft, "general.architecture", arch, sizeof arch);
    t->shares = strcmp(arch, "gemma4-assistant") == 0;
    set_nextn(t->ctx, true, false);
    set_nextn(t->mtp, true, true);
    t->d = (size_t)llama_model_n_embd_out(t->draft);
    t->pending = calloc(t->d, sizeof(float));
    t->rows = calloc(N_PASS * t->d, sizeof(float));
    return !t->pending || !t->rows;
}

static int run_mtp(test *t, const int32_t *tokens, const float *states, int32_t n, int32_t position,
                   bool output) {
    struct llama_batch_ext *batch = llama_batch_ext_init(t->mtp);
    for (int32_t i = 0; i < n; i++) {
        struct llama_embd state = {states + (size_t)i * t->d, 1, t->d};
        llama_pos at = position + i;
        int32_t k = llama_batch_ext_add_token(batch, 0, tokens[i]);
        llama_batch_ext_set_embd_token(batch, k, state);
        llama_batch_ext_set_pos(batch, k, &at);
        llama_batch_ext_set_output_logits(batch, k, output);
    }
    int code = llama_process(t->mtp, LLAMA_PROCESS_TYPE_DECODE, batch);
    llama_batch_ext_free(batch);
    return code;
}

/* Both models read n tokens; each is paired with the state before it. */
static int read_theirs(test *t, const int32_t *tokens, int32_t n, int32_t position) {
    struct llama_batch batch = llama_batch_init(n, 0, 1);
    size_t bytes = t->d * sizeof(float);
    batch.n_tokens = n;
    for (int32_t i = 0; i < n; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = position + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    int code = llama_decode(t->ctx, batch);
    llama_batch_free(batch);
    if (code) return code;
    float *before = malloc((size_t)n * bytes);
    if (!before) return 1;
    for (int32_t i = 0; i < n; i++) {
        memcpy(before + (size_t)i * t->d, i ? t->rows + (size_t)(i - 1) * t->d : t->pending, bytes);
        memcpy(t->rows + (size_t)i * t->d, get_nextn(t->ctx, i), bytes);
    }
    memcpy(t->pending, t->rows + (size_t)(n - 1) * t->d, bytes);
    if (!t->shares) code = run_mtp(t, tokens, before, n, position, false);
    free(before);
    return code;
}

static int32_t best_of(const float *x, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* tokens: [1 + N_CHAIN], of which the first is given; logits: [N_CHAIN, n_vocab] */
static int draft_theirs(test *t, int32_t *tokens, int32_t position, float *logits) {
    const float *state = t->pending;
    for (int32_t level = 0; level < N_CHAIN; level++, logits += t->n_vocab) {
        if (run_mtp(t, tokens + level, state, 1, position + (t->shares ? 0 : level), true))
            return 1;
        memcpy(logits, llama_get_logits_ith(t->mtp, 0), (size_t)t->n_vocab * sizeof *logits);
        tokens[level + 1] = best_of(logits, t->n_vocab);
        state = get_nextn(t->mtp, 0);
    }
    return 0;
}

/* What was drafted is read, and its first token stays; where llama.cpp cannot take tokens back, no more than
 * stays is read. */
static int commit_theirs(test *t, const int32_t *tokens, int32_t position) {
    bool gives_back = !llama_model_is_hybrid(t->target) || llama_n_rs_seq(t->ctx) > 0;
    if (!t->shares) llama_memory_seq_rm(llama_get_memory(t->mtp), 0, position, -1);
    if (read_theirs(t, tokens, gives_back ? 1 + N_CHAIN : 2, position)) return 1;
    memcpy(t->pending, t->rows + t->d, t->d * sizeof(float));
    if (!t->shares) llama_memory_seq_rm(llama_get_memory(t->mtp), 0, position + 2, -1);
    return !llama_memory_seq_rm(llama_get_memory(t->ctx), 0, position + 2, -1);
}

/* ---- as we do --------------------------------------------------------------------------------------- */

static int open_ours(test *t, const char *draft) {
    const specrt_llama_params params = {
        .tree = {.num_steps = N_CHAIN, .topk = 1, .num_draft_tokens = N_CHAIN + 1},
        .n_context = N_CONTEXT,
        .n_threads = 1};
    specrt_error err = {0};
    if (specrt_llama_head_open(draft, &t->head, &err) ||
        specrt_llama_create(t->target, t->draft, &t->head, &params, &t->pair, &err))
        return fail(draft, err.msg);
    t->host = specrt_llama_host(t->pair);
    return t->head.n_mtp > 0 ? 0 : fail(draft, "no MTP layers");
}

static int draft_ours(test *t, const int32_t *tokens, float *logits) {
    size_t d = (size_t)t->head.desc.n_cols;
    for (int32_t level = 0; level < N_CHAIN; level++) {
        const int32_t none = 0;
        const float zero = 0, *hidden, *draft_input = NULL;
        const specrt_beam beam = {1, tokens + level, &none, &zero};
        if (t->host.draft_step(t->host.user, level, &beam, &hidden, &draft_input)) return 1;
        for (int32_t id = 0; id < t->n_vocab; id++) {
            const float *row = (const float *)t->head.desc.rows + (size_t)id * d;
            double sum = 0;
            for (size_t i = 0; i < d; i++) sum += (double)row[i] * (double)hidden[i];
            *logits++ = (float)sum;
        }
    }
    return 0;
}

static int commit_ours(test *t, const int32_t *tokens) {
    const int32_t parents[1 + N_CHAIN] = {-1, 0, 1, 2}, depths[1 + N_CHAIN] = {0, 1, 2, 3};
    const int32_t beam_rows[1 + N_CHAIN] = {0, 0, 0, -1};
    const uint64_t masks[1 + N_CHAIN] = {1, 3, 7, 15};
    const float none[1 + N_CHAIN] = {0}, *logits;
    const specrt_draft draft = {.n = 1 + N_CHAIN,
                                .tokens = tokens,
                                .parents = parents,
                                .depths = depths,
                                .masks = masks,
                                .logprobs = none,
                                .beam_rows = beam_rows};
    const specrt_verdict verdict = {.n = 2, .nodes = {0, 1}, .tokens = {0}};
    return t->host.target_verify(t->host.user, &draft, &logits) ||
           t->host.commit(t->host.user, &draft, &verdict);
}

/* ---- beside each other ------------------------------------------------------------------------------ */

static int near(const test *t, const float *a, const float *b, size_t n) {
    double most = 0, size = 0;
    int64_t n_scored = 0;
    for (size_t i = 0; i < n; i++) {
        if (b[i] == -INFINITY) continue;
        n_scored++;
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        size = fmax(size, fabs((double)b[i]));
    }
    printf("%lld logits at most %.2g of the greatest apart\n", (long long)n_scored,
           size > 0 ? most / size : INFINITY);
    if (n_scored != N_CHAIN * t->n_scored) return fail("logits", "llama.cpp's are of other tokens");
    return size > 0 && most <= 1e-4 * size ? 0 : fail("logits", "not llama.cpp's own");
}

static int read_prompt(test *t) {
    int32_t prompt[N_PROMPT];
    const float *logits;
    for (int32_t i = 0; i < N_PROMPT; i++) prompt[i] = (int32_t)(i * 7919LL % t->n_vocab);
    specrt_llama_reset(t->pair);
    for (int32_t at = 0, n; at < N_PROMPT; at += n) {
        n = N_PROMPT - at < N_PASS ? N_PROMPT - at : N_PASS;
        if (read_theirs(t, prompt + at, n, at)) return fail("prompt", "llama.cpp failed");
        if (t->host.target_prefill(t->host.user, prompt + at, n, 0, &logits)) return 1;
    }
    return 0;
}

static int check_cycles(test *t) {
    size_t n = (size_t)N_CHAIN * (size_t)t->n_vocab;
    float *theirs = malloc(n * sizeof *theirs), *ours = malloc(n * sizeof *ours);
    int32_t tokens[1 + N_CHAIN], position = N_PROMPT;
    int bad = !theirs || !ours || read_prompt(t);
    for (int cycle = 0; !bad && cycle < N_CYCLES; cycle++, position += 2) {
        tokens[0] = 100 + cycle;
        bad = draft_theirs(t, tokens, position, theirs) || draft_ours(t, tokens, ours) ||
              near(t, ours, theirs, n) || commit_theirs(t, tokens, position) ||
              commit_ours(t, tokens);
    }
    free(theirs), free(ours);
    return bad ? fail("cycles", specrt_llama_fault(t->pair)) : 0;
}

/* ---- bytes read -------------------------------------------------------------------------------------- */

/* llama.cpp's own mapping of a file: bytes of it that are mapped in, or after `drop` none. */
static long mapped(const char *path, const void *ours, bool drop) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512], *real = realpath(path, NULL);
    unsigned long from, to;
    long kb, sum = 0;
    bool of_it = false;
    while (maps && real && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            of_it = strstr(line, real) && (const void *)from != ours;
        if (of_it && drop && sscanf(line, "Rss: %ld", &kb) == 1)
            madvise((void *)from, to - from, MADV_DONTNEED);
        if (of_it && sscanf(line, "Rss: %ld", &kb) == 1) sum += kb * 1024;
    }
    if (maps) fclose(maps);
    free(real);
    return sum;
}

static long bytes_of_a_draft(test *t, const char *path, bool uses_head) {
    const int32_t root = 7, none = 0;
    const float zero = 0, *hidden, *draft_input = NULL;
    const specrt_beam beam = {1, &root, &none, &zero};
    specrt_llama_use_head(t->pair, uses_head);
    mapped(path, t->head.map, true);
    if (t->host.draft_step(t->host.user, 0, &beam, &hidden, &draft_input) ||
        t->host.draft_step(t->host.user, 1, &beam, &hidden, &draft_input))
        return -1;
    return mapped(path, t->head.map, false);
}

static int check_bytes(test *t, const char *path) {
    long head = (long)t->n_vocab * (long)t->head.desc.n_cols * (long)sizeof(float);
    long with = bytes_of_a_draft(t, path, true), without = bytes_of_a_draft(t, path, false);
    printf("bytes read by two passes: %ld with the head of %ld, %ld without\n", with, head,
           without);
    return with >= head && without > 0 && without < head / 2 ? 0 : fail("bytes", "a head was read");
}

static int load_all(test *t, char **paths) {
    specrt_llama_head head;
    const char *theirs = paths[3] ? paths[3] : paths[2];
    t->target = load(paths[1]);
    t->draft = load(paths[2]);
    t->theirs = paths[3] ? load(theirs) : t->draft;
    if (!t->target || !t->draft || !t->theirs) return fail(theirs, "llama.cpp does not load it");
    t->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(t->target));
    if (specrt_llama_head_open(theirs, &head, NULL)) return fail(theirs, "no head");
    t->n_scored = head.desc.n_rows;
    specrt_llama_head_close(&head);
    return 0;
}

int main(int argc, char **argv) {
    test t = {0};
    if (argc < 3 || argc > 4) return fail("usage", "expected TARGET DRAFT [CUT]");
    llama_log_set(quiet, NULL);
    llama_backend_init();
    int bad = load_all(&t, argv) || open_theirs(&t) || open_ours(&t, argv[2]) || check_cycles(&t) ||
              check_bytes(&t, argv[2]);
    specrt_llama_free(t.pair);
    specrt_llama_head_close(&t.head);
    llama_free(t.mtp), llama_free(t.ctx);
    if (t.theirs != t.draft) llama_model_free(t.theirs);
    llama_model_free(t.draft), llama_model_free(t.target);
    free(t.pending), free(t.rows);
    return bad;
}
