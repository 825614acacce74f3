/* record.c : specrt-eval record. Decoding runs as ever, through a recorder before the decoder's host.
 * Prompts are shared out over the cores unless a source learns from prompt to prompt; the trace has them
 * in their order, for any number of threads. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "shared/eval.h"
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/text.h"
#include "engine/infer/recorder.h"

/* What one thread decodes with. */
typedef struct lane {
    decoder *decoder;
    recorder *recorder; /* in memory */
    chat *chat;
    id_list prompt, answer;
} lane;

/* A prompt's end, until all before it are in the trace. */
typedef struct outcome {
    recorder_part *turns; /* [n_turns] owned */
    int n_turns;
    specrt_error err;
    bool is_done;
} outcome;

typedef struct recording {
    eval_options options;
    int64_t n_top, n_draft_top, n_tree_top, n_turns;
    eval_models models;
    specrt_policy *policy, *full; /* full: its list is of all rows, the drafter's own ranking */
    recorder *recorder;           /* of the trace */
    prompt_list *prompts;
    lane *lanes; /* [n_lanes] */
    int n_lanes;
    outcome *outcomes; /* [prompts] */
    int n_joined;      /* prompts that the trace has, or has passed over */
    specrt_error err;  /* what ended the recording */
    pthread_mutex_t lock;
    progress bar;
} recording;

static int take_answer(void *user, const int32_t *tokens, int32_t n) {
    return ids_append(&((lane *)user)->answer, tokens, n) == SPECRT_STATUS_OK ? 0 : 1;
}

/* The conversation so far, with the next question. */
static specrt_status ask(lane *l, const prompt *p, int turn, specrt_error *err) {
    if (turn == 0) return chat_prompt(l->chat, p, &l->prompt);
    if (ids_append(&l->prompt, l->answer.ids, (int32_t)l->answer.n) != SPECRT_STATUS_OK)
        return sl_error_no_memory_for(err, "a conversation");
    TRY(chat_answered(l->chat, &l->prompt));
    return chat_user(l->chat, p->turns[turn], &l->prompt);
}

static specrt_status record_turn(recording *r, lane *l, int i, int turn, outcome *out,
                                 specrt_error *err) {
    const prompt *p = &r->prompts->items[i];
    const specrt_sampling sampling = eval_sampling(&r->options, i, turn);
    const specrt_request request = {.max_tokens = r->options.max_tokens, .sampling = &sampling};
    TRY(ask(l, p, turn, err));
    l->answer.n = 0;
    decoder_reset(l->decoder);
    TRY(recorder_generate(l->recorder, decoder_session(l->decoder), &request, l->prompt.ids,
                          (int32_t)l->prompt.n, p->domain, take_answer, l, err));
    out->turns[out->n_turns++] = recorder_detach(l->recorder);
    return SPECRT_STATUS_OK;
}

/* A conversation ends where the next turn would not fit the context. */
static specrt_status record_prompt(recording *r, lane *l, int i, outcome *out, specrt_error *err) {
    int n =
        r->prompts->items[i].n_turns < r->n_turns ? r->prompts->items[i].n_turns : (int)r->n_turns;
    out->turns = (recorder_part *)calloc(n > 0 ? (size_t)n : 1, sizeof *out->turns);
    if (!out->turns) return sl_error_no_memory_for(err, "a conversation");
    TRY(record_turn(r, l, i, 0, out, err));
    for (int turn = 1; turn < n; turn++) {
        specrt_status status = record_turn(r, l, i, turn, out, err);
        if (status == SPECRT_STATUS_BAD_ARG) return err->status = SPECRT_STATUS_OK;
        TRY(status);
    }
    return SPECRT_STATUS_OK;
}

static void free_turns(outcome *o) {
    for (int i = 0; i < o->n_turns; i++) recorder_part_free(&o->turns[i]);
    free(o->turns);
    o->turns = NULL;
    o->n_turns = 0;
}

