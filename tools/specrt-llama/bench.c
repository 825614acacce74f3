/* bench.c : --bench. Ways of decoding take turns over all prompts, so that a slow minute of the machine
 * hits all of them; each keeps its best round. Prompts are read once, and all ways go on from there. Tokens
 * are compared with plain decoding's.
 *
 * Where a model is quantised, llama.cpp rounds a pass of five tokens other than five passes of one, and
 * two nearly equal logits may change places. So a token that is not plain decoding's is looked into: it
 * must be the target's own, said again when it is fed the same tokens in the same passes, without drafter
 * or policy; beside it stands how far apart plain decoding had the two. */
#include "specrt_tools.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/json.h"

enum { MOST_WAYS = 64 };

/* What the target verified in a cycle. */
typedef struct cycle {
    int32_t n;
    int32_t tokens[SPECRT_TREE_MAX_NODES], parents[SPECRT_TREE_MAX_NODES];
    int32_t depths[SPECRT_TREE_MAX_NODES];
    uint64_t masks[SPECRT_TREE_MAX_NODES];
} cycle;

/* An answer, and its cycles. */
typedef struct answer {
    int32_t *ids; /* [room] */
    cycle *cycles;
    int32_t n, n_cycles, room;
} answer;

typedef enum way_kind { PLAIN, WHOLE_HEAD, POLICY } way_kind;

typedef struct way {
    way_kind kind;
    char name[96];
    specrt_policy *policy;
    specrt_session *session;
    answer *answers; /* [n_prompts] of the last round */
    double *rounds;  /* [rounds] seconds, owned */
    /* Sums over the prompts of a round. */
    double seconds, draft_seconds, target_seconds;
    int64_t n_tokens, n_cycles, n_emitted, n_rows;
    /* Of the best round. */
    double best_seconds, best_draft, best_target;
    int n_same, n_splits, n_unexplained;
} way;

typedef struct split {
    int way, prompt, token;
    double margin; /* plain decoding's, between its token and this one */
    bool repeated; /* by the target, fed the same passes */
} split;

typedef struct bench {
    const options *o;
    models *m;
    const inputs *in;
    reading *readings; /* [n_prompts] */
    int n_unanswered;  /* prompts whose answer's first token ends it: there is nothing to decode */
    specrt_host host;  /* the pair's */
    specrt_host inner; /* of the way that decodes now */
    way ways[MOST_WAYS];
    int n_ways;
    split *splits; /* [n_splits] */
    int n_splits;
    answer *recorded; /* what target_verify fills now */
} bench;

/* ---- decoding ------------------------------------------------------------------------------------ */

/* As sessions do: a slow scan here would make plain decoding look slow. */
static int32_t best_of(const float *logits, int32_t n) {
    int32_t best = 0;
    (void)specrt_logits_topk(logits, n, 1, &best);
    return best;
}

static bool ends(const bench *b, int32_t token) {
    return models_ends(b->m, token);
}

/* Every way takes an answer's first token from the prompt's logits. */
static bool is_unanswered(const bench *b, int i) {
    return ends(b, best_of(b->readings[i].logits, b->m->n_vocab));
}

static specrt_draft view(const cycle *c) {
    static const float none[SPECRT_TREE_MAX_NODES];
    return (specrt_draft){.n = c->n,
                          .tokens = c->tokens,
                          .parents = c->parents,
                          .depths = c->depths,
                          .masks = c->masks,
                          .logprobs = none};
}

static void cycle_add(cycle *c, int32_t token, int32_t parent) {
    int32_t i = c->n++;
    c->tokens[i] = token;
    c->parents[i] = parent;
    c->depths[i] = parent < 0 ? 0 : c->depths[parent] + 1;
    c->masks[i] = (parent < 0 ? 0 : c->masks[parent]) | (uint64_t)1 << i;
}

