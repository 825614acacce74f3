/* auto.c : sessions of auto by the clock. Costs are measured at the start, or read from their file; then
 * every cycle of such a session is timed. */
#include "specrt_tools.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"

/* A session and its timed host. */
typedef struct timed {
    specrt_session *session; /* borrowed */
    specrt_timer timer;
} timed;

struct auto_clock {
    specrt_costs costs;
    char path[SPECRT_COSTS_PATH], key[SPECRT_COSTS_KEY];
    timed items[MOST_AUTOS];
    int n;
};

/* ---- costs ---- */

static void forget(void *pair) {
    specrt_llama_reset((specrt_llama *)pair);
}

specrt_status auto_meter(const models *m, const options *o, const specrt_head *head,
                         int32_t n_before, specrt_meter *out, specrt_error *err) {
    const specrt_meter_desc desc = {.host = specrt_llama_host(m->pair),
                                    .reset = forget,
                                    .reset_user = m->pair,
                                    .n_logits = m->n_vocab,
                                    .tree = {.num_steps = (int32_t)o->num_steps,
                                             .topk = (int32_t)o->topk,
                                             .num_draft_tokens = (int32_t)o->num_draft_tokens},
                                    .head = head,
                                    .rows = m->rows.desc,
                                    .n_before = n_before};
    return specrt_meter_open(&desc, out, err);
}

static specrt_status find_costs(models *m, const options *o, specrt_error *err) {
    struct auto_clock *c = m->clock = (struct auto_clock *)calloc(1, sizeof *c);
    char line[SPECRT_COSTS_LINE];
    if (!c) return sl_error_no_memory_for(err, "costs");
    specrt_meter meter;
    TRY(auto_meter(m, o, NULL, 0, &meter, err));
    specrt_llama_pair_key(m->pair, c->key);
    specrt_costs_path(o->bundle, c->key, c->path);
    specrt_status status = specrt_costs_find(&meter, c->path, c->key, &c->costs, line, err);
    if (status == SPECRT_STATUS_HOST) status = models_error(m, status, err);
    specrt_meter_close(&meter);
    if (status == SPECRT_STATUS_OK) sl_cli_info("%s", line);
    return status;
}

/* A folder that cannot be written costs a measurement at the next start. */
static void keep_costs(struct auto_clock *c) {
    specrt_error err;
    if (!c->costs.changed || !c->path[0]) return;
    if (specrt_costs_write(&c->costs, c->path, &err) != SPECRT_STATUS_OK)
        sl_cli_info("costs: %s", err.msg);
}

/* ---- sessions ---- */

/* The policy of auto+SPEC, or that with the best costs. */
static const char *policy_of(struct auto_clock *c, const specrt_costs_drafts *drafts,
                             const char *text) {
    return text[4] == '+' ? text + 5 : specrt_advise_untried(&c->costs, drafts);
}

static specrt_status add_timer(models *m, specrt_session_params *params, double head,
                               specrt_error *err) {
    struct auto_clock *c = m->clock;
    if (c->n == MOST_AUTOS)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--policy: expected at most %d of auto and auto+SPEC, found more",
                                MOST_AUTOS);
    specrt_timer *t = &c->items[c->n].timer;
    t->keeps_chains = specrt_llama_keeps_chains(m->pair);
    specrt_clock_init(&t->clock, &c->costs, &params->tree, head);
    TRY(specrt_clock_auto(&t->clock, t->keeps_chains, &t->auto_draft, err));
    params->auto_draft = t->auto_draft;
    c->n++;
    return SPECRT_STATUS_OK;
}

specrt_status auto_session(models *m, const options *o, const char *text, specrt_policy **policy,
                           specrt_session **session, specrt_error *err) {
    if (!m->clock) TRY(find_costs(m, o, err));
    struct auto_clock *c = m->clock;
    specrt_costs_drafts drafts = {
        .bundle = m->bundle, .head = m->head, .n_cols = m->rows.desc.n_cols};
    drafts.params = models_params(m, o, &drafts.policy);
    drafts.policy.text = policy_of(c, &drafts, text);
    double head = specrt_costs_head(&c->costs, &drafts, drafts.policy.text);
    keep_costs(c);
    TRY(specrt_policy_create(m->bundle, m->head, &drafts.policy, policy, err));
    TRY(add_timer(m, &drafts.params, head, err));
    timed *t = &c->items[c->n - 1];
    if (!o->bench && specrt_clock_hopeless(&t->timer.clock, m->no_drafts)) return SPECRT_STATUS_OK;
    TRY(specrt_session_create(*policy, &drafts.params, NULL, session, err));
    t->session = *session;
    return SPECRT_STATUS_OK;
}

static timed *find(const models *m, const specrt_session *session) {
    for (int i = 0; session && m->clock && i < m->clock->n; i++)
        if (m->clock->items[i].session == session) return &m->clock->items[i];
    return NULL;
}

specrt_host auto_host(const models *m, const specrt_session *session, specrt_host host) {
    timed *t = find(m, session);
    if (!t) return host;
    t->timer.host = host;
    specrt_timer_host(&t->timer, &host);
    return host;
}

bool auto_explain(const models *m, const specrt_session *session, specrt_auto_stats *stats,
                  char line[SPECRT_COSTS_TEXT]) {
    const timed *t = find(m, session);
    if (!t) return false;
    specrt_auto_get_stats(t->timer.auto_draft, stats);
    specrt_clock_explain(&t->timer.clock, stats, line);
    return true;
}

void auto_close_all(models *m) {
    for (int i = 0; m->clock && i < m->clock->n; i++)
        specrt_auto_close(m->clock->items[i].timer.auto_draft);
    free(m->clock);
    m->clock = NULL;
}
