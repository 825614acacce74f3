/* record.c : specrt-eval record. Decoding runs as ever, through a recorder before the decoder's host. */
#include <stdlib.h>
#include <string.h>
#include "eval.h"
#include "base/io.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/text.h"
#include "engine/recorder.h"

typedef struct recording {
    eval_options options;
    int64_t n_top, n_draft_top, n_tree_top;
    eval_models models;
    specrt_policy *policy, *full;
    specrt_session *whole; /* a list of all rows: the drafter's own ranking */
    engine_decoder *decoder;
    recorder *recorder;
    chat *chat;
    id_list prompt;
} recording;

static specrt_status record_prompt(recording *r, const prompt *p, specrt_error *err) {
    TRY(chat_prompt(r->chat, p, &r->prompt));
    engine_decoder_reset(r->decoder);
    return recorder_generate(r->recorder, engine_decoder_session(r->decoder), r->prompt.ids,
                             (int32_t)r->prompt.n, p->domain, r->options.max_tokens, NULL, NULL,
                             err);
}

static specrt_status record_all(recording *r, prompt_list *prompts, specrt_error *err) {
    specrt_status status = SPECRT_STATUS_OK;
    progress bar;
    progress_begin(&bar, r->options.common.progress, "record", "prompts", (uint64_t)prompts->n);
    for (int i = 0; status == SPECRT_STATUS_OK && i < prompts->n; i++) {
        status = record_prompt(r, &prompts->items[i], err);
        if (status == SPECRT_STATUS_BAD_ARG && prompts_pass_over(prompts, &prompts->items[i], err))
            status = SPECRT_STATUS_OK;
        else if (status == SPECRT_STATUS_OK)
            chat_announce(r->chat);
        progress_update(&bar, (uint64_t)i + 1);
    }
    progress_end(&bar);
    if (status == SPECRT_STATUS_BAD_ARG) status = err->status = SPECRT_STATUS_BAD_INPUT;
    return status == SPECRT_STATUS_OK
               ? prompts_account(prompts, recorder_get_figures(r->recorder).n_prompts, err)
               : status;
}

static specrt_status open_recording(recording *r, specrt_error *err) {
    const eval_options *o = &r->options;
    specrt_session_params one = {.tree = {.topk = 1}};
    if (!o->draft || !o->common.output)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "expected --draft FILE and -o FILE for the trace");
    if (o->policies.n > 1 || (o->policies.n && strchr(o->policies.items[0], ',')))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--policy: expected one, as a trace is of one run");
    TRY(models_open(o, (int)o->common.threads, &r->models, err));
    TRY(chat_create(o, r->models.tok, &r->chat, err));
    TRY(models_policy(&r->models, o->policies.n ? o->policies.items[0] : "full", &r->policy, err));
    TRY(models_policy(&r->models, "full", &r->full, err));
    TRY(specrt_session_create(r->full, &one, NULL, &r->whole, err));
    specrt_session_params params = models_session(&r->models, o, 0); /* with the models' worker */
    return engine_decoder_create(r->models.target, r->models.drafter, r->policy, &params,
                                 (int32_t)o->n_context, &r->decoder, err);
}

static void print_figures(const recording *r, const prompt_list *prompts) {
    const recorder_figures figures = recorder_get_figures(r->recorder);
    const specrt_session_stats *s = &figures.stats;
    double cycles = s->n_cycles ? (double)s->n_cycles : 1;
    double accept_length = (double)s->n_emitted / cycles, rows = (double)s->n_rows / cycles;
    double coverage = s->n_emitted ? (double)s->n_covered / (double)s->n_emitted : 0;
    cli_info("%s: %s cycles, %s tokens", r->options.common.output,
             text_count((uint64_t)s->n_cycles), text_count((uint64_t)figures.n_tokens));
    cli_info("%s: accept length %.2f, %.1f%% covered, %.0f active rows",
             specrt_policy_text(r->policy), accept_length, 100 * coverage, rows);
    if (!r->options.common.json) return;
    json_object *o = json_object_new_object();
    json_put(o, "policy", json_text(specrt_policy_text(r->policy)));
    json_put(o, "n_prompts", json_whole((uint64_t)figures.n_prompts));
    prompts_put_json(prompts, o);
    chat_put_json(r->chat, o);
    json_put(o, "n_tokens", json_whole((uint64_t)figures.n_tokens));
    json_put(o, "n_cycles", json_whole((uint64_t)s->n_cycles));
    json_put(o, "accept_length", json_real(accept_length));
    json_put(o, "coverage", json_real(coverage));
    json_put(o, "active_rows", json_real(rows));
    json_print(o);
}

