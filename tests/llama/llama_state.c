/* llama_state.c : what both models hold of a sequence, whichever way it came.
 * Resumed, it goes on as one that was read: what the models give after a prompt of several passes is taken
 * down, as bytes, once it was read, then resumed, after the pair had gone on from another prompt. States that
 * are another pair's, cut or empty are refused, and leave an empty sequence.
 * Drafted, accepted in part and committed, the drafter gives what it gives where the same tokens were a
 * prompt, but for rounding: of chains and trees, and after cycles that nobody drafted. So it does where it
 * reads the prompt when it first drafts. A target alone gives what it gives beside a drafter.
 *
 *     llama_state TARGET.gguf DRAFT.gguf [chains]      exit code 0: all as it should be
 *         chains: of a target whose state does not branch */
#include "inside.h"
#include "llama/specrt_llama.h"

enum { N_PROMPT = 300, N_CYCLES = 4, N_CHAIN = 4 };

typedef struct pair {
    struct llama_model *target, *draft;
    specrt_llama_head rows;
    specrt_llama *of;
    specrt_host host;
    int32_t n_vocab, topk, prompt[N_PROMPT];
    bool reads_late, is_plain;
} pair;

static struct llama_model *load(const char *path) {
    struct llama_model_params p = llama_model_default_params();
#ifdef SPECRT_LLAMA_STATES
    p.load_mtp = true;
#endif
    return llama_model_load_from_file(path, p);
}

static int open_pair(pair *p, const char *target, const char *draft, int32_t topk) {
    specrt_llama_params params = {
        .tree = {.num_steps = 3, .topk = topk, .num_draft_tokens = topk == 1 ? 4 : 16},
        .n_threads = 1,
        .reads_late = &p->reads_late,
        .is_plain = &p->is_plain};
    specrt_error err = {0};
    p->target = load(target);
    p->draft = load(draft);
    if (!p->target || !p->draft) return fail(target, "llama.cpp does not load the pair");
    p->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(p->target));
    if (specrt_llama_head_open(draft, &p->rows, &err) ||
        specrt_llama_create(p->target, p->draft, &p->rows, &params, &p->of, &err))
        return fail(draft, err.msg);
    p->topk = topk;
    p->host = specrt_llama_host(p->of);
    for (int32_t i = 0; i < N_PROMPT; i++) p->prompt[i] = (int32_t)(i * 7919LL % p->n_vocab);
    return 0;
}

static void close_pair(pair *p) {
    specrt_llama_free(p->of);
    specrt_llama_head_close(&p->rows);
    if (p->draft) llama_model_free(p->draft);
    if (p->target) llama_model_free(p->target);
}

static int read_on(pair *p, const int32_t *tokens, int32_t n, int32_t most) {
    const float *logits;
    for (int32_t done = 0, piece; done < n; done += piece) {
        piece = n - done < most ? n - done : most;
        if (p->host.target_prefill(p->host.user, tokens + done, piece, 0, &logits)) return 1;
    }
    return 0;
}

static int read_prompt(pair *p, int32_t from, int32_t n) {
    specrt_llama_reset(p->of);
    return read_on(p, p->prompt + from, n, p->host.max_batch);
}

/* One cycle over a root with two children, of which one has a child, or over a chain. Two nodes stay. */
static int play_cycle(pair *p, int cycle, FILE *to) {
    bool tree = p->topk > 1;
    int32_t width = tree ? 2 : 1;
    const int32_t tokens[N_CHAIN] = {p->prompt[cycle], 5, 6, 7};
    const int32_t parents[N_CHAIN] = {-1, 0, tree ? 0 : 1, tree ? 1 : 2};
    const int32_t depths[N_CHAIN] = {0, 1, tree ? 1 : 2, tree ? 2 : 3}, rows[2] = {0, 0};
    const uint64_t masks[N_CHAIN] = {1, 3, tree ? 5 : 7, tree ? 11 : 15};
    const float none[N_CHAIN] = {0}, *hidden, *logits, *draft_input = NULL;
    const specrt_beam root = {1, tokens, rows, none}, next = {width, tokens + 1, rows, none};
    const specrt_draft draft = {.n = N_CHAIN,
                                .tokens = tokens,
                                .parents = parents,
                                .depths = depths,
                                .masks = masks,
                                .logprobs = none};
    const specrt_verdict verdict = {.n = 2, .nodes = {0, 1}, .tokens = {5, 9}};
    size_t d = (size_t)p->rows.desc.n_cols;
    if (p->host.draft_step(p->host.user, 0, &root, &hidden, &draft_input)) return 1;
    fwrite(hidden, sizeof *hidden, d, to);
    if (p->host.draft_step(p->host.user, 1, &next, &hidden, &draft_input)) return 1;
    fwrite(hidden, sizeof *hidden, (size_t)width * d, to);
    if (p->host.target_verify(p->host.user, &draft, &logits)) return 1;
    fwrite(logits, sizeof *logits, N_CHAIN * (size_t)p->n_vocab, to);
    return p->host.commit(p->host.user, &draft, &verdict);
}