/* The next prompt's records to the trace; a prompt that cannot be decoded (longer than the context) is
 * passed over. */
static specrt_status join(recording *r, outcome *o, specrt_error *err) {
    const prompt *p = &r->prompts->items[r->n_joined++];
    for (int i = 0; i < o->n_turns; i++) TRY(recorder_append(r->recorder, &o->turns[i], err));
    if (o->err.status == SPECRT_STATUS_OK) return SPECRT_STATUS_OK;
    *err = o->err;
    if (o->err.status != SPECRT_STATUS_BAD_ARG) return err->status;
    if (sl_prompts_pass_over(r->prompts, p, err)) return SPECRT_STATUS_OK;
    return err->status = SPECRT_STATUS_BAD_INPUT;
}

static void record_task(void *arg, int64_t i, int worker) {
    recording *r = (recording *)arg;
    lane *l = &r->lanes[worker];
    outcome done = {.is_done = true};
    pthread_mutex_lock(&r->lock);
    bool is_over = r->err.status != SPECRT_STATUS_OK;
    pthread_mutex_unlock(&r->lock);
    if (is_over) return;
    (void)record_prompt(r, l, (int)i, &done, &done.err);
    pthread_mutex_lock(&r->lock);
    r->outcomes[i] = done;
    while (r->err.status == SPECRT_STATUS_OK && r->n_joined < r->prompts->n &&
           r->outcomes[r->n_joined].is_done) {
        outcome *next = &r->outcomes[r->n_joined];
        specrt_error err = {0};
        if (join(r, next, &err) != SPECRT_STATUS_OK) r->err = err;
        free_turns(next);
        sl_progress_update(&r->bar, (uint64_t)r->n_joined);
    }
    pthread_mutex_unlock(&r->lock);
}

static specrt_status record_all(recording *r, specrt_error *err) {
    sl_progress_begin(&r->bar, r->options.common.progress, "record", "prompts",
                      (uint64_t)r->prompts->n);
    pthread_mutex_init(&r->lock, NULL);
    sl_parallel_for(r->n_lanes, r->prompts->n, record_task, r);
    pthread_mutex_destroy(&r->lock);
    sl_progress_end(&r->bar);
    if (r->err.status != SPECRT_STATUS_OK) return *err = r->err, err->status;
    int64_t n = recorder_get_figures(r->recorder).n_prompts;
    if (n > 0) chat_announce(r->lanes[0].chat);
    return sl_prompts_account(r->prompts, n, err);
}

static specrt_status open_lanes(recording *r, specrt_error *err) {
    const eval_options *o = &r->options;
    specrt_session_params params = models_session(&r->models, o, 0); /* with the models' worker */
    TRY(sl_new(&r->lanes, (size_t)r->n_lanes, sizeof *r->lanes, "prompts", err));
    TRY(sl_new(&r->outcomes, (size_t)r->prompts->n, sizeof *r->outcomes, "prompts", err));
    for (int i = 0; i < r->n_lanes; i++) {
        lane *l = &r->lanes[i];
        TRY(chat_create(o, r->models.tok, &l->chat, err));
        TRY(models_decoder(&r->models, r->models.sequences[i], r->policy, &params, &l->decoder,
                           err));
    }
    return SPECRT_STATUS_OK;
}

/* Whether what a source learnt outlives a prompt, so that prompts cannot change places. Lanes share the
 * threads that the models open with, and before that there is no policy, only its text. */
static bool policy_keeps(const char *text) {
    return strstr(text, "keep=on") != NULL;
}

