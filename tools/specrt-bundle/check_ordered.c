/* check_ordered.c : an ordered head of a drafter's folder. */
#include <math.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/memory.h"
#include "check.h"
#include "ordered.h"

static void found(void *user, const char *code, const char *engines, const char *fix,
                  const char *what) {
    exam_find(user, code, engines, fix, "%s", what);
}

/* Its tokens, for what texts need of them, unless it has all. With --bundle a list would be compared, which
 * clusters are none. */
static specrt_status take_tokens(exam *e, const ordered_head *o, const ordered_counts *n,
                                 specrt_error *err) {
    uint8_t *is;
    if (n->n_tokens == o->n_vocab || e->q->bundle) return SPECRT_STATUS_OK;
    TRY(sl_new(&is, (size_t)o->n_vocab, 1, e->q->drafter, err));
    specrt_status status =
        sl_new(&e->map.ids, (size_t)n->n_tokens, sizeof *e->map.ids, e->q->drafter, err);
    for (int64_t i = 0; i < o->n_vocab; i++) is[sl_ordered_head_id(o, i)] = 1;
    for (int32_t id = 0; status == SPECRT_STATUS_OK && id < o->n_vocab; id++)
        if (is[id]) e->map.ids[e->map.n++] = id;
    free(is);
    return status;
}

specrt_status exam_ordered(exam *e, specrt_error *err) {
    ordered_head o;
    ordered_counts n;
    sl_ordered_head_read(&e->c.m, &o);
    if (!sl_ordered_head_is(&o) && !o.is_inside) return SPECRT_STATUS_OK;
    e->kind = "a drafter with an ordered head";
    sl_ordered_head_examine(&o, found, e);
    if (sl_ordered_head_check(&o, e->q->drafter, NULL) != SPECRT_STATUS_OK) return SPECRT_STATUS_OK;
    TRY(ordered_count(&o, &n, err));
    e->ordered = ordered_json(&n);
    sl_cli_warn("%s: above about %.0f sequences at a time engines read more for %d of %d clusters "
                "than for the whole head",
                e->q->drafter, floor(n.batch), (int)n.topk, (int)n.n_clusters);
    return take_tokens(e, &o, &n, err);
}
