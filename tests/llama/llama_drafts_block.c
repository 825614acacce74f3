/* llama_drafts_block.c : block drafters inside llama.cpp, as its own types draft-dflash and draft-dspark run
 * them and as our adapter does, two texts in turns. Cycle by cycle, after a prompt of several passes and
 * after drafts that were accepted in part: the states of a block are llama.cpp's own, and with the whole
 * vocabulary the drafts are its own, where its confidence head ends them, too. What is resumed drafts as
 * before. Then which bytes of the drafter's file our passes read: none of a head.
 *
 *     llama_drafts_block TARGET.gguf DRAFT.gguf [N]
 *         exit code 0: all is well; N: tokens accepted at least */
#include <sys/mman.h>
#include <unistd.h>
#include "inside.h"
#include "llama/specrt_llama.h"

/* As in inside.h. */
void set_input(struct llama_context *ctx, uint32_t layer,
               bool value) __asm__("_Z30llama_set_embeddings_layer_inpP13llama_contextjb");
float *get_input(struct llama_context *ctx,
                 uint32_t layer) __asm__("_Z30llama_get_embeddings_layer_inpP13llama_contextj");

enum { N_TEXTS = 2, N_PROMPT = 150, N_PASS = 64, N_CYCLES = 10, N_CONTEXT = 512, MOST_CHAIN = 16 };

typedef struct shared {
    struct llama_model *target, *draft;
    specrt_llama_head head;
    int32_t n_vocab, n_steps, first, mask;
    size_t d;
    double apart; /* the states, at most, relative to the greatest */
    int64_t n_drafted, n_accepted;
} shared;

typedef struct text {
    shared *of;
    /* llama.cpp's own way. */
    struct llama_context *ctx, *dft;
    int32_t n_past, chain[MOST_CHAIN], n_chain;
    float p_min;
    /* Ours. */
    specrt_llama *pair;
    specrt_host inner, host;
    specrt_head *head;
    specrt_policy *policy;
    specrt_session *session;
    bool wrong;
} text;

/* ---- as llama.cpp does ----------------------------------------------------------------------------- */

static int open_theirs(text *t) {
    const specrt_llama_head *head = &t->of->head;
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = N_CONTEXT;
    p.n_threads = p.n_threads_batch = 1;
    t->ctx = llama_init_from_model(t->of->target, p);
    p.ctx_other = t->ctx;
    p.embeddings = true;
    p.pooling_type = LLAMA_POOLING_TYPE_NONE;
    t->dft = llama_init_from_model(t->of->draft, p);
    if (!t->ctx || !t->dft) return fail("llama.cpp", "no context");
    for (int32_t i = 0; i < head->n_target_layers; i++)
        set_input(t->ctx, (uint32_t)head->target_layers[i], true);
    set_nextn(t->dft, head->confidence != NULL, true);
    llama_set_causal_attn(t->dft, false);
    return 0;
}