static specrt_status open_recording(recording *r, specrt_error *err) {
    eval_options *o = &r->options;
    if (!o->draft || !o->common.output)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "expected --draft FILE and -o FILE for the trace");
    if (o->policies.n > 1 || (o->policies.n && strchr(o->policies.items[0], ',')))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--policy: expected one, since a trace is of one run");
    TRY(eval_choose_tree(o, true, err));
    const char *policy = o->policies.n ? o->policies.items[0] : "full";
    int threads = (int)o->common.threads;
    int n_lanes = policy_keeps(policy) ? 1 : threads < r->prompts->n ? threads : r->prompts->n;
    o->keeps_states = true;
    TRY(models_open(o, n_lanes, &r->models, err));
    r->n_lanes = r->models.n_sequences;
    TRY(models_policy(&r->models, policy, &r->policy, err));
    TRY(models_policy(&r->models, "full", &r->full, err));
    return open_lanes(r, err);
}

static void print_figures(const recording *r) {
    const recorder_figures figures = recorder_get_figures(r->recorder);
    const specrt_session_stats *s = &figures.stats;
    double cycles = s->n_cycles ? (double)s->n_cycles : 1;
    double accept_length = (double)s->n_emitted / cycles, rows = (double)s->n_rows / cycles;
    double coverage = s->n_emitted ? (double)s->n_covered / (double)s->n_emitted : 0;
    sl_cli_info("%s: %s cycles, %s tokens", r->options.common.output,
                sl_text_count((uint64_t)s->n_cycles), sl_text_count((uint64_t)figures.n_tokens));
    sl_cli_info("%s: accept length %.2f, %.1f%% covered, %.0f shortlist rows",
                specrt_policy_get_info(r->policy)->text, accept_length, 100 * coverage, rows);
    if (!r->options.common.json) return;
    json_object *o = json_object_new_object();
    sl_json_put(o, "policy", sl_json_text(specrt_policy_get_info(r->policy)->text));
    sl_json_put(o, "n_prompts", sl_json_whole((uint64_t)figures.n_prompts));
    sl_prompts_put_json(r->prompts, o);
    chat_put_json(r->lanes[0].chat, o);
    sl_json_put(o, "n_tokens", sl_json_whole((uint64_t)figures.n_tokens));
    sl_json_put(o, "n_cycles", sl_json_whole((uint64_t)s->n_cycles));
    sl_json_put(o, "accept_length", sl_json_real(accept_length));
    sl_json_put(o, "coverage", sl_json_real(coverage));
    sl_json_put(o, "shortlist_rows", sl_json_real(rows));
    sl_json_print(o);
}

/* What the trace says of the recording. */
static specrt_trace_info describe(const recording *r) {
    const eval_options *o = &r->options;
    specrt_trace_info info = {.n_vocab = r->models.info->n_logits,
                              .d_target = r->models.info->d_target,
                              .n_top = (int32_t)r->n_top,
                              .n_draft_top = (int32_t)r->n_draft_top,
                              .n_tree_top = (int32_t)r->n_tree_top,
                              .policy = specrt_policy_get_info(r->policy)->text,
                              .draft = o->sampled_drafts,
                              .temperature = (float)o->temperature,
                              .n_ids = sl_tokenizer_n_vocab(r->models.tok)};
    specrt_session_params params = models_session(&r->models, o, 0);
    info.tree = params.tree;
    info.terminators = sl_tokenizer_terminators(r->models.tok, &info.n_terminators);
    sl_tokenizer_fingerprint(r->models.tok, info.tokenizer_sha256);
    return info;
}

static specrt_status open_recorders(recording *r, specrt_error *err) {
    const eval_options *o = &r->options;
    recorder_params params = {.host = *decoder_host(r->lanes[0].decoder),
                              .whole = specrt_policy_get_info(r->full)->shortlist,
                              .markov = o->no_markov ? NULL : r->models.info->head.markov,
                              .info = describe(r),
                              .feeds_state = r->models.info->feeds_state,
                              .path = o->common.output,
                              .force = o->common.force};
    TRY(recorder_create(&params, &r->recorder, err));
    params.path = NULL;
    for (int i = 0; i < r->n_lanes; i++) {
        params.host = *decoder_host(r->lanes[i].decoder);
        TRY(recorder_create(&params, &r->lanes[i].recorder, err));
    }
    return SPECRT_STATUS_OK;
}

