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
    specrt_llama_timer timer;
} timed;

struct auto_clock {
    specrt_llama_costs costs;
    char path[SPECRT_LLAMA_PATH], key[SPECRT_LLAMA_KEY];
    bool keeps; /* there is a path */
    timed items[MOST_AUTOS];
    int n;
};

/* ---- costs ---- */

static specrt_status find_costs(models *m, const options *o, specrt_error *err) {
    struct auto_clock *c = m->clock = (struct auto_clock *)calloc(1, sizeof *c);
    char line[SPECRT_LLAMA_LINE];
    if (!c) return sl_error_no_memory_for(err, "costs");
    const specrt_llama_meter meter = specrt_llama_get_meter(m->pair);
    specrt_llama_pair_key(m->pair, c->key);
    c->keeps = specrt_llama_cache_path(o->bundle, c->key, c->path);
    int code = specrt_llama_costs_find(&meter, (int32_t)o->num_draft_tokens,
                                       c->keeps ? c->path : NULL, c->key, &c->costs, line);
    if (code != 0) return models_error(m, SPECRT_STATUS_HOST, err);
    specrt_llama_reset(m->pair);
    sl_cli_info("%s", line);
    return SPECRT_STATUS_OK;
}

/* A folder that cannot be written costs a measurement at the next start. */
static void keep_costs(struct auto_clock *c) {
    char machine[SPECRT_LLAMA_TEXT];
    if (!c->costs.changed || !c->keeps) return;
    specrt_llama_machine(machine);
    if (!specrt_llama_cache_write(c->path, machine, c->key, &c->costs))
        sl_cli_info("costs: %s: cannot be written", c->path);
}

/* ---- sessions ---- */

/* The policy of auto+SPEC, or that with the best costs. */
static const char *policy_of(struct auto_clock *c, const specrt_llama_drafts *drafts,
                             const char *text) {
    return text[4] == '+' ? text + 5 : specrt_llama_costs_policy(&c->costs, drafts);
}

static specrt_status add_timer(models *m, specrt_session_params *params, double head,
                               specrt_error *err) {
    struct auto_clock *c = m->clock;
    if (c->n == MOST_AUTOS)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--policy: expected at most %d of auto and auto+SPEC, found more",
                                MOST_AUTOS);
    specrt_llama_timer *t = &c->items[c->n].timer;
    t->keeps_chains = specrt_llama_keeps_chains(m->pair);
    specrt_llama_clock_init(&t->clock, &c->costs, &params->tree, head);
    TRY(specrt_llama_clock_auto(&t->clock, t->keeps_chains, &t->auto_draft, err));
    params->auto_draft = t->auto_draft;
    c->n++;
    return SPECRT_STATUS_OK;
}

specrt_status auto_session(models *m, const options *o, const char *text, specrt_policy **policy,
                           specrt_session **session, specrt_error *err) {
    if (!m->clock) TRY(find_costs(m, o, err));
    struct auto_clock *c = m->clock;
    specrt_llama_drafts drafts = {
        .bundle = m->bundle, .head = m->head, .n_cols = m->rows.desc.n_cols};
    drafts.params = models_params(m, o, &drafts.policy);
    drafts.policy.text = policy_of(c, &drafts, text);
    double head = specrt_llama_costs_head(&c->costs, &drafts, drafts.policy.text);
    keep_costs(c);
    TRY(specrt_policy_create(m->bundle, m->head, &drafts.policy, policy, err));
    TRY(add_timer(m, &drafts.params, head, err));
    timed *t = &c->items[c->n - 1];
    if (!o->bench && specrt_llama_clock_hopeless(&t->timer.clock, m->no_drafts))
        return SPECRT_STATUS_OK;
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
    return specrt_llama_timed_host(&t->timer);
}

bool auto_explain(const models *m, const specrt_session *session, specrt_auto_stats *stats,
                  char line[SPECRT_LLAMA_TEXT]) {
    const timed *t = find(m, session);
    if (!t) return false;
    specrt_auto_get_stats(t->timer.auto_draft, stats);
    specrt_llama_clock_explain(&t->timer.clock, stats, line);
    return true;
}

void auto_close_all(models *m) {
    for (int i = 0; m->clock && i < m->clock->n; i++)
        specrt_auto_close(m->clock->items[i].timer.auto_draft);
    free(m->clock);
    m->clock = NULL;
}