static int run(struct llama_context *ctx, const int32_t *tokens, int32_t n, int32_t position) {
    struct llama_batch batch = llama_batch_init(n, 0, 1);
    batch.n_tokens = n;
    for (int32_t i = 0; i < n; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = position + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    int code = llama_decode(ctx, batch);
    llama_batch_free(batch);
    return code;
}

/* Both models read n tokens, of which the first `keep` stay. */
static int read_theirs(text *t, const int32_t *tokens, int32_t n, int32_t keep) {
    const specrt_llama_head *head = &t->of->head;
    size_t n_taps = (size_t)head->n_target_layers, d = t->of->d;
    llama_memory_seq_rm(llama_get_memory(t->dft), 0, t->n_past, -1);
    if (run(t->ctx, tokens, n, t->n_past)) return fail("llama.cpp", "the target failed");
    float *states = malloc((size_t)n * n_taps * d * sizeof *states);
    struct llama_batch_ext *batch = llama_batch_ext_init(t->dft);
    if (!states || !batch) return fail("llama.cpp", "no memory");
    for (int32_t i = 0; i < n; i++) {
        float *row = states + (size_t)i * n_taps * d;
        const struct llama_embd feature = {row, 1, n_taps * d};
        const llama_pos at = t->n_past + i;
        for (size_t k = 0; k < n_taps; k++)
            memcpy(row + k * d, get_input(t->ctx, (uint32_t)head->target_layers[k]) + (size_t)i * d,
                   d * sizeof *row);
        llama_batch_ext_set_pos(batch, llama_batch_ext_add_embd(batch, 0, feature), &at);
    }
    int code = llama_process(t->dft, LLAMA_PROCESS_TYPE_DECODE, batch);
    llama_batch_ext_free(batch);
    free(states);
    t->n_past += keep;
    llama_memory_seq_rm(llama_get_memory(t->ctx), 0, t->n_past, -1);
    llama_memory_seq_rm(llama_get_memory(t->dft), 0, t->n_past, -1);
    return code ? fail("llama.cpp", "the drafter read no states") : 0;
}

static int32_t best_of(const float *x, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* The chain of n tokens, ended where the drafter is too unsure. */
static int draft_theirs(text *t, int32_t root, int32_t n) {
    const shared *of = t->of;
    int32_t tokens[1 + MOST_CHAIN] = {root};
    for (int32_t i = 1; i < of->first + n; i++) tokens[i] = of->mask;
    if (run(t->dft, tokens, of->first + n, t->n_past)) return fail("llama.cpp", "no block");
    const float *trust = t->p_min > 0 ? get_all_nextn(t->dft) : NULL;
    for (t->n_chain = 0; t->n_chain < n; t->n_chain++) {
        int32_t row = of->first + t->n_chain;
        if (trust && trust[(size_t)row * of->d] < t->p_min) break;
        t->chain[t->n_chain] = best_of(llama_get_logits_ith(t->dft, row), of->n_vocab);
    }
    return 0;
}

/* ---- as we do --------------------------------------------------------------------------------------- */

static void compare_states(text *t, const float *states, int32_t n) {
    double most = 0, size = 0;
    for (int32_t i = 0; i < n; i++) {
        const float *theirs = llama_get_embeddings_ith(t->dft, t->of->first + i);
        for (size_t j = 0; j < t->of->d; j++) {
            most = fmax(most, fabs((double)theirs[j] - (double)states[(size_t)i * t->of->d + j]));
            size = fmax(size, fabs((double)theirs[j]));
        }
    }
    t->of->apart = fmax(t->of->apart, size > 0 ? most / size : INFINITY);
}

static int draft_both(void *user, int32_t root, int32_t n, specrt_block *block) {
    text *t = (text *)user;
    if (t->inner.draft_block(t->inner.user, root, n, block)) return 1;
    if (block->n != n || draft_theirs(t, root, n)) return fail("block", "not all positions");
    compare_states(t, block->hidden, n);
    return 0;
}

static int verify_both(void *user, const specrt_draft *draft, const float **logits) {
    text *t = (text *)user;
    bool same = draft->n == 1 + t->n_chain;
    for (int32_t i = 1; same && i < draft->n; i++) same = draft->tokens[i] == t->chain[i - 1];
    t->wrong |= !same;
    t->of->n_drafted += draft->n - 1;
    return t->inner.target_verify(t->inner.user, draft, logits);
}

static int commit_both(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    text *t = (text *)user;
    t->of->n_accepted += verdict->n - 1;
    return t->inner.commit(t->inner.user, draft, verdict) ||
           read_theirs(t, draft->tokens, draft->n, verdict->n);
}

static int read_both(void *user, const int32_t *tokens, int32_t n, int all, const float **logits) {
    text *t = (text *)user;
    return t->inner.target_prefill(t->inner.user, tokens, n, all, logits) ||
           read_theirs(t, tokens, n, n);
}

static int open_session(text *t) {
    specrt_policy_desc policy = {.text = "full"};
    specrt_session_params session = {.n_block = 0};
    specrt_error err = {0};
    specrt_llama_describe(t->pair, &policy, &session);
    if (specrt_head_bind(NULL, &t->of->head.desc, NULL, &t->head, &err) ||
        specrt_policy_create(NULL, t->head, &policy, &t->policy, &err) ||
        specrt_session_create(t->policy, &session, NULL, &t->session, &err))
        return fail("session", err.msg);
    return session.n_block == t->of->n_steps ? 0 : fail("session", "not all of a block");
}

static int open_ours(text *t) {
    const int32_t n = t->of->n_steps;
    const specrt_llama_params params = {
        .tree = {.num_steps = n, .topk = 1, .num_draft_tokens = n + 1},
        .n_context = N_CONTEXT,
        .n_batch = N_PASS,
        .n_threads = 1};
    specrt_error err = {0};
    if (specrt_llama_create(t->of->target, t->of->draft, &t->of->head, &params, &t->pair, &err))
        return fail("pair", err.msg);
    t->inner = t->host = specrt_llama_host(t->pair);
    t->host.user = t;
    t->host.target_prefill = read_both;
    t->host.draft_block = draft_both;
    t->host.target_verify = verify_both;
    t->host.commit = commit_both;
    t->host.p_min = t->p_min;
    return open_session(t);
}

/* ---- beside each other ------------------------------------------------------------------------------ */

static int begin(text *t, const char *words) {
    int32_t tokens[N_PROMPT + 64], n = 0;
    const struct llama_vocab *vocab = llama_model_get_vocab(t->of->target);
    specrt_verdict first;
    while (n >= 0 && n < N_PROMPT) {
        int32_t more = llama_tokenize(vocab, words, (int32_t)strlen(words), tokens + n,
                                      N_PROMPT + 64 - n, n == 0, false);
        if (more <= 0) return fail(words, "no tokens");
        n += more;
    }
    specrt_llama_reset(t->pair);
    if (specrt_host_begin(t->session, &t->host, NULL, tokens, n, &first))
        return fail("begin", specrt_session_last_error(t->session)->msg);
    return 0;
}

static int check_cycles(text *texts) {
    shared *of = texts[0].of;
    specrt_verdict verdict;
    for (int i = 0; i < N_CYCLES * N_TEXTS; i++) {
        text *t = &texts[i % N_TEXTS];
        if (specrt_host_cycle(t->session, &t->host, &verdict))
            return fail("cycle", specrt_session_last_error(t->session)->msg);
        if (t->wrong) return fail("drafts", "not llama.cpp's own");
    }
    printf("states at most %.2g of the greatest apart; %lld of %lld drafted tokens accepted\n",
           of->apart, (long long)of->n_accepted, (long long)of->n_drafted);
    /* llama.cpp's fast products add in an order that depends on how many tokens a pass has, and its cache
     * is f16; states of another token or position are of the order of 1 apart. */
    return of->apart <= 1e-3 ? 0 : fail("states", "not llama.cpp's own");
}

/* A block of one more draft, before and after. */
static int check_resumed(text *t) {
    specrt_llama_state kept = {0};
    specrt_error err = {0};
    specrt_block before = {0}, after = {0};
    const int32_t prompt[3] = {5, 6, 7}, n = t->of->n_steps;
    size_t bytes = (size_t)n * t->of->d * sizeof(float);
    float *states = malloc(bytes);
    const float *logits;
    if (!states || specrt_llama_keep(t->pair, &kept, &err) ||
        t->inner.draft_block(t->inner.user, 9, n, &before))
        return fail("keep", err.msg);
    memcpy(states, before.hidden, bytes);
    specrt_llama_reset(t->pair);
    if (t->inner.target_prefill(t->inner.user, prompt, 3, 0, &logits) ||
        t->inner.draft_block(t->inner.user, 9, n, &after))
        return fail("other", specrt_llama_fault(t->pair));
    bool other = memcmp(states, after.hidden, bytes) != 0;
    if (specrt_llama_resume(t->pair, &kept, &err) ||
        t->inner.draft_block(t->inner.user, 9, n, &after))
        return fail("resume", err.msg);
    bool same = memcmp(states, after.hidden, bytes) == 0;
    specrt_llama_state_free(&kept);
    free(states);
    return other && same ? 0 : fail("resume", "other states than before");
}

/* ---- bytes read -------------------------------------------------------------------------------------- */

/* Pages of bytes [begin, end) of the file that llama.cpp's own mapping of it has in memory, in percent; with
 * `drop` it has none. */
static double present(const char *path, const void *ours, size_t begin, size_t end, bool drop) {
    FILE *maps = fopen("/proc/self/maps", "r"), *pages = fopen("/proc/self/pagemap", "rb");
    char line[512], *real = realpath(path, NULL);
    unsigned long from, to, offset, size = (unsigned long)sysconf(_SC_PAGESIZE);
    long n = 0, n_present = 0;
    while (maps && pages && real && fgets(line, sizeof line, maps)) {
        if (!strstr(line, real) || sscanf(line, "%lx-%lx %*s %lx", &from, &to, &offset) != 3 ||
            (const void *)from == ours)
            continue;
        if (drop) madvise((void *)from, to - from, MADV_DONTNEED);
        for (unsigned long at = from; at < to; at += size) {
            uint64_t entry = 0;
            if (offset + (at - from) < begin || offset + (at - from) + size > end) continue;
            fseek(pages, (long)(at / size * sizeof entry), SEEK_SET);
            n += fread(&entry, sizeof entry, 1, pages) == 1;
            n_present += entry >> 63 != 0;
        }
    }
    if (maps) fclose(maps);
    if (pages) fclose(pages);
    free(real);
    return n > 0 ? 100.0 * (double)n_present / (double)n : -1;
}

static int check_rows(text *t, const char *path, const specrt_head_desc *rows, const char *name) {
    const specrt_llama_head *head = &t->of->head;
    size_t begin = (size_t)((const char *)rows->rows - (const char *)head->map);
    size_t end = begin + (size_t)rows->n_rows * specrt_row_bytes(rows->dtype, rows->n_cols);
    double read[2];
    for (int with = 0; with < 2; with++) {
        specrt_block block = {0};
        specrt_llama_use_head(t->pair, with);
        present(path, head->map, begin, end, true);
        if (t->inner.draft_block(t->inner.user, 9, t->of->n_steps, &block)) return 1;
        read[with] = present(path, head->map, begin, end, false);
    }
    specrt_llama_use_head(t->pair, false);
    printf("%s: %.0f%% read with llama.cpp's head, %.0f%% without\n", name, read[1], read[0]);
    return read[1] > 99 && read[0] >= 0 && read[0] < 10 ? 0 : fail(name, "it was read");
}

static int check_bytes(text *t, const char *path) {
    const specrt_llama_head *head = &t->of->head;
    if (!head->map_of_target && check_rows(t, path, &head->desc, "head")) return 1;
    return head->desc.markov && check_rows(t, path, &head->desc.markov->to, "markov_w2");
}

/* ---- all of it --------------------------------------------------------------------------------------- */

static int load_all(shared *of, char **paths) {
    char value[32] = "16";
    specrt_error err = {0};
    of->target = llama_model_load_from_file(paths[1], llama_model_default_params());
    of->draft = llama_model_load_from_file(paths[2], llama_model_default_params());
    if (!of->target || !of->draft) return fail(paths[2], "llama.cpp does not load it");
    if (specrt_llama_head_open(paths[2], &of->head, &err) ||
        (!of->head.desc.rows && specrt_llama_head_share(&of->head, paths[1], &err)))
        return fail(paths[2], err.msg);
    llama_model_meta_val_str(of->draft, "dflash.block_size", value, sizeof value);
    of->n_steps = atoi(value);
    value[0] = '\0';
    llama_model_meta_val_str(of->draft, "dflash.sample_from_anchor", value, sizeof value);
    of->first = of->head.desc.markov && strcmp(value, "false") != 0 ? 0 : 1;
    of->n_steps -= of->first;
    of->mask = llama_vocab_mask(llama_model_get_vocab(of->draft));
    of->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(of->draft));
    of->d = (size_t)llama_model_n_embd(of->draft);
    return of->n_steps <= MOST_CHAIN ? 0 : fail(paths[2], "too long a block");
}

static void close_text(text *t) {
    specrt_session_close(t->session);
    specrt_policy_close(t->policy);
    specrt_head_close(t->head);
    specrt_llama_free(t->pair);
    if (t->dft) llama_free(t->dft);
    if (t->ctx) llama_free(t->ctx);
}

int main(int argc, char **argv) {
    static const char *const words[N_TEXTS] = {"The patient has a fever and a cough. ",
                                               "On day one the fever rose. "};
    shared of = {0};
    text texts[N_TEXTS] = {{.of = &of}, {.of = &of}};
    if (argc < 3 || argc > 4) return fail("usage", "expected TARGET DRAFT [N]");
    llama_log_set(quiet, NULL);
    llama_backend_init();
    int bad = load_all(&of, argv);
    texts[1].p_min = of.head.confidence ? 0.5F : 0;
    for (int i = 0; !bad && i < N_TEXTS; i++)
        bad = open_theirs(&texts[i]) || open_ours(&texts[i]) || begin(&texts[i], words[i]);
    bad = bad || check_cycles(texts) || check_resumed(&texts[0]) || check_bytes(&texts[0], argv[2]);
    if (!bad && argc == 4 && of.n_accepted < atoi(argv[3]))
        bad = fail("drafts", "too few accepted");
    for (int i = 0; i < N_TEXTS; i++) close_text(&texts[i]);
    specrt_llama_head_close(&of.head);
    llama_model_free(of.draft), llama_model_free(of.target);
    return bad;
}
