/* llama_distribution.c : what is drawn through the adapter follows the target's distribution. A tiny
 * target's is written down: the probability of every pair of tokens that may stand second and third in an
 * answer. 20,000 answers are drawn with chains that the drafter samples, and as many plainly; Pearson's
 * statistic over the pairs says whether they could come from it. Those of another temperature must not pass.
 *
 *     llama_distribution TARGET.gguf DRAFT.gguf      exit code 0: all as it should be */
#include "inside.h"
#include "llama/specrt_llama.h"

enum { MOST_VOCAB = 64, N_DRAWS = 20000, N_PROMPT = 3, N_STEPS = 3 };

static const int32_t prompt[N_PROMPT] = {3, 9, 17};

typedef struct distribution {
    struct llama_model *target, *draft;
    specrt_llama_head rows;
    specrt_llama *pair;
    specrt_head *head;
    specrt_host host;
    int32_t n; /* tokens */
    /* Of the answer's second and third token; `ended`: it had no third. */
    double pairs[MOST_VOCAB][MOST_VOCAB], ended;
} distribution;

/* ---- the distribution itself ---- */

static void softmax(const float *logits, int32_t n, double temperature, double *out) {
    double sum = 0, max = (double)logits[0];
    for (int32_t i = 1; i < n; i++) max = fmax(max, (double)logits[i]);
    for (int32_t i = 0; i < n; i++) sum += out[i] = exp(((double)logits[i] - max) / temperature);
    for (int32_t i = 0; i < n; i++) out[i] /= sum;
}

/* After the prompt and n tokens more. */
static int next_distribution(const distribution *l, const int32_t *more, int32_t n,
                             double temperature, double *out) {
    int32_t tokens[N_PROMPT + 2];
    const float *logits;
    memcpy(tokens, prompt, sizeof prompt);
    if (n) memcpy(tokens + N_PROMPT, more, (size_t)n * sizeof *more);
    specrt_llama_reset(l->pair);
    if (l->host.target_prefill(l->host.user, tokens, N_PROMPT + n, 0, &logits)) return 1;
    softmax(logits, l->n, temperature, out);
    return 0;
}

static bool ends(const distribution *l, int32_t token) {
    return llama_vocab_is_eog(llama_model_get_vocab(l->target), token);
}

static int add_first(distribution *l, int32_t first, double p_first, double temperature) {
    double second[MOST_VOCAB], third[MOST_VOCAB];
    if (next_distribution(l, &first, 1, temperature, second)) return 1;
    for (int32_t i = 0; i < l->n; i++) {
        const int32_t both[2] = {first, i};
        if (ends(l, i)) {
            l->ended += p_first * second[i];
            continue;
        }
        if (next_distribution(l, both, 2, temperature, third)) return 1;
        for (int32_t j = 0; j < l->n; j++) l->pairs[i][j] += p_first * second[i] * third[j];
    }
    return 0;
}

static int write_distribution(distribution *l, double temperature) {
    double first[MOST_VOCAB];
    memset(l->pairs, 0, sizeof l->pairs);
    l->ended = 0;
    if (next_distribution(l, NULL, 0, temperature, first)) return 1;
    for (int32_t i = 0; i < l->n; i++) {
        if (ends(l, i))
            l->ended += first[i];
        else if (add_first(l, i, first[i], temperature))
            return 1;
    }
    return 0;
}

/* ---- draws ---- */

typedef struct draws {
    int32_t pairs[MOST_VOCAB][MOST_VOCAB], ended;
    int64_t n_cycles, n_emitted;
} draws;

typedef struct written {
    int32_t ids[8];
    int32_t n;
} written;

static int each(void *user, const int32_t *tokens, int32_t n) {
    written *w = (written *)user;
    for (int32_t i = 0; i < n && w->n < 8; i++) w->ids[w->n++] = tokens[i];
    return 0;
}

static void count(draws *d, const written *w) {
    if (w->n < 3)
        d->ended++;
    else
        d->pairs[w->ids[1]][w->ids[2]]++;
}

/* Answers of three tokens, from chains that the drafter samples. */
static int draw_drafted(const distribution *l, const char *policy_text, float temperature,
                        draws *d) {
    specrt_policy_desc desc = {.text = policy_text};
    specrt_session_params params = {
        .sampling = {.temperature = temperature, .seed = 7, .session = 1},
        .draft = SPECRT_DRAFT_SAMPLED};
    specrt_policy *policy = NULL;
    specrt_session *session = NULL;
    specrt_session_stats stats;
    specrt_error err = {0};
    memset(d, 0, sizeof *d);
    specrt_llama_describe(l->pair, &desc, &params);
    specrt_status status = specrt_policy_create(NULL, l->head, &desc, &policy, &err);
    if (!status) status = specrt_session_create(policy, &params, NULL, &session, &err);
    for (int i = 0; !status && i < N_DRAWS; i++) {
        written w = {.n = 0};
        const specrt_request request = {.max_tokens = 3};
        specrt_generation g = {.each = each, .user = &w};
        specrt_llama_reset(l->pair);
        status = specrt_generate(session, &l->host, &request, prompt, N_PROMPT, &g);
        if (status) err = *specrt_session_last_error(session);
        count(d, &w);
        specrt_session_get_stats(session, &stats);
        d->n_cycles += stats.n_cycles;
        d->n_emitted += stats.n_emitted;
    }
    specrt_session_close(session);
    specrt_policy_close(policy);
    return status ? fail(policy_text, err.msg) : 0;
}