/* The child of a node that holds the token, or -1. */
static int32_t child_with(const specrt_draft *draft, int32_t node, int32_t token) {
    for (int32_t i = node + 1; i < draft->n; i++)
        if (draft->parents[i] == node && draft->tokens[i] == token) return i;
    return -1;
}

/* Greedy verification as llama.cpp does it: nothing of specrt. */
static void descend(const bench *b, const specrt_draft *draft, const float *logits,
                    specrt_verdict *out) {
    out->n = 0;
    for (int32_t node = 0; node >= 0;) {
        int32_t best = best_of(logits + (int64_t)node * b->m->n_vocab, b->m->n_vocab);
        out->nodes[out->n] = node;
        out->tokens[out->n++] = best;
        node = child_with(draft, node, best);
    }
}

/* A chain by llama.cpp's whole head, its best token at every step. */
static int draft_chain(bench *b, cycle *c) {
    for (int32_t level = 0; level < b->o->num_steps; level++) {
        const int32_t none = 0;
        const float zero = 0, *hidden, *draft_input = NULL;
        specrt_beam beam = {.n = 1, .tokens = &c->tokens[level], .parents = &none};
        beam.logprobs = &zero;
        if (b->host.draft_step(b->host.user, level, &beam, &hidden, &draft_input)) return 1;
        cycle_add(c, best_of(specrt_llama_draft_logits(b->m->pair), b->m->n_vocab), level);
    }
    return 0;
}

/* Takes new tokens. @return whether the answer goes on */
static bool give(const bench *b, answer *a, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (a->n == a->room) return false;
        a->ids[a->n++] = tokens[i];
        if (ends(b, tokens[i])) return false;
    }
    return a->n < a->room;
}

/* Plain decoding, or drafts by the whole head, without specrt's session. */
static specrt_status decode_without(bench *b, way *w, const reading *from, answer *a,
                                    specrt_error *err) {
    const float *logits;
    specrt_verdict v = {.n = 1};
    TRY(reading_resume(from, b->m, err));
    v.tokens[0] = best_of(from->logits, b->m->n_vocab);
    int64_t began = llama_time_us();
    while (give(b, a, v.tokens, v.n)) {
        cycle *c = &a->cycles[a->n_cycles++];
        c->n = 0;
        cycle_add(c, v.tokens[v.n - 1], -1);
        if (w->kind == WHOLE_HEAD && draft_chain(b, c)) return SPECRT_STATUS_HOST;
        specrt_draft draft = view(c);
        if (b->host.target_verify(b->host.user, &draft, &logits)) return SPECRT_STATUS_HOST;
        descend(b, &draft, logits, &v);
        if (b->host.commit(b->host.user, &draft, &v)) return SPECRT_STATUS_HOST;
        w->n_cycles++;
        w->n_emitted += v.n;
        w->n_rows += w->kind == WHOLE_HEAD ? b->m->n_vocab : 0;
    }
    w->seconds += 1e-6 * (double)(llama_time_us() - began);
    return SPECRT_STATUS_OK;
}

/* The pair's callbacks; verified trees are kept for what is looked into. */
static int forward_step(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                        const float **draft_input) {
    bench *b = (bench *)user;
    return b->inner.draft_step(b->inner.user, level, beam, hidden, draft_input);
}

static int forward_verify(void *user, const specrt_draft *draft, const float **logits) {
    bench *b = (bench *)user;
    cycle *c = &b->recorded->cycles[b->recorded->n_cycles++];
    c->n = 0;
    for (int32_t i = 0; i < draft->n; i++) cycle_add(c, draft->tokens[i], draft->parents[i]);
    return b->inner.target_verify(b->inner.user, draft, logits);
}

static int forward_commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    bench *b = (bench *)user;
    return b->inner.commit(b->inner.user, draft, verdict);
}

