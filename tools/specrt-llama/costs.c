/* costs.c : --costs. What head, drafter and target cost in llama.cpp on this machine, by rows, tokens and
 * nodes. */
#include "tool.h"

/* As many tokens as prompts and half their answers have on average; 0: no prompt is given. */
static int32_t typical(const options *o, const inputs *in) {
    int64_t n = 0, most = INT32_MAX / 2;
    for (int i = 0; i < in->n; i++) n += in->items[i].n;
    if (in->n) n = n / in->n + (o->n_predict > 0 ? o->n_predict / 2 : 0);
    return (int32_t)(n < most ? n : most);
}

specrt_status costs_measure(const options *o, const models *m, const inputs *in,
                            specrt_error *err) {
    specrt_meter meter;
    specrt_costs found;
    char line[SPECRT_COSTS_TEXT];
    TRY(auto_meter(m, o, m->head, typical(o, in), &meter, err));
    specrt_status status = specrt_costs_measure(&meter, 20, 1, &found, err);
    if (status == SPECRT_STATUS_HOST) status = models_error(m, status, err);
    specrt_meter_close(&meter);
    TRY(status);
    if (specrt_costs_busy(&found, line)) sl_cli_warn("costs: %s", line);
    found.keeps_chains = specrt_llama_keeps_chains(m->pair);
    specrt_llama_pair_key(m->pair, found.key);
    return auto_costs_write(&found, o->costs, o->common.force, err);
}