/* The token at a share of the distribution. */
static int32_t token_at(const double *p, int32_t n, double share) {
    int32_t i = 0;
    while (i < n - 1 && share >= p[i]) share -= p[i++];
    return i;
}

/* As many answers, token by token from the target's distribution, by another generator. */
static int draw_plain(const distribution *l, double temperature, draws *d) {
    uint64_t state = 2463534242u;
    static double distributions[1 + MOST_VOCAB + MOST_VOCAB * MOST_VOCAB][MOST_VOCAB];
    static bool known[1 + MOST_VOCAB + MOST_VOCAB * MOST_VOCAB];
    memset(known, 0, sizeof known);
    memset(d, 0, sizeof *d);
    for (int i = 0; i < N_DRAWS; i++) {
        written w = {.n = 0};
        while (w.n < 3 && (w.n == 0 || !ends(l, w.ids[w.n - 1]))) {
            int at = w.n == 0   ? 0
                     : w.n == 1 ? 1 + w.ids[0]
                                : 1 + MOST_VOCAB + w.ids[0] * MOST_VOCAB + w.ids[1];
            if (!known[at] && next_distribution(l, w.ids, w.n, temperature, distributions[at]))
                return 1;
            known[at] = true;
            state = state * 6364136223846793005u + 1442695040888963407u;
            w.ids[w.n++] =
                token_at(distributions[at], l->n, (double)(state >> 11) / 9007199254740992.0);
        }
        count(d, &w);
    }
    return 0;
}

/* ---- Pearson's statistic ---- */

/* How many standard deviations it is above its mean; cells that expect fewer than 5 count as one. */
static double deviation(const distribution *l, const draws *d) {
    double sum = 0, rest_expected = N_DRAWS * l->ended, rest_found = d->ended;
    int cells = 0;
    for (int32_t i = 0; i < l->n; i++)
        for (int32_t j = 0; j < l->n; j++) {
            double expected = N_DRAWS * l->pairs[i][j], found = d->pairs[i][j];
            if (expected >= 5)
                sum += (found - expected) * (found - expected) / expected, cells++;
            else
                rest_expected += expected, rest_found += found;
        }
    if (rest_expected > 0)
        sum += (rest_found - rest_expected) * (rest_found - rest_expected) / rest_expected, cells++;
    return (sum - (cells - 1)) / sqrt(2.0 * (cells - 1));
}

enum { FAR = 5 }; /* standard deviations */

static int judge(const distribution *l, const char *name, const draws *d, bool same) {
    double z = deviation(l, d);
    printf("%-24s %6.2f standard deviations from the distribution, expected %s %d; accept length "
           "%.2f\n",
           name, z, same ? "at most" : "more than", FAR,
           d->n_cycles ? (double)d->n_emitted / (double)d->n_cycles : 1.0);
    return same ? !(z <= FAR) : !(z > FAR);
}

static int judge_all(distribution *l, draws *d) {
    static const char *const policies[] = {"full", "window:8@min=0"};
    int bad = write_distribution(l, 0.8);
    for (size_t i = 0; !bad && i < sizeof policies / sizeof *policies; i++) {
        bad = draw_drafted(l, policies[i], 0.8f, d);
        if (!bad) bad = judge(l, policies[i], d, true);
    }
    if (!bad) bad = draw_plain(l, 0.8, d) || judge(l, "plain", d, true);
    if (!bad) bad = draw_drafted(l, "full", 0.9f, d) || judge(l, "full, warmer", d, false);
    return bad;
}

/* ---- models ---- */

static int open_pair(distribution *l, const char *target, const char *draft) {
    specrt_llama_params params = {
        .tree = {.num_steps = N_STEPS, .topk = 1, .num_draft_tokens = N_STEPS + 1}, .n_threads = 1};
    specrt_error err = {0};
    l->target = llama_model_load_from_file(target, llama_model_default_params());
    l->draft = llama_model_load_from_file(draft, llama_model_default_params());
    if (!l->target || !l->draft) return fail(target, "llama.cpp does not load the pair");
    l->n = llama_vocab_n_tokens(llama_model_get_vocab(l->target));
    if (l->n > MOST_VOCAB) return fail(target, "expected a tiny vocabulary");
    specrt_status status = specrt_llama_head_open(draft, &l->rows, &err);
    if (!status)
        status = specrt_llama_create(l->target, l->draft, &l->rows, &params, &l->pair, &err);
    if (!status) status = specrt_head_bind(NULL, &l->rows.desc, NULL, &l->head, &err);
    if (status) return fail(draft, err.msg);
    l->host = specrt_llama_host(l->pair);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) return fail("usage", "expected TARGET.gguf DRAFT.gguf");
    distribution *l = (distribution *)calloc(1, sizeof *l);
    draws *d = (draws *)calloc(1, sizeof *d);
    if (!l || !d) return fail("memory", "none");
    llama_log_set(quiet, NULL);
    llama_backend_init();
    int bad = open_pair(l, argv[1], argv[2]) || judge_all(l, d);
    if (bad && l->pair) fail("pair", specrt_llama_fault(l->pair));
    specrt_head_close(l->head);
    specrt_llama_free(l->pair);
    specrt_llama_head_close(&l->rows);
    if (l->draft) llama_model_free(l->draft);
    if (l->target) llama_model_free(l->target);
    free(l);
    free(d);
    return bad;
}