static specrt_status decode_with(bench *b, way *w, const reading *from, answer *a,
                                 specrt_error *err) {
    specrt_host host = b->host;
    specrt_session_stats stats;
    specrt_status status = SPECRT_STATUS_OK;
    specrt_verdict v;
    b->inner = auto_host(b->m, w->session, b->host);
    host.user = b;
    host.draft_step = forward_step;
    host.target_verify = forward_verify;
    host.commit = forward_commit;
    b->recorded = a;
    TRY(reading_begin(from, b->m, w->session, &v, err));
    int64_t began = llama_time_us();
    while (!status && give(b, a, v.tokens, v.n) && v.end == SPECRT_END_NONE)
        status = specrt_host_cycle(w->session, &host, &v);
    TRY(models_called(w->session, status, err));
    w->seconds += 1e-6 * (double)(llama_time_us() - began);
    specrt_session_get_stats(w->session, &stats);
    w->n_cycles += stats.n_cycles;
    w->n_emitted += stats.n_emitted;
    w->n_rows += stats.n_rows;
    return SPECRT_STATUS_OK;
}

static specrt_status decode(bench *b, way *w, int i, specrt_error *err) {
    answer *a = &w->answers[i];
    a->n = a->n_cycles = 0;
    specrt_llama_use_head(b->m->pair, w->kind == WHOLE_HEAD);
    specrt_status status = w->kind == POLICY ? decode_with(b, w, &b->readings[i], a, err)
                                             : decode_without(b, w, &b->readings[i], a, err);
    specrt_llama_use_head(b->m->pair, false);
    specrt_llama_times times = specrt_llama_get_times(b->m->pair);
    w->draft_seconds += times.draft_seconds;
    w->target_seconds += times.target_seconds;
    w->n_tokens += a->n - 1; /* the first comes with the prompt */
    return models_error(b->m, status, err);
}

static specrt_status run_round(bench *b, way *w, int round, specrt_error *err) {
    w->seconds = w->draft_seconds = w->target_seconds = 0;
    w->n_tokens = w->n_cycles = w->n_emitted = w->n_rows = 0;
    for (int i = 0; i < b->in->n; i++) TRY(decode(b, w, i, err));
    w->rounds[round] = w->seconds;
    if (w->best_seconds > 0 && w->seconds >= w->best_seconds) return SPECRT_STATUS_OK;
    w->best_seconds = w->seconds;
    w->best_draft = w->draft_seconds;
    w->best_target = w->target_seconds;
    return SPECRT_STATUS_OK;
}

/* ---- tokens that differ --------------------------------------------------------------------------- */

/* Logits of plain decoding after the first n tokens of its answer; NULL: the target failed. */
static const float *plain_logits(bench *b, int i, int32_t n) {
    const answer *plain = &b->ways[0].answers[i];
    const float *logits = b->readings[i].logits;
    if (reading_resume(&b->readings[i], b->m, NULL) != SPECRT_STATUS_OK) return NULL;
    for (int32_t k = 0; k < n; k++) {
        cycle c = {.n = 0};
        specrt_verdict v = {.n = 1};
        cycle_add(&c, plain->ids[k], -1);
        specrt_draft draft = view(&c);
        if (b->host.target_verify(b->host.user, &draft, &logits)) return NULL;
        if (b->host.commit(b->host.user, &draft, &v)) return NULL;
    }
    return logits;
}

/* Whether the target alone, fed the cycles of an answer, says its token at a place again. */
static bool repeats(bench *b, int i, const answer *a, int32_t place) {
    const float *logits = b->readings[i].logits;
    int32_t n = 1;
    if (best_of(logits, b->m->n_vocab) != a->ids[0] || place == 0) return place == 0;
    if (reading_resume(&b->readings[i], b->m, NULL) != SPECRT_STATUS_OK) return false;
    for (int32_t k = 0; k < a->n_cycles; k++) {
        specrt_draft draft = view(&a->cycles[k]);
        specrt_verdict v;
        if (b->host.target_verify(b->host.user, &draft, &logits)) return false;
        descend(b, &draft, logits, &v);
        for (int32_t j = 0; j < v.n; j++, n++) {
            if (v.tokens[j] != a->ids[n]) return false;
            if (n == place) return true;
        }
        if (b->host.commit(b->host.user, &draft, &v)) return false;
    }
    return false;
}

