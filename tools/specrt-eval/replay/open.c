/* open.c : what a replay is made from, opened and checked against each other. Policies get a head
 * without content where none is given: which rows are members does not depend on what is in them, and
 * nothing is multiplied. */
#include "specrt_adapt.h"
#include <stdlib.h>
#include <string.h>
#include "formats/bundle_open.h"
#include "../shared/eval.h"
#include "impl.h"
#include "base/error.h"
#include "base/memory.h"

/* ---- traces ---- */

int32_t replay_best_width(const specrt_trace_info *info) {
    int32_t k = info->n_top > info->n_tree_top ? info->n_top : info->n_tree_top;
    return k < REPLAY_BEST ? k : REPLAY_BEST;
}

static specrt_status check_trace(const replay *r, int i, specrt_error *err) {
    static const uint8_t unknown[32] = {0};
    const specrt_trace_info *a = r->infos[0], *b = r->infos[i];
    const char *name = r->params.traces[i], *first = r->params.traces[0];
    if (a->n_vocab != b->n_vocab || a->d_draft != b->d_draft || a->d_target != b->d_target)
        return specrt_error_set(
            err, SPECRT_STATUS_TRACE_MISMATCH,
            "%s: expected %d tokens and widths %d and %d as %s, found %d, %d and %d", name,
            (int)a->n_vocab, (int)a->d_target, (int)a->d_draft, first, (int)b->n_vocab,
            (int)b->d_target, (int)b->d_draft);
    if (a->n_top != b->n_top || a->n_draft_top != b->n_draft_top)
        return specrt_error_set(err, SPECRT_STATUS_TRACE_MISMATCH,
                                "%s: expected the best %d and %d tokens as %s, found %d and %d",
                                name, (int)a->n_top, (int)a->n_draft_top, first, (int)b->n_top,
                                (int)b->n_draft_top);
    if (memcmp(&a->tree, &b->tree, sizeof a->tree) != 0 || a->draft != b->draft)
        return specrt_error_set(err, SPECRT_STATUS_TRACE_MISMATCH,
                                "%s: expected drafts of one kind, found other trees than in %s",
                                name, first);
    bool known = memcmp(b->tokenizer_sha256, unknown, sizeof unknown) != 0;
    return specrt_trace_check(r->readers[0], known ? b->tokenizer_sha256 : NULL, 0, 0, err);
}

static specrt_status open_traces(replay *r, specrt_error *err) {
    int n = r->params.n_traces;
    TRY(sl_new(&r->readers, (size_t)n, sizeof *r->readers, "a replay", err));
    TRY(sl_new(&r->infos, (size_t)n, sizeof *r->infos, "a replay", err));
    for (int i = 0; i < n; i++) {
        TRY(specrt_trace_open(r->params.traces[i], NULL, &r->readers[i], err));
        r->infos[i] = specrt_trace_get_info(r->readers[i]);
        TRY(check_trace(r, i, err));
    }
    return SPECRT_STATUS_OK;
}

/* Trees deeper or wider than the recorded one would need passes that were not made. */
static specrt_status open_trees(replay *r, specrt_error *err) {
    if (r->params.n_trees >= REPLAY_TREES)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "expected at most %d trees, found %d",
                                REPLAY_TREES - 1, r->params.n_trees);
    TRY(eval_tree(&r->infos[0]->tree, &r->trees[0], err));
    for (int i = 0; i < r->params.n_trees; i++) {
        specrt_tree_params *tree = &r->trees[i + 1], *most = &r->trees[0];
        TRY(eval_tree(&r->params.trees[i], tree, err));
        if (tree->num_steps > most->num_steps || tree->topk > most->topk ||
            (tree->topk > 1 && tree->num_draft_tokens > most->num_draft_tokens))
            return specrt_error_set(
                err, SPECRT_STATUS_BAD_ARG,
                "tree %d/%d/%d: expected at most what was recorded, %d/%d/%d; record a larger tree",
                (int)tree->num_steps, (int)tree->topk, (int)tree->num_draft_tokens,
                (int)most->num_steps, (int)most->topk, (int)most->num_draft_tokens);
    }
    r->n_trees = r->params.n_trees + 1;
    return SPECRT_STATUS_OK;
}

