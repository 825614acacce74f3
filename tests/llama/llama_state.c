/* llama_state.c : a sequence that is resumed goes on as one that was read. What both models give after a
 * prompt of several passes is taken down, as bytes: once it was read, then resumed, after the pair had gone
 * on from another prompt. States that are another pair's, cut or empty are refused, and leave an empty
 * sequence.
 *
 *     llama_state TARGET.gguf DRAFT.gguf      exit code 0: all as it should be */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llama/specrt_llama.h"

enum { N_PROMPT = 300, N_CYCLES = 4, N_CHAIN = 4 };

typedef struct pair {
    struct llama_model *target, *draft;
    specrt_llama_head rows;
    specrt_llama *of;
    specrt_host host;
    int32_t n_vocab, prompt[N_PROMPT];
} pair;

static int fail(const char *what, const char *why) {
    fprintf(stderr, "llama_state: %s: %s\n", what, why);
    return 1;
}

static int open_pair(pair *p, const char *target, const char *draft) {
    specrt_llama_params params = {.tree = {.num_steps = 3, .topk = 4, .num_draft_tokens = 16},
                                  .n_threads = 2};
    specrt_error err = {0};
    p->target = llama_model_load_from_file(target, llama_model_default_params());
    p->draft = llama_model_load_from_file(draft, llama_model_default_params());
    if (!p->target || !p->draft) return fail(target, "llama.cpp does not load the pair");
    p->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(p->target));
    if (specrt_llama_head_open(draft, &p->rows, &err) ||
        specrt_llama_create(p->target, p->draft, &p->rows, &params, &p->of, &err))
        return fail(draft, err.msg);
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

static int read_prompt(pair *p, int32_t from, int32_t n) {
    const float *logits;
    specrt_llama_reset(p->of);
    for (int32_t done = 0; done < n; done += p->host.max_batch) {
        int32_t left = n - done, most = p->host.max_batch;
        if (p->host.target_prefill(p->host.user, p->prompt + from + done, left < most ? left : most,
                                   0, &logits))
            return 1;
    }
    return 0;
}

/* One cycle over a root with two children, of which one has a child. Two nodes stay. */
static int play_cycle(pair *p, int cycle, FILE *to) {
    const int32_t tokens[N_CHAIN] = {p->prompt[cycle], 5, 6, 7}, parents[N_CHAIN] = {-1, 0, 0, 1};
    const int32_t depths[N_CHAIN] = {0, 1, 1, 2}, rows[2] = {0, 0};
    const uint64_t masks[N_CHAIN] = {1, 3, 5, 11};
    const float none[N_CHAIN] = {0}, *hidden, *logits, *fed = NULL;
    const specrt_beam root = {1, tokens, rows, none}, next = {2, tokens + 1, rows, none};
    const specrt_draft draft = {.n = N_CHAIN,
                                .tokens = tokens,
                                .parents = parents,
                                .depths = depths,
                                .masks = masks,
                                .logprobs = none};
    const specrt_verdict verdict = {.n = 2, .nodes = {0, 1}, .tokens = {5, 9}};
    size_t width = (size_t)p->rows.desc.n_cols;
    if (p->host.draft_step(p->host.user, 0, &root, &hidden, &fed)) return 1;
    fwrite(hidden, sizeof *hidden, width, to);
    if (p->host.draft_step(p->host.user, 1, &next, &hidden, &fed)) return 1;
    fwrite(hidden, sizeof *hidden, 2 * width, to);
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
    int bad = play(p, &after); /* from nothing */
    specrt_llama_reset(p->of);
    if (!bad) bad = play(p, &read) || compare(&read, &after, name, true);
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

static void quiet(enum ggml_log_level level, const char *text, void *user) {
    (void)level, (void)text, (void)user;
}

int main(int argc, char **argv) {
    pair p = {0};
    specrt_llama_state kept = {0};
    if (argc != 3) return fail("usage", "expected TARGET.gguf DRAFT.gguf");
    llama_log_set(quiet, NULL);
    llama_backend_init();
    int bad = open_pair(&p, argv[1], argv[2]) || check_resumed(&p, &kept) || check_between(&p) ||
              check_refused(&p, &kept);
    specrt_llama_state_free(&kept);
    close_pair(&p);
    return bad;
}