typedef struct bytes {
    char *at;
    size_t n;
} bytes;

static int play(pair *p, bytes *out) {
    int bad = 0;
    FILE *to = open_memstream(&out->at, &out->n);
    if (!to) return fail("memory", "none");
    for (int cycle = 0; !bad && cycle < N_CYCLES; cycle++) bad = play_cycle(p, cycle, to);
    return fclose(to) || bad;
}

static int compare(const bytes *a, const bytes *b, const char *name, bool same) {
    bool found = a->n == b->n && a->n > 0 && memcmp(a->at, b->at, a->n) == 0;
    if (found == same) return 0;
    return fail(name, same ? "expected the bytes of the prompt that was read" : "expected others");
}

/* Kept after the prompt, and once more after two cycles' worth of drafts. */
static int check_resumed(pair *p, specrt_llama_state *kept) {
    bytes read = {0}, other = {0}, resumed = {0}, again = {0};
    specrt_error err = {0};
    int bad = read_prompt(p, 0, N_PROMPT) || specrt_llama_keep(p->of, kept, &err) || play(p, &read);
    if (!bad) bad = read_prompt(p, 40, N_PROMPT - 90) || play(p, &other);
    if (!bad) bad = specrt_llama_resume(p->of, kept, &err) || play(p, &resumed);
    if (!bad) bad = specrt_llama_resume(p->of, kept, &err) || play(p, &again);
    if (bad) fail("play", err.msg[0] ? err.msg : specrt_llama_fault(p->of));
    if (!bad) bad = compare(&read, &other, "another prompt", false);
    if (!bad) bad = compare(&read, &resumed, "resumed", true);
    if (!bad) bad = compare(&read, &again, "resumed twice", true);
    free(read.at), free(other.at), free(resumed.at), free(again.at);
    return bad;
}

/* Between two cycles, where the drafter has not read all that the target has. */
static int check_between(pair *p) {
    specrt_llama_state kept = {0};
    bytes first = {0}, on = {0}, resumed = {0};
    int bad = read_prompt(p, 0, N_PROMPT) || play(p, &first) ||
              specrt_llama_keep(p->of, &kept, NULL) || play(p, &on) ||
              specrt_llama_resume(p->of, &kept, NULL) || play(p, &resumed);
    if (bad) fail("between cycles", specrt_llama_fault(p->of));
    if (!bad) bad = compare(&on, &resumed, "between cycles", true);
    free(first.at), free(on.at), free(resumed.at);
    specrt_llama_state_free(&kept);
    return bad;
}

static int refuse(pair *p, const specrt_llama_state *state, const char *name) {
    specrt_error err = {0};
    bytes read = {0}, after = {0};
    specrt_status status = specrt_llama_resume(p->of, state, &err);
    if (status != SPECRT_STATUS_BAD_ARG || !strstr(err.msg, "expected what this pair kept"))
        return fail(name, "expected BAD_ARG and its line");
    int bad = read_on(p, p->prompt, 9, 9) || play(p, &after); /* from nothing */
    if (!bad) bad = read_prompt(p, 0, 9) || play(p, &read) || compare(&read, &after, name, true);
    free(read.at), free(after.at);
    return bad;
}

static int check_refused(pair *p, const specrt_llama_state *kept) {
    specrt_llama_state none = {0}, cut = *kept, swapped = *kept, long_one = *kept;
    cut.n_target /= 2;
    swapped.target = kept->draft, swapped.n_target = kept->n_draft;
    swapped.draft = kept->target, swapped.n_draft = kept->n_target;
    long_one.n_past = 1 << 30;
    return refuse(p, &none, "none kept") || refuse(p, &cut, "cut") ||
           refuse(p, &swapped, "models swapped") || refuse(p, &long_one, "too long");
}

