/* record.c : --record. Answers as ever, and each cycle in a trace, with llama.cpp's own states. */
#include "tool.h"

#include "engine/infer/recorder.h"

/* What the trace says of itself. */
static specrt_trace_info describe(const options *o, const models *m, const specrt_policy *policy,
                                  const specrt_session_params *session,
                                  const specrt_policy_desc *of_pair) {
    specrt_trace_info info = {.n_vocab = m->n_vocab,
                              .d_target = llama_model_n_embd(m->target),
                              .n_top = 10,
                              .n_draft_top = 64,
                              .n_tree_top = SPECRT_LOGITS_MAX_K,
                              .policy = specrt_policy_get_info(policy)->text,
                              .tree = session->tree,
                              .temperature = (float)o->temperature,
                              .n_ids = of_pair->n_vocab,
                              .n_terminators = of_pair->n_terminators,
                              .terminators = of_pair->terminators};
    specrt_llama_fingerprint(m->vocab, info.tokenizer_sha256);
    return info;
}

specrt_status record_open(const options *o, models *m, const specrt_policy *policy,
                          record_file *out, specrt_error *err) {
    specrt_policy_desc of_pair = {.text = "full"};
    specrt_session_params params = models_params(m, o, &of_pair);
    TRY(specrt_policy_create(m->bundle, m->head, &of_pair, &out->full, err));
    const recorder_params record = {.host = models_host(m, o, NULL),
                                    .whole = specrt_policy_get_info(out->full)->shortlist,
                                    .info = describe(o, m, policy, &params, &of_pair),
                                    .path = o->record,
                                    .force = o->common.force};
    return recorder_create(&record, &out->recorder, err);
}

void record_close(record_file *r) {
    recorder_free(r->recorder);
    specrt_policy_close(r->full);
    *r = (record_file){0};
}
