/* costs.c : see costs.h. */
#include "specrt_tools.h"
#include "engine/backend/costs.h"

static void forget(void *user) {
    sequence *s = (sequence *)user;
    sequence_reset(s);
    s->reads_late = true;
}

specrt_status sequence_meter(sequence *s, const specrt_head *head, const specrt_tree_params *tree,
                             int32_t n_before, specrt_meter *out, specrt_error *err) {
    const specrt_meter_desc desc = {.host = s->host,
                                    .reset = forget,
                                    .reset_user = s,
                                    .n_logits = s->of->info.n_logits,
                                    .tree = *tree,
                                    .head = head,
                                    .rows = s->of->info.head,
                                    .n_before = n_before,
                                    .n_block = s->of->info.n_block};
    return specrt_meter_open(&desc, out, err);
}

specrt_status sequence_costs(sequence *s, const specrt_head *head, const specrt_tree_params *tree,
                             int32_t n_before, double seconds, specrt_costs *out,
                             specrt_error *err) {
    specrt_meter meter;
    specrt_status status = sequence_meter(s, head, tree, n_before, &meter, err);
    if (status != SPECRT_STATUS_OK) return status;
    status = specrt_costs_measure(&meter, seconds, 1, out, err);
    if (status == SPECRT_STATUS_HOST && sequence_fault(s)[0])
        specrt_error_set(err, status, "%s", sequence_fault(s));
    specrt_meter_close(&meter);
    sequence_reset(s);
    out->keeps_chains = s->of->info.keeps_chains;
    return status;
}