/* The first place where two answers differ; -1: nowhere. */
static int32_t first_difference(const answer *a, const answer *b) {
    int32_t n = a->n < b->n ? a->n : b->n;
    for (int32_t i = 0; i < n; i++)
        if (a->ids[i] != b->ids[i]) return i;
    return a->n == b->n || n == a->room ? -1 : n;
}

static specrt_status look_into(bench *b, int w, int i, int32_t place, specrt_error *err) {
    const answer *plain = &b->ways[0].answers[i], *other = &b->ways[w].answers[i];
    split *more = (split *)realloc(b->splits, (size_t)(b->n_splits + 1) * sizeof *more);
    if (!more) return sl_error_no_memory_for(err, "figures");
    b->splits = more;
    split *s = &more[b->n_splits++];
    *s = (split){.way = w, .prompt = i, .token = place};
    if (place < plain->n && place < other->n) {
        const float *logits = plain_logits(b, i, place);
        if (!logits) return models_error(b->m, SPECRT_STATUS_HOST, err);
        s->margin = (double)(logits[plain->ids[place]] - logits[other->ids[place]]);
        s->repeated = repeats(b, i, other, place);
    }
    b->ways[w].n_splits++;
    b->ways[w].n_unexplained += !s->repeated;
    return SPECRT_STATUS_OK;
}

static specrt_status compare_answers(bench *b, specrt_error *err) {
    for (int w = 0; w < b->n_ways; w++)
        for (int i = 0; i < b->in->n; i++) {
            if (is_unanswered(b, i)) continue;
            int32_t place = first_difference(&b->ways[0].answers[i], &b->ways[w].answers[i]);
            if (place < 0)
                b->ways[w].n_same++;
            else
                TRY(look_into(b, w, i, place, err));
        }
    return SPECRT_STATUS_OK;
}

/* ---- the table ------------------------------------------------------------------------------------ */

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

static double speed(const way *w) {
    return ratio((double)w->n_tokens, w->best_seconds);
}

static void print_table(const bench *b) {
    printf("%-50s %9s %8s %7s %8s %9s  %s\n", "", "tokens/s", "x plain", "accept", "rows",
           "drafter", "same as plain");
    for (int i = 0; i < b->n_ways; i++) {
        const way *w = &b->ways[i];
        printf("%-50s %9.1f %8.2f %7.2f %8.0f %8.0f%%  %d of %d", w->name, speed(w),
               ratio(speed(w), speed(&b->ways[0])),
               ratio((double)w->n_emitted, (double)w->n_cycles),
               ratio((double)w->n_rows, (double)w->n_cycles),
               100 * ratio(w->best_draft, w->best_seconds), w->n_same, b->in->n - b->n_unanswered);
        puts(w->n_unexplained ? ", NOT the target's" : "");
    }
    for (int i = 0; i < b->n_splits; i++) {
        const split *s = &b->splits[i];
        printf("%s, prompt %d, token %d: plain decoding had the two %.3g apart; %s\n",
               b->ways[s->way].name, s->prompt + 1, s->token + 1, s->margin,
               s->repeated ? "fed the same passes, the target alone says it too"
                           : "the target does NOT repeat it");
    }
}

static json_object *json_way(const bench *b, const way *w) {
    json_object *o = json_object_new_object(), *rounds = json_object_new_array();
    for (int i = 0; i < b->o->rounds; i++)
        json_object_array_add(rounds, sl_json_real(w->rounds[i]));
    sl_json_put(o, "name", sl_json_text(w->name));
    sl_json_put(o, "tokens_per_second", sl_json_real(speed(w)));
    sl_json_put(o, "speedup_plain", sl_json_real(ratio(speed(w), speed(&b->ways[0]))));
    sl_json_put(o, "accept_length", sl_json_real(ratio((double)w->n_emitted, (double)w->n_cycles)));
    sl_json_put(o, "shortlist_rows", sl_json_real(ratio((double)w->n_rows, (double)w->n_cycles)));
    sl_json_put(o, "seconds", sl_json_real(w->best_seconds));
    sl_json_put(o, "round_seconds", rounds);
    sl_json_put(o, "draft_seconds", sl_json_real(w->best_draft));
    sl_json_put(o, "target_seconds", sl_json_real(w->best_target));
    sl_json_put(o, "n_tokens", sl_json_whole((uint64_t)w->n_tokens));
    sl_json_put(o, "n_same", sl_json_whole((uint64_t)w->n_same));
    return o;
}