/* ---- committed as read ----------------------------------------------------------------------------- */

enum { N_READ = 50, MOST_COLS = 4096 };

/* Drafts of two levels after a root: what the head would multiply, [1 + width, d]. */
static int draft_after(pair *p, int32_t root, float *out) {
    const int32_t tokens[2] = {21, 22}, rows[2] = {0, 0}, width = p->topk == 1 ? 1 : 2;
    const float none[2] = {0}, *hidden, *draft_input = NULL;
    const specrt_beam first = {1, &root, rows, none}, next = {width, tokens, rows, none};
    size_t d = (size_t)p->rows.desc.n_cols;
    if (p->host.draft_step(p->host.user, 0, &first, &hidden, &draft_input)) return 1;
    memcpy(out, hidden, d * sizeof *out);
    if (p->host.draft_step(p->host.user, 1, &next, &hidden, &draft_input)) return 1;
    memcpy(out + d, hidden, (size_t)width * d * sizeof *out);
    return 0;
}

/* A cycle whose draft was root, 21 and, of a tree, 22 beside it, each with a child; the path stays. */
static int commit_cycle(pair *p, int32_t root, bool drafted) {
    bool tree = p->topk > 1;
    const int32_t tokens[5] = {root, 21, tree ? 22 : 23, 23, 24};
    const int32_t parents[5] = {-1, 0, tree ? 0 : 1, 1, 2}, depths[5] = {0, 1, tree ? 1 : 2, 2, 2};
    const int32_t beam_rows[5] = {0, 0, tree ? 1 : -1, -1, -1},
                  none_drafted[5] = {-1, -1, -1, -1, -1};
    const uint64_t masks[5] = {1, 3, tree ? 5 : 7, 11, 21};
    const float none[5] = {0}, *logits;
    const specrt_draft draft = {.n = !drafted ? 1
                                     : tree   ? 5
                                              : 3,
                                .tokens = tokens,
                                .parents = parents,
                                .depths = depths,
                                .masks = masks,
                                .logprobs = none,
                                .beam_rows = drafted ? beam_rows : none_drafted};
    /* Of the tree the second branch, of the chain all but its end: 22, 24 and 21. */
    const specrt_verdict verdict = {.n = !drafted ? 1
                                         : tree   ? 3
                                                  : 2,
                                    .nodes = {0, tree ? 2 : 1, 4},
                                    .tokens = {0}};
    return p->host.target_verify(p->host.user, &draft, &logits) ||
           p->host.commit(p->host.user, &draft, &verdict);
}

/* The same tokens as a prompt, in pieces that nothing else here has. */
static int read_tokens(pair *p, const int32_t *tokens, int32_t n) {
    specrt_llama_reset(p->of);
    return read_on(p, tokens, n, 17);
}

static int near(const float *a, const float *b, size_t n, const char *name) {
    double most = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        size = fmax(size, fabs((double)b[i]));
    }
    printf("%s: at most %.2g of the greatest apart\n", name, size > 0 ? most / size : INFINITY);
    return size > 0 && most <= 0.002 * size ? 0 : fail(name, "other states than after a prompt");
}

/* Cycle by cycle the states that were drafted from are those of the sequence so far, read at once. */
static int check_committed(pair *p) {
    static float found[N_CYCLES][3 * MOST_COLS], expected[3 * MOST_COLS];
    int32_t tokens[N_READ + 3 * N_CYCLES], n = N_READ, ends[N_CYCLES];
    size_t width = (p->topk == 1 ? 2 : 3) * (size_t)p->rows.desc.n_cols;
    int bad = width > 3 * MOST_COLS;
    memcpy(tokens, p->prompt, sizeof(int32_t) * N_READ);
    bad = bad || read_tokens(p, tokens, n);
    for (int i = 0; !bad && i < N_CYCLES; i++) {
        bool drafted = i != 1; /* of one cycle nothing is */
        ends[i] = n;
        bad = (drafted && draft_after(p, 100 + i, found[i])) || commit_cycle(p, 100 + i, drafted);
        tokens[n++] = 100 + i;
        if (drafted) tokens[n++] = p->topk == 1 ? 21 : 22;
        if (drafted && p->topk > 1) tokens[n++] = 24;
    }
    for (int i = 0; !bad && i < N_CYCLES; i++)
        if (i != 1)
            bad = read_tokens(p, tokens, ends[i]) || draft_after(p, 100 + i, expected) ||
                  near(found[i], expected, width, p->topk == 1 ? "chain" : "tree");
    if (bad) fail("committed", specrt_llama_fault(p->of));
    return bad;
}