/* ---- bundle and head ---- */

static specrt_status open_head(replay *r, specrt_error *err) {
    const specrt_trace_info *info = r->infos[0];
    specrt_head_desc head = {.dtype = SPECRT_DTYPE_F32, .n_rows = info->n_vocab, .n_cols = 1};
    if (!r->params.model) {
        head.rows = r->no_rows = calloc((size_t)info->n_vocab, sizeof(float));
        if (!r->no_rows) return sl_error_no_memory_for(err, "a replay");
        return specrt_head_bind(NULL, &head, NULL, &r->head, err);
    }
    TRY(sl_model_open(r->params.model, &r->model, err));
    TRY(sl_model_head(&r->model, NULL, &head, NULL, err));
    r->head_desc = head;
    if (head.n_rows != info->n_vocab || (info->d_draft > 0 && head.n_cols != info->d_draft))
        return specrt_error_set(
            err, SPECRT_STATUS_TRACE_MISMATCH,
            "%s: its head is [%lld, %lld]; expected [%d, %d], as the trace was recorded",
            r->params.model, (long long)head.n_rows, (long long)head.n_cols, (int)info->n_vocab,
            (int)info->d_draft);
    return specrt_head_bind(r->bundle, &head, NULL, &r->head, err);
}

/* What DynaSpec's router reads beside states; a model without one is no fault until a policy asks. */
static specrt_status open_embedding(replay *r, specrt_error *err) {
    if (r->params.embedding) {
        TRY(sl_model_open(r->params.embedding, &r->embedding_file, err));
        return sl_model_embedding(&r->embedding_file, NULL, &r->embedding, err);
    }
    if (r->params.model) (void)sl_model_embedding(&r->model, NULL, &r->embedding, NULL);
    return SPECRT_STATUS_OK;
}

/* ---- policies ---- */

/* Whether a text names a source that reads the head's rows to choose by: without a model no policy of such a
 * text can be made, so the text has to say. */
static bool reads_head(const char *text) {
    static const char *const words[] = {"cluster", "group", "centroid", "sketch"};
    char meant[256];
    const char *preset;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(text, words[i])) return true;
    for (int32_t i = 0; (preset = specrt_policy_preset(i, meant, sizeof meant)) != NULL; i++)
        if (strstr(text, preset) && reads_head(meant)) return true;
    return false;
}

/* Which figures are a run's own. Lists that never change are the same in every run; others are where what
 * they were made of is all there: in a tree not the tokens and states that were extended in vain, in a
 * chain not the states after the last emitted token. */
static void tell_exact(const replay *r, replay_way *e, const specrt_policy_info *info) {
    bool fixed = !info->learns && !info->by_level, chain = r->trees[0].topk == 1;
    bool known = e->recorded && !info->needs_submit;
    fixed &= e->recorded || r->infos[0]->draft == SPECRT_DRAFT_TOP_K;
    for (int i = 0; i < r->params.n_traces; i++)
        known &= r->infos[i]->n_tree_top > 0 || !info->needs_tree_rows;
    e->exact_coverage = fixed || (known && (chain || !info->by_path));
    e->exact_rows = fixed || (known && !info->by_states && (chain || !info->by_path));
}

