/* watch.c : what compare sees of each cycle beside its time: what the lists held of what the target
 * wanted, what events cost, how accept length goes on after a change of domain. */
#include <math.h>
#include "base/memory.h"
#include "compare.h"

static const int tops[WATCH_TOPS] = {10, 50, 100};
static const int64_t edges[WATCH_SPANS] = {0, 0, 32, 64, 128, 256}; /* tokens since the change */

int watch_top(int i) {
    return tops[i];
}

const char *watch_span_name(int span) {
    static const char *const names[WATCH_SPANS] = {"before", "0-32",    "32-64",
                                                   "64-128", "128-256", "256-"};
    return names[span];
}

/* ---- lists ---- */

int watch_greatest(const float *logits, int32_t n, int k, int32_t *ids) {
    int n_held = 0;
    for (int32_t i = 0; i < n; i++) {
        if (n_held == k && !(logits[i] > logits[ids[k - 1]])) continue;
        int at = n_held < k ? n_held++ : k - 1;
        for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = i;
    }
    return n_held;
}

static void add_position(list_sums *sums, const specrt_session *s, const float *logits, int32_t n,
                         int32_t level) {
    int32_t ids[WATCH_MOST];
    int n_best = watch_greatest(logits, n, WATCH_MOST, ids);
    double all = 0, held = 0;
    for (int32_t i = 0; i < n; i++) {
        double weight = exp((double)logits[i] - (double)logits[ids[0]]);
        all += weight;
        if (specrt_session_member(s, i, level) != SPECRT_MEMBER_NO) held += weight;
    }
    sums->n_positions++;
    sums->mass += held / all;
    for (int i = 0, t = 0; i < n_best && t < WATCH_TOPS; i++) {
        specrt_member member = specrt_session_member(s, ids[i], level);
        for (int u = t; u < WATCH_TOPS; u++) {
            sums->wanted[u]++;
            sums->held[u] += member != SPECRT_MEMBER_NO;
            sums->beyond[u] += member != SPECRT_MEMBER_FIXED;
            sums->brought[u] += member == SPECRT_MEMBER_NOW;
        }
        if (i + 1 == tops[t]) t++;
    }
}

/* ---- events ---- */

/* Times are known once the cycle is over, so each call looks at the one before. */
static void add_event(cycle_watch *w) {
    const compare_way *k = w->k;
    specrt_session_stats stats;
    specrt_session_get_stats(decoder_session(k->decoder), &stats);
    double update = decoder_get_times(k->decoder)->update;
    if (w->n_events >= 0 && stats.n_events > w->n_events) w->event_update += update - w->update;
    w->n_events = stats.n_events;
    w->update = update;
}

/* ---- changes of domain ---- */

static int span_of(int64_t since) {
    int span = WATCH_SPANS - 1;
    while (span > 1 && since < edges[span]) span--;
    return span;
}

void watch_add_cycle(cycle_watch *w, int32_t n_emitted) {
    const comparison *c = w->c;
    if (!sl_reserve(&w->lengths, &w->capacity, w->n_lengths + 1, 1)) return;
    w->lengths[w->n_lengths++] = (uint8_t)n_emitted;
    if (c->n_changes == 0) return;
    int span = span_of(c->since + w->n_since);
    w->spans[span].n_cycles++;
    w->spans[span].n_emitted += n_emitted;
}

void watch_change(comparison *c) {
    c->n_changes++;
    c->since = 0;
    for (int i = FULL; i < c->n_ways; i++) {
        cycle_watch *w = &c->ways[i].watch;
        int64_t n = 0;
        for (size_t k = w->n_lengths; k > 0 && n + w->lengths[k - 1] <= WATCH_BEFORE; k--) {
            n += w->lengths[k - 1];
            w->spans[0].n_cycles++;
        }
        w->spans[0].n_emitted += n;
        w->n_lengths = 0;
    }
}

/* ---- a turn ---- */

static void see_cycle(void *user, const specrt_draft *draft, const specrt_verdict *verdict,
                      const float *logits) {
    cycle_watch *w = (cycle_watch *)user;
    const eval_models *m = &w->c->models;
    int32_t n_logits = m->info->n_logits;
    (void)draft;
    add_event(w);
    if (w->c->stream) watch_add_cycle(w, verdict->n);
    w->n_since += verdict->n;
    for (int32_t i = 0; w->c->lists && i < verdict->n; i++)
        add_position(&w->lists, decoder_session(w->k->decoder),
                     logits + (size_t)verdict->nodes[i] * (size_t)n_logits,
                     sl_tokenizer_n_vocab(m->tok), i);
}

void watch_begin(comparison *c, compare_way *k) {
    cycle_watch *w = &k->watch;
    if (!k->policy) return;
    w->c = c;
    w->k = k;
    w->lists = (list_sums){0};
    w->event_update = w->update = 0;
    w->n_events = -1; /* of this turn none is known yet */
    w->n_since = 0;
    decoder_watch(k->decoder, see_cycle, w);
}

void watch_end(compare_way *k, turn_sample *out) {
    if (!k->policy) return;
    if (k->watch.n_events >= 0) add_event(&k->watch);
    out->lists = k->watch.lists;
    out->event_update = k->watch.event_update;
}