/* A model of its own first reads the prompt, in one pass with the root or several; a reader has read it. */
static int check_late(pair *p) {
    static float found[3 * MOST_COLS], expected[3 * MOST_COLS];
    size_t width = (p->topk == 1 ? 2 : 3) * (size_t)p->rows.desc.n_cols;
    int bad = 0;
    for (int32_t n = 50; !bad && n <= N_PROMPT; n += 250) {
        int64_t passes[2];
        for (int late = 0; !bad && late < 2; late++) {
            p->reads_late = late;
            bad = read_prompt(p, 0, n) || draft_after(p, 100, late ? found : expected);
            passes[late] = specrt_llama_get_times(p->of).n_draft_passes;
        }
        p->reads_late = false;
        bad = bad || near(found, expected, width, "read late");
        if (!bad && specrt_llama_keeps_chains(p->of) && passes[1] >= passes[0])
            bad = fail("read late", "the drafter read beside the target");
    }
    return bad;
}

static int check_alone(pair *p) {
    const specrt_tree_params token = {.num_steps = 1, .topk = 1, .num_draft_tokens = 2};
    const specrt_llama_params params = {.tree = token, .n_threads = 1};
    const int32_t root = 100, none = -1, zero = 0;
    const uint64_t mask = 1;
    const float logprob = 0, *paired, *logits = NULL, *hidden, *input = NULL;
    const specrt_draft draft = {1, &root, &none, &zero, &mask, &logprob, NULL, 0};
    const specrt_beam beam = {1, &root, &zero, &logprob};
    const specrt_verdict verdict = {.n = 1};
    pair alone = *p;
    specrt_error err = {0};
    size_t n = (size_t)p->n_vocab;
    if (specrt_llama_create(p->target, NULL, NULL, &params, &alone.of, &err))
        return fail("alone", err.msg);
    alone.host = specrt_llama_host(alone.of);
    int bad = read_prompt(&alone, 0, N_PROMPT);
    p->is_plain = true;
    bad = bad || read_prompt(p, 0, N_PROMPT) ||
          p->host.target_verify(p->host.user, &draft, &paired) ||
          alone.host.target_verify(alone.host.user, &draft, &logits) ||
          near(logits, paired, n, "alone") ||
          alone.host.commit(alone.host.user, &draft, &verdict) ||
          alone.host.target_verify(alone.host.user, &draft, &logits);
    if (!bad && (!alone.host.draft_step(alone.host.user, 0, &beam, &hidden, &input) ||
                 !strstr(specrt_llama_fault(alone.of), "expected a drafter")))
        bad = fail("alone", "expected a refusal to draft");
    specrt_llama_free(alone.of);
    p->is_plain = false;
    if (!bad && specrt_llama_get_times(p->of).n_draft_passes > 0)
        bad = fail("alone", "a drafter read a plain text");
    return bad ? fail("alone", "see above") : 0;
}

static void silent(enum ggml_log_level level, const char *text, void *user) {
    (void)level, (void)text, (void)user;
}

/* topk : 1: chains */
static int check(const char *target, const char *draft, int32_t topk) {
    pair p = {0};
    specrt_llama_state kept = {0};
    int bad = open_pair(&p, target, draft, topk) || check_resumed(&p, &kept) || check_between(&p) ||
              check_refused(&p, &kept) || check_committed(&p) || check_late(&p) || check_alone(&p);
    specrt_llama_state_free(&kept);
    close_pair(&p);
    return bad;
}

int main(int argc, char **argv) {
    bool chains = argc == 4 && strcmp(argv[3], "chains") == 0;
    if (argc != 3 && !chains) return fail("usage", "expected TARGET.gguf DRAFT.gguf [chains]");
    llama_log_set(silent, NULL);
    llama_backend_init();
    return (!chains && check(argv[1], argv[2], 4)) || check(argv[1], argv[2], 1);
}