static specrt_status open_policy(replay *r, const char *text, replay_way *e, specrt_error *err) {
    const specrt_trace_info *trace = r->infos[0];
    char plain[EVAL_POLICY_TEXT];
    int type;
    TRY(eval_split_head(text, plain, &type, err));
    specrt_policy_desc desc = {.text = plain,
                               .n_vocab = trace->n_ids,
                               .n_terminators = trace->n_terminators,
                               .terminators = trace->terminators,
                               .target = r->params.model ? r->head : NULL};
    if (r->embedding.rows) desc.embedding = &r->embedding;
    if (!r->params.model && reads_head(text))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "policy '%.60s': head: expected --model FILE, found none", text);
    TRY(specrt_policy_create(r->bundle, r->head, &desc, &e->policy, err));
    TRY(replay_head_of(r, type, text, &e->head, err));
    const specrt_policy_info *info = specrt_policy_get_info(e->policy);
    snprintf(e->text, sizeof e->text, "%.400s%s", info->text, eval_head_suffix(text));
    e->routed = info->by_level;
    e->reads_hidden = info->by_states;
    e->reads_draft_input = info->needs_draft_input;
    e->d_hidden = info->hidden_width;
    e->serial = r->params.stream || info->keeps;
    r->keeps_hidden |= e->reads_hidden || e->d_hidden > 0 || e->head;
    e->recorded = r->n_trees > 0;
    for (int i = 0; i < r->params.n_traces; i++)
        e->recorded &= r->infos[i]->policy && strcmp(r->infos[i]->policy, e->text) == 0;
    tell_exact(r, e, info);
    return SPECRT_STATUS_OK;
}

static specrt_status open_policies(replay *r, specrt_error *err) {
    int n = r->params.n_policies + 1;
    TRY(sl_new(&r->ways, (size_t)n, sizeof *r->ways, "a replay", err));
    r->n_ways = n;
    for (int i = 0; i < n; i++) {
        replay_way *e = &r->ways[i];
        TRY(sl_new(&e->levels, (size_t)r->n_trees, sizeof *e->levels, "a replay", err));
        if (i > 0) TRY(open_policy(r, r->params.policies[i - 1], e, err));
    }
    snprintf(r->ways[0].text, sizeof r->ways[0].text, "oracle");
    r->ways[0].exact_coverage = r->ways[0].exact_rows = true;
    return SPECRT_STATUS_OK;
}

static specrt_status check_texts(const replay *r, specrt_error *err) {
    char plain[EVAL_POLICY_TEXT];
    int type;
    for (int i = 0; i < r->params.n_policies; i++) {
        TRY(eval_split_head(r->params.policies[i], plain, &type, err));
        TRY(specrt_policy_check(plain, err));
    }
    return SPECRT_STATUS_OK;
}

specrt_status replay_open(replay *r, specrt_error *err) {
    if (r->params.n_traces < 1)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "expected --trace FILE");
    TRY(check_texts(r, err));
    TRY(open_traces(r, err));
    TRY(open_trees(r, err));
    TRY(sl_bundle_open_for(r->params.bundle, r->infos[0]->tokenizer_sha256, &r->bundle, err));
    TRY(open_head(r, err));
    TRY(open_embedding(r, err));
    TRY(open_policies(r, err));
    for (int i = 0; !r->keeps_hidden && i < r->params.n_traces; i++)
        specrt_trace_skip_hidden(r->readers[i]);
    return SPECRT_STATUS_OK;
}

void replay_free(replay *r) {
    if (!r) return;
    for (int i = 0; i < r->n_ways; i++) {
        replay_way *e = &r->ways[i];
        specrt_session_close(e->session);
        specrt_policy_close(e->policy);
        free(e->sums), free(e->walked), free(e->levels);
    }
    free(r->ways);
    replay_close_heads(r);
    specrt_head_close(r->head);
    free(r->no_rows);
    if (r->params.model) sl_model_close(&r->model);
    if (r->params.embedding) sl_model_close(&r->embedding_file);
    specrt_bundle_close(r->bundle);
    for (int i = 0; r->readers && i < r->params.n_traces; i++) specrt_trace_close(r->readers[i]);
    free((void *)r->readers);
    free((void *)r->infos);
    free(r->domains), free(r->shared);
    pthread_mutex_destroy(&r->lock);
    free(r);
}