static specrt_status record(recording *r, specrt_error *err) {
    TRY(open_recording(r, err));
    TRY(open_recorders(r, err));
    TRY(record_all(r, err));
    TRY(recorder_commit(r->recorder, err));
    print_figures(r);
    return SPECRT_STATUS_OK;
}

static void close_recording(recording *r) {
    recorder_free(r->recorder);
    for (int i = 0; r->lanes && i < r->n_lanes; i++) {
        lane *l = &r->lanes[i];
        recorder_free(l->recorder);
        decoder_free(l->decoder);
        chat_free(l->chat);
        free(l->prompt.ids);
        free(l->answer.ids);
    }
    for (int i = 0; r->outcomes && i < r->prompts->n; i++) free_turns(&r->outcomes[i]);
    free(r->lanes);
    free(r->outcomes);
    specrt_policy_close(r->policy);
    specrt_policy_close(r->full);
    models_close(&r->models);
    eval_options_free(&r->options);
}

int record_main(int argc, char **argv) {
    prompt_list prompts = {0};
    recording r = {.options = {.max_tokens = 128},
                   .n_top = 10,
                   .n_draft_top = 64,
                   .n_tree_top = 8,
                   .n_turns = 1,
                   .prompts = &prompts};
    eval_options *o = &r.options;
    specrt_error err = {0};
    const cli_option options[] = {
        EVAL_TARGET(*o),
        EVAL_DRAFT(*o),
        sl_cli_flag("tree", &o->tree,
                    "draft EAGLE-2's tree, as by default: replay and plan can estimate only trees "
                    "within the recorded one"),
        EVAL_SHAPE(*o, "draft steps per cycle (6)", "branches per node; 1 drafts a chain (10)",
                   "nodes that the target verifies, with the root (60; a chain: num-steps + 1)"),
        sl_cli_strings("policy", "SPEC", &o->policies, "which tokens may be drafted (full)"),
        EVAL_PROMPTS(*o),
        EVAL_SAMPLING(*o),
        sl_cli_int("turns", "N", &r.n_turns, 1, 1 << 20,
                   "turns of a conversation at most, each recorded as a sequence whose prompt "
                   "repeats the turns before (1)"),
        sl_cli_heading("Trace"),
        sl_cli_int("top", "N", &r.n_top, 1, 1024, "record the target's N best tokens (10)"),
        sl_cli_int("draft-top", "N", &r.n_draft_top, 0, 1024,
                   "record the drafter's N best tokens (64)"),
        sl_cli_int(
            "tree-top", "N", &r.n_tree_top, 0, SPECRT_LOGITS_MAX_K,
            "record the target's N best tokens at every node, for windows with positions=tree (8)"),
        {0},
    };
    const cli_tool tool = {
        "specrt-eval record",
        "specrt-eval record --target target.gguf --draft draft.safetensors\n"
        "      --prompts questions.jsonl -o run.trace",
        "Decodes prompts and writes every cycle to a trace (docs/FORMAT.md): tree, emitted tokens, "
        "hidden states and best tokens of both models. cluster-build trains routers on traces, and "
        "specrt-eval replay estimates policies from them.",
        "specrt-eval record --target FILE --draft FILE --prompts FILE... -o FILE", options};
    int code = sl_cli_parse(&tool, argc, argv, &o->common, NULL);
    if (code >= 0) return code;
    specrt_status status = prompts_given(o, &prompts, &err);
    if (status == SPECRT_STATUS_OK) status = record(&r, &err);
    close_recording(&r);
    sl_prompts_free(&prompts);
    return status == SPECRT_STATUS_OK ? CLI_OK : sl_cli_fail(&err);
}
