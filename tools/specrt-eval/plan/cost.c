/* cost.c : what calls cost on this machine. */
#include "base/io.h"
#include "base/text.h"
#include "engine/backend/costs.h"
#include "plan.h"

specrt_status plan_measure(const eval_models *m, const eval_options *o, double seconds,
                           specrt_costs *out, specrt_error *err) {
    specrt_tree_params tree;
    TRY(eval_tree(&o->auto_tree, &tree, err));
    TRY(sequence_costs(m->sequences[0], m->head, &tree, 0, seconds, out, err));
    snprintf(out->key, sizeof out->key, "engine %s, target %s, draft %s, threads %d, specrt %s",
             m->info->engine, sl_text_name(o->target), sl_text_name(o->draft),
             (int)o->common.threads, SPECRT_VERSION_STRING);
    return SPECRT_STATUS_OK;
}