static json_object *json_split(const split *s) {
    json_object *o = json_object_new_object();
    sl_json_put(o, "row", sl_json_whole((uint64_t)s->way));
    sl_json_put(o, "prompt", sl_json_whole((uint64_t)s->prompt));
    sl_json_put(o, "token", sl_json_whole((uint64_t)s->token));
    sl_json_put(o, "plain_margin", sl_json_real(s->margin));
    sl_json_put(o, "target_repeats", json_object_new_boolean(s->repeated));
    return o;
}

static specrt_status print_json(const bench *b, specrt_error *err) {
    json_object *o = json_object_new_object(), *rows = json_object_new_array(),
                *splits = json_object_new_array();
    sl_json_put(o, "llama_cpp", sl_json_text(llama_version()));
    sl_json_put(o, "n_prompts", sl_json_whole((uint64_t)b->in->n));
    sl_json_put(o, "n_unanswered", sl_json_whole((uint64_t)b->n_unanswered));
    sl_json_put(o, "rounds", sl_json_whole((uint64_t)b->o->rounds));
    sl_json_put(o, "num_steps", sl_json_whole((uint64_t)b->o->num_steps));
    sl_json_put(o, "topk", sl_json_whole((uint64_t)b->o->topk));
    sl_json_put(o, "num_draft_tokens", sl_json_whole((uint64_t)b->o->num_draft_tokens));
    for (int i = 0; i < b->n_ways; i++) json_object_array_add(rows, json_way(b, &b->ways[i]));
    for (int i = 0; i < b->n_splits; i++) json_object_array_add(splits, json_split(&b->splits[i]));
    sl_json_put(o, "rows", rows);
    sl_json_put(o, "splits", splits);
    return sl_cli_print_json(sl_json_to_text(o), err);
}

/* ---- ways ----------------------------------------------------------------------------------------- */

static specrt_status make_answers(bench *b, way *w, specrt_error *err) {
    w->answers = (answer *)calloc((size_t)b->in->n, sizeof *w->answers);
    w->rounds = (double *)calloc((size_t)b->o->rounds, sizeof *w->rounds);
    if (!w->rounds) return sl_error_no_memory_for(err, "figures");
    for (int i = 0; w->answers && i < b->in->n; i++) {
        answer *a = &w->answers[i];
        /* Where every way still drafts. */
        int32_t room =
            (int32_t)b->host.n_context - b->in->items[i].n - (int32_t)b->o->num_steps - 1;
        bool bounded = b->o->n_predict >= 0 && b->o->n_predict < room;
        a->room = bounded ? (int32_t)b->o->n_predict : room;
        if (a->room < 2) /* the first token comes with the prompt */
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "prompt %d: expected room for an answer in the context's "
                                    "%d tokens, found a prompt of %d; see -c",
                                    i + 1, (int)b->host.n_context, (int)b->in->items[i].n);
        a->ids = (int32_t *)malloc((size_t)a->room * sizeof *a->ids);
        a->cycles = (cycle *)malloc((size_t)a->room * sizeof *a->cycles);
        if (!a->ids || !a->cycles) return sl_error_no_memory_for(err, "answers");
    }
    return w->answers ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "answers");
}

