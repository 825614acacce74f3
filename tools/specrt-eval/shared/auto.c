/* auto.c : what sessions of auto decide by: a file of costs; else the clock, where the engine has a key for a
 * file of costs that is kept; else costs that are measured for the run. */
#include "eval.h"

#include "base/error.h"
#include "base/text.h"
#include "engine/backend/costs.h"

/* ---- costs ---- */

specrt_status eval_measure(const eval_models *m, const eval_options *o, double seconds,
                           int32_t n_before, specrt_costs *out, specrt_error *err) {
    char line[SPECRT_COSTS_TEXT];
    specrt_tree_params tree;
    TRY(eval_tree(&o->auto_tree, &tree, err));
    TRY(sequence_costs(m->sequences[0], m->head, &tree, n_before, seconds, out, err));
    if (specrt_costs_busy(out, line)) sl_cli_warn("costs: %s", line);
    if (m->engine->ops->key)
        m->engine->ops->key(m->engine, out->key);
    else
        snprintf(out->key, sizeof out->key, "engine %s, target %s, draft %s, threads %d, specrt %s",
                 m->info->engine, sl_text_name(o->target), sl_text_name(o->draft),
                 (int)o->common.threads, SPECRT_VERSION_STRING);
    return SPECRT_STATUS_OK;
}

/* Costs of the clock are kept. */
static specrt_status find_costs(const eval_models *m, const eval_options *o, eval_costs *c,
                                specrt_error *err) {
    sequence *s = m->sequences[0];
    char key[SPECRT_COSTS_KEY], line[SPECRT_COSTS_LINE];
    specrt_meter meter;
    m->engine->ops->key(m->engine, key);
    specrt_costs_path(o->bundle, key, c->kept);
    TRY(sequence_meter(s, NULL, &o->auto_tree, 0, &meter, err));
    specrt_status status = specrt_costs_find(&meter, c->kept, key, &c->costs, line, err);
    if (status == SPECRT_STATUS_HOST) specrt_error_set(err, status, "%s", sequence_fault(s));
    specrt_meter_close(&meter);
    TRY(status);
    c->by_clock = true;
    sl_cli_info("%s", line);
    return SPECRT_STATUS_OK;
}

static specrt_status know_costs(const eval_models *m, const eval_options *o, eval_costs *c,
                                specrt_error *err) {
    if (c->costs.target.n > 0) return SPECRT_STATUS_OK;
    if (c->file) {
        TRY(auto_costs_read(c->file, &c->costs, err));
        return auto_costs_fit(&c->costs, m->info->n_block, c->file, err);
    }
    if (m->engine->ops->key) return find_costs(m, o, c, err);
    return eval_measure(m, o, 5, 0, &c->costs, err);
}

/* A folder that cannot be written costs a measurement at the next start. */
static void keep_costs(eval_costs *c) {
    specrt_error err;
    if (!c->costs.changed || !c->kept[0]) return;
    if (specrt_costs_write(&c->costs, c->kept, &err) != SPECRT_STATUS_OK)
        sl_cli_info("costs: %s", err.msg);
}

/* ---- sessions ---- */

static specrt_status open_by_clock(const eval_models *m, eval_costs *c, const char *text,
                                   const specrt_session_params *params, eval_drafts *out,
                                   specrt_error *err) {
    specrt_costs_drafts drafts = {
        .bundle = m->bundle, .head = m->head, .n_cols = m->info->head.n_cols, .params = *params};
    models_describe(m, &drafts.policy);
    drafts.params.n_block = m->info->n_block;
    if (drafts.params.n_block > params->tree.num_steps)
        drafts.params.n_block = params->tree.num_steps;
    drafts.policy.text = text[4] == '+' ? text + 5 : specrt_advise_untried(&c->costs, &drafts);
    double head = specrt_costs_head(&c->costs, &drafts, drafts.policy.text);
    keep_costs(c);
    TRY(specrt_policy_create(m->bundle, m->head, &drafts.policy, &out->policy, err));
    specrt_clock_init(&out->clock, &c->costs, &params->tree, head);
    out->by_clock = true;
    return specrt_clock_auto(&out->clock, m->info->keeps_chains, &out->auto_draft, err);
}

/* No longer than a block. */
static specrt_tree_params largest_of(const eval_models *m, const eval_options *o) {
    specrt_tree_params tree = o->auto_tree;
    if (m->info->n_block == 0 || m->info->n_block >= tree.num_steps) return tree;
    tree.num_steps = m->info->n_block;
    if (tree.topk == 1) tree.num_draft_tokens = tree.num_steps + 1;
    return tree;
}

specrt_status eval_open_drafts(const eval_models *m, const eval_options *o, eval_costs *c,
                               const char *text, specrt_session_params *params, eval_drafts *out,
                               specrt_error *err) {
    const bool is_auto = auto_is_named(text);
    if (is_auto) TRY(know_costs(m, o, c, err));
    if (is_auto) params->tree = largest_of(m, o);
    if (is_auto && c->by_clock)
        TRY(open_by_clock(m, c, text, params, out, err));
    else
        TRY(auto_policy_opened(models_policy(m, auto_policy(text, &c->costs), &out->policy, err),
                               auto_policy_file(text, &c->costs, c->file), err));
    if (is_auto && !c->by_clock)
        TRY(auto_create(&c->costs, &params->tree, out->policy, &out->auto_draft, err));
    params->auto_draft = out->auto_draft;
    return SPECRT_STATUS_OK;
}

void eval_close_drafts(eval_drafts *d) {
    specrt_auto_close(d->auto_draft);
    specrt_policy_close(d->policy);
    *d = (eval_drafts){.by_clock = false};
}

specrt_status eval_decoder(const eval_models *m, sequence *over, const eval_drafts *drafts,
                           bool own, const specrt_session_params *params, decoder **out,
                           specrt_error *err) {
    const decoder_desc desc = {.kind = drafts ? DECODER_SESSION
                                       : own  ? DECODER_OWN
                                              : DECODER_PLAIN,
                               .sequence = over,
                               .policy = drafts ? drafts->policy : NULL,
                               .params = *params,
                               .clock = drafts && drafts->by_clock ? &drafts->clock : NULL,
                               .reads_late = params->auto_draft != NULL, /* it may never draft */
                               .n_vocab = sl_tokenizer_n_vocab(m->tok)};
    return decoder_create(&desc, out, err);
}