/* What the trace says of the recording. */
static specrt_trace_info describe(const recording *r) {
    const eval_options *o = &r->options;
    specrt_trace_info info = {.n_vocab = engine_get_config(r->models.target)->n_vocab,
                              .d_target = engine_get_config(r->models.target)->d_model,
                              .n_top = (int32_t)r->n_top,
                              .n_draft_top = (int32_t)r->n_draft_top,
                              .n_tree_top = (int32_t)r->n_tree_top,
                              .policy = specrt_policy_text(r->policy),
                              .draft = o->sampled_drafts,
                              .temperature = (float)o->temperature,
                              .n_ids = tokenizer_n_vocab(r->models.tok)};
    specrt_session_params params = models_session(&r->models, o, 0);
    info.tree = params.tree;
    info.terminators = tokenizer_terminators(r->models.tok, &info.n_terminators);
    tokenizer_fingerprint(r->models.tok, info.tokenizer_sha256);
    return info;
}

static specrt_status record(recording *r, prompt_list *prompts, specrt_error *err) {
    const eval_options *o = &r->options;
    const recorder_params params = {
        .host = *engine_decoder_host(r->decoder),
        .whole = specrt_session_shortlist(r->whole),
        .info = describe(r),
        .feeds_state = engine_drafter_features(r->models.drafter, (int32_t[3]){0}) == 0,
        .path = o->common.output,
        .force = o->common.force};
    TRY(recorder_create(&params, &r->recorder, err));
    TRY(record_all(r, prompts, err));
    TRY(recorder_commit(r->recorder, err));
    print_figures(r, prompts);
    return SPECRT_STATUS_OK;
}

static void close_recording(recording *r) {
    recorder_free(r->recorder);
    engine_decoder_free(r->decoder);
    specrt_session_close(r->whole);
    specrt_policy_close(r->policy);
    specrt_policy_close(r->full);
    chat_free(r->chat);
    models_close(&r->models);
    free(r->prompt.ids);
    cli_list_free(&r->options.policies);
    cli_list_free(&r->options.prompts);
}

int record_main(int argc, char **argv) {
    recording r = {.options = {.max_tokens = 128}, .n_top = 10, .n_draft_top = 64, .n_tree_top = 8};
    eval_options *o = &r.options;
    prompt_list prompts = {0};
    specrt_error err = {0};
    const cli_option options[] = {
        EVAL_TARGET(*o),
        EVAL_DRAFT(*o),
        cli_strings("policy", "SPEC", &o->policies, "what may be drafted (full)"),
        EVAL_PROMPTS(*o),
        EVAL_SAMPLING(*o),
        cli_heading("Trace"),
        cli_int("top", "N", &r.n_top, 1, 1024, "best tokens of the target kept (10)"),
        cli_int("draft-top", "N", &r.n_draft_top, 0, 1024, "of the drafter (64)"),
        cli_int("tree-top", "N", &r.n_tree_top, 0, SPECRT_LOGITS_MAX_K,
                "of the target at every node, for windows with positions=tree (8)"),
        {0},
    };
    const cli_tool tool = {
        "specrt-eval record",
        "specrt-eval record --target target.gguf --draft draft.safetensors\n"
        "      --prompts questions.jsonl -o run.trace",
        "Decodes prompts and writes every cycle to a trace (docs/FORMAT.md): tree, emitted "
        "tokens, hidden states of both models, their best tokens. Routers are trained on it and "
        "policies replayed over it.",
        "specrt-eval record --target FILE --draft FILE --prompts FILE... -o FILE", options};
    int code = cli_parse(&tool, argc, argv, &o->common, NULL);
    if (code >= 0) return code;
    specrt_status status = prompts_given(o, &prompts, &err);
    if (status == SPECRT_STATUS_OK) status = open_recording(&r, &err);
    if (status == SPECRT_STATUS_OK) status = record(&r, &prompts, &err);
    prompts_free(&prompts);
    close_recording(&r);
    return status == SPECRT_STATUS_OK ? CLI_OK : cli_fail(&err);
}