static specrt_status add_way(bench *b, way_kind kind, const char *text, specrt_error *err) {
    way *w = &b->ways[b->n_ways++];
    w->kind = kind;
    if (kind == POLICY) TRY(models_session(b->m, b->o, text, &w->policy, &w->session, err));
    snprintf(w->name, sizeof w->name, "%s",
             kind == PLAIN         ? "plain"
             : auto_is_named(text) ? text
             : kind == WHOLE_HEAD  ? "llama.cpp's whole head, chain"
                                   : specrt_policy_get_info(w->policy)->text);
    return make_answers(b, w, err);
}

static specrt_status add_ways(bench *b, specrt_error *err) {
    TRY(add_way(b, PLAIN, NULL, err));
    TRY(add_way(b, WHOLE_HEAD, NULL, err));
    TRY(add_way(b, POLICY, "full", err));
    const cli_list *policies = &b->o->policies;
    if (policies->n == 0) return add_way(b, POLICY, "auto", err);
    if (policies->n > MOST_WAYS - b->n_ways)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--policy: expected at most %d, found %d", MOST_WAYS - b->n_ways,
                                policies->n);
    for (int i = 0; i < policies->n; i++)
        if (strcmp(policies->items[i], "full") != 0)
            TRY(add_way(b, POLICY, policies->items[i], err));
    return SPECRT_STATUS_OK;
}

static void close_way(way *w, int n_prompts) {
    for (int i = 0; w->answers && i < n_prompts; i++) {
        free(w->answers[i].ids);
        free(w->answers[i].cycles);
    }
    free(w->answers);
    free(w->rounds);
    specrt_session_close(w->session);
    specrt_policy_close(w->policy);
}

static specrt_status read_prompts(bench *b, specrt_error *err) {
    b->readings = (reading *)calloc((size_t)b->in->n, sizeof *b->readings);
    if (!b->readings) return sl_error_no_memory_for(err, "prompts");
    for (int i = 0; i < b->in->n; i++) {
        sl_cli_info("prompt %d of %d: %d tokens", i + 1, b->in->n, (int)b->in->items[i].n);
        TRY(reading_take(&b->in->items[i], b->m, &b->readings[i], err));
        b->n_unanswered += is_unanswered(b, i);
    }
    return SPECRT_STATUS_OK;
}

/* A table of nothing is no comparison. */
static specrt_status check_unanswered(const bench *b, specrt_error *err) {
    char why[UNANSWERED_MOST];
    if (b->n_unanswered == 0) return SPECRT_STATUS_OK;
    inputs_unanswered(b->o, b->m, b->in, b->n_unanswered, why);
    if (b->n_unanswered == b->in->n)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s", why);
    sl_cli_warn("%s", why);
    return SPECRT_STATUS_OK;
}

static specrt_status run_all(bench *b, specrt_error *err) {
    TRY(add_ways(b, err));
    TRY(read_prompts(b, err));
    TRY(check_unanswered(b, err));
    for (int round = 0; round < b->o->rounds; round++)
        for (int i = 0; i < b->n_ways; i++) {
            sl_cli_info("round %d of %d: %s", round + 1, (int)b->o->rounds, b->ways[i].name);
            TRY(run_round(b, &b->ways[i], round, err));
        }
    return compare_answers(b, err);
}

specrt_status bench_all(const options *o, models *m, const inputs *in, specrt_error *err) {
    bench *b = (bench *)calloc(1, sizeof *b);
    if (!b) return sl_error_no_memory_for(err, "figures");
    b->o = o;
    b->m = m;
    b->in = in;
    b->host = specrt_llama_host(m->pair);
    specrt_status status = run_all(b, err);
    if (status == SPECRT_STATUS_OK && o->common.json)
        status = print_json(b, err);
    else if (status == SPECRT_STATUS_OK)
        print_table(b);
    for (int i = 0; i < b->n_ways; i++) close_way(&b->ways[i], in->n);
    for (int i = 0; b->readings && i < in->n; i++) reading_free(&b->readings[i]);
    free(b->readings);
    free(b->splits);
    free(b);
    return status;
}
