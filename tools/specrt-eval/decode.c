/* decode.c : specrt-eval decode. Answers stream to stdout as they are written; figures follow. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "shared/eval.h"
#include "base/error.h"
#include "base/json.h"
#include "base/parallel.h"
#include "base/text.h"

typedef struct decoding {
    eval_options options;
    eval_models models;
    eval_costs costs; /* of auto */
    eval_drafts drafts;
    specrt_session_params params;
    char no_drafts
        [SPECRT_COSTS_LINE]; /* why auto decodes plainly; empty: it drafts, or was not asked for */
    decoder *decoder;
    chat *chat;
    prompt_list prompts;
    id_list prompt;
    run_result result, total;
    int n_turns, n_unanswered; /* the latter: whose answer ends with its first token */
    text_stream text;
    json_object *answers; /* of --json */
} decoding;

static void put_text(void *user, const int32_t *tokens, int32_t n) {
    decoding *run = (decoding *)user;
    if (run->options.common.json) return;
    text_stream_put(&run->text, tokens, n);
    fflush(stdout);
}

static void add_result(decoding *run) {
    run_result *sum = &run->total;
    sum->tokens.n += run->result.tokens.n;
    sum->seconds += run->result.seconds;
    run_add_times(&sum->times, &run->result.times);
    run_add_stats(&sum->stats, &run->result.stats, 1);
    run->n_turns++;
    run->n_unanswered += run->result.tokens.n == 1 && run->options.max_tokens > 1;
}

/* {"text": ..., "ids": [...]} */
static void put_answer(decoding *run) {
    const id_list *tokens = &run->result.tokens;
    json_object *o = json_object_new_object();
    char *text = text_of(run->models.tok, tokens);
    sl_json_put(o, "text", sl_json_text(text));
    sl_json_put(o, "ids", sl_json_ids(tokens->ids, tokens->n));
    json_object_array_add(run->answers, o);
    free(text);
}

static specrt_status begin_conversation(decoding *run, int number, const char *system,
                                        specrt_error *err) {
    const eval_options *o = &run->options;
    run->params.sampling = eval_sampling(o, number, 0);
    if (run->decoder && run->drafts.by_clock) run->drafts.clock = *decoder_clock(run->decoder);
    decoder_free(run->decoder);
    run->decoder = NULL;
    TRY(eval_decoder(&run->models, run->models.sequences[0],
                     run->drafts.policy ? &run->drafts : NULL, false, &run->params, &run->decoder,
                     err));
    return chat_begin(run->chat, system, &run->prompt);
}

/* The answer joins the conversation as the target wrote it, token for token. */
static specrt_status answer(decoding *run, specrt_error *err) {
    const specrt_request request = {.max_tokens = run->options.max_tokens};
    TRY(run_prompt(&run->models, run->decoder, &request, &run->prompt, put_text, run, &run->result,
                   err));
    if (run->options.common.json) {
        put_answer(run);
    } else {
        text_stream_end(&run->text);
        putchar('\n');
        fflush(stdout);
    }
    chat_announce(run->chat);
    add_result(run);
    TRY(ids_append(&run->prompt, run->result.tokens.ids, (int32_t)run->result.tokens.n));
    return chat_answered(run->chat, &run->prompt);
}

static specrt_status answer_prompt(decoding *run, const prompt *p, int number, bool show,
                                   specrt_error *err) {
    TRY(begin_conversation(run, number, p->system, err));
    if (p->n_ids) {
        TRY(chat_prompt(run->chat, p, &run->prompt));
        return answer(run, err);
    }
    for (int i = 0; i < p->n_turns; i++) {
        if (show) printf("> "), sl_text_lines(p->turns[i], stdout);
        TRY(chat_user(run->chat, p->turns[i], &run->prompt));
        TRY(answer(run, err));
    }
    return SPECRT_STATUS_OK;
}

static specrt_status answer_all(decoding *run, specrt_error *err) {
    prompt_list *prompts = &run->prompts;
    specrt_status status = prompts_of(&run->options, prompts, err);
    bool show = prompts->n > 1 && !run->options.common.json;
    for (int i = 0; status == SPECRT_STATUS_OK && i < prompts->n; i++) {
        status = answer_prompt(run, &prompts->items[i], i, show, err);
        if (status == SPECRT_STATUS_BAD_INPUT &&
            sl_prompts_pass_over(prompts, &prompts->items[i], err))
            status = SPECRT_STATUS_OK;
    }
    return status == SPECRT_STATUS_OK ? sl_prompts_account(prompts, run->n_turns, err) : status;
}

/* A line is a turn of one conversation; an empty line begins a new one. */
static specrt_status converse(decoding *run, specrt_error *err) {
    bool terminal = isatty(STDIN_FILENO), fresh = true;
    specrt_status status = SPECRT_STATUS_OK;
    char *line = NULL;
    size_t capacity = 0;
    int number = 0;
    while (status == SPECRT_STATUS_OK) {
        if (terminal) fprintf(stderr, fresh ? "> " : ">> ");
        ssize_t n = getline(&line, &capacity, stdin);
        if (n < 0) break;
        if (n && line[n - 1] == '\n') line[--n] = '\0';
        if (n == 0) fresh = true;
        if (n == 0) continue;
        if (fresh) status = begin_conversation(run, number++, NULL, err);
        fresh = false;
        if (status == SPECRT_STATUS_OK) status = chat_user(run->chat, line, &run->prompt);
        if (status == SPECRT_STATUS_OK) status = answer(run, err);
    }
    free(line);
    return status;
}

/* ---- figures ---- */

static const char *policy_name(const decoding *run, char out[EVAL_CANONICAL]) {
    const cli_list *given = &run->options.policies;
    if (!run->drafts.policy) return "plain";
    return eval_policy_text(run->drafts.policy, given->n ? given->items[0] : "", out);
}

/* What decided, by the clock, and what came of it. @return whether the clock did */
static bool explain_auto(const decoding *run, specrt_auto_stats *stats,
                         char line[SPECRT_COSTS_TEXT]) {
    if (!run->drafts.by_clock) return false;
    specrt_auto_get_stats(run->drafts.auto_draft, stats);
    specrt_clock_explain(decoder_clock(run->decoder), stats, line);
    return true;
}

/* What auto did: {"drafting", "n_cycles", ..., "note"}; nothing for other policies. */
static void put_auto(const decoding *run, json_object *to) {
    char line[SPECRT_COSTS_TEXT];
    specrt_auto_stats s = {.n_cycles = 0};
    bool off = run->no_drafts[0];
    if (!explain_auto(run, &s, line) && !off) return;
    json_object *o = json_object_new_object();
    sl_json_put(to, "auto", o);
    sl_json_put(o, "drafting", json_object_new_boolean(s.n_plain < s.n_cycles));
    sl_json_put(o, "n_cycles", sl_json_whole((uint64_t)s.n_cycles));
    sl_json_put(o, "n_plain", sl_json_whole((uint64_t)s.n_plain));
    sl_json_put(o, "n_drafted", sl_json_whole((uint64_t)s.n_passes));
    sl_json_put(o, "n_accepted", sl_json_whole((uint64_t)(s.n_emitted - s.n_cycles)));
    sl_json_put(o, "estimated_speedup_plain",
                sl_json_real(s.cost > 0 ? (double)s.n_emitted / s.cost : 1));
    sl_json_put(o, "note", sl_json_text(off ? run->no_drafts : line));
}

static void print_json(const decoding *run) {
    const run_result *t = &run->total;
    const specrt_session_stats *s = &t->stats;
    double cycles = s->n_cycles ? (double)s->n_cycles : 1;
    json_object *o = json_object_new_object();
    char name[EVAL_CANONICAL];
    sl_json_put(o, "policy", sl_json_text(policy_name(run, name)));
    sl_json_put(o, "answers", json_object_get(run->answers));
    sl_json_put(o, "n_turns", sl_json_whole((uint64_t)run->n_turns));
    sl_json_put(o, "n_tokens", sl_json_whole(t->tokens.n));
    sl_prompts_put_json(&run->prompts, o);
    chat_put_json(run->chat, o);
    sl_json_put(o, "seconds", sl_json_real(t->seconds));
    sl_json_put(o, "prefill_seconds", sl_json_real(t->times.prefill));
    sl_json_put(o, "tokens_per_second", sl_json_real((double)t->tokens.n / t->seconds));
    sl_json_put(o, "n_cycles", sl_json_whole((uint64_t)s->n_cycles));
    put_auto(run, o);
    if (run->drafts.policy) {
        sl_json_put(o, "accept_length", sl_json_real((double)s->n_emitted / cycles));
        sl_json_put(o, "coverage",
                    sl_json_real(s->n_emitted ? (double)s->n_covered / (double)s->n_emitted : 0));
        sl_json_put(o, "shortlist_rows", sl_json_real((double)s->n_rows / cycles));
    }
    sl_json_print(o);
}

static void print_figures(const decoding *run) {
    const run_result *t = &run->total;
    const specrt_session_stats *s = &t->stats;
    char line[SPECRT_COSTS_TEXT];
    specrt_auto_stats stats;
    if (t->tokens.n == 0) return;
    if (explain_auto(run, &stats, line)) sl_cli_info("%s", line);
    sl_cli_info("%s tokens in %.2f s, %.1f tokens/s; prompts %.2f s", sl_text_count(t->tokens.n),
                t->seconds, (double)t->tokens.n / t->seconds, t->times.prefill);
    if (s->n_cycles == 0) return;
    double n = (double)s->n_cycles;
    char name[EVAL_CANONICAL];
    sl_cli_info("%s: accept length %.2f, %.1f%% covered, %.0f shortlist rows",
                policy_name(run, name), (double)s->n_emitted / n,
                100.0 * (double)s->n_covered / (double)s->n_emitted, (double)s->n_rows / n);
    sl_cli_info("ms per cycle: draft %.2f, head %.2f, target %.2f, verify %.2f, update %.2f",
                t->times.draft * 1e3 / n, t->times.head * 1e3 / n, t->times.target * 1e3 / n,
                t->times.verify * 1e3 / n, t->times.update * 1e3 / n);
}

/* ---- the verb ---- */

/* An answer without drafts is one too where auto is asked for, which may choose that. Of the target's own
 * faults nothing is made. */
static bool is_optional(const eval_options *o, const eval_costs *c, const specrt_error *err) {
    return o->policies.n > 0 && auto_is_named(o->policies.items[0]) && !c->file &&
           strncmp(err->msg, "target: ", 8) != 0 && err->status != SPECRT_STATUS_NO_MEMORY;
}

static void decode_plainly(decoding *run, const specrt_error *why) {
    snprintf(run->no_drafts, sizeof run->no_drafts, "drafting off: %s; plain decoding", why->msg);
}

static specrt_status open_models(decoding *run, specrt_error *err) {
    eval_options alone = run->options;
    specrt_error why = {0};
    specrt_status status = models_open(&run->options, 1, &run->models, err);
    if (status == SPECRT_STATUS_OK || !is_optional(&run->options, &run->costs, err)) return status;
    alone.draft = NULL;
    alone.policies.n = 0;
    if (models_open(&alone, 1, &run->models, &why) != SPECRT_STATUS_OK) return status;
    decode_plainly(run, err);
    return SPECRT_STATUS_OK;
}

static specrt_status open_drafts(decoding *run, specrt_error *err) {
    const eval_options *o = &run->options;
    specrt_status status = eval_open_drafts(&run->models, o, &run->costs,
                                            o->policies.n ? o->policies.items[0] : "microspec",
                                            &run->params, &run->drafts, err);
    if (status == SPECRT_STATUS_UNSUPPORTED && is_optional(o, &run->costs, err)) {
        decode_plainly(run, err);
        return SPECRT_STATUS_OK;
    }
    TRY(status);
    if (run->drafts.by_clock && specrt_clock_hopeless(&run->drafts.clock, run->no_drafts))
        eval_close_drafts(&run->drafts);
    return SPECRT_STATUS_OK;
}

static void warn_unanswered(const decoding *run) {
    if (run->n_unanswered == 0) return;
    sl_cli_warn("nothing was decoded for %d of %d prompts, where the answer's first token ends it; "
                "try another prompt or --chat-template",
                run->n_unanswered, run->n_turns);
}

static specrt_status open_run(decoding *run, specrt_error *err) {
    eval_options *o = &run->options;
    if (o->policies.n > 1 || (o->policies.n && strchr(o->policies.items[0], ',')))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--policy: expected one, found more; compare takes several");
    TRY(eval_choose_tree(o, false, err));
    TRY(open_models(run, err));
    run->params = models_session(&run->models, o, 0);
    if (run->models.head) TRY(open_drafts(run, err));
    if (run->no_drafts[0]) sl_cli_warn("%s", run->no_drafts);
    run->text = (text_stream){.tok = run->models.tok, .f = stdout};
    TRY(chat_create(o, run->models.tok, &run->chat, err));
    return begin_conversation(run, 0, NULL,
                              err); /* what it refuses is known before anything is read */
}

static void close_run(decoding *run) {
    decoder_free(run->decoder);
    eval_close_drafts(&run->drafts);
    json_object_put(run->answers);
    chat_free(run->chat);
    models_close(&run->models);
    sl_prompts_free(&run->prompts);
    free(run->prompt.ids);
    free(run->result.tokens.ids);
    eval_options_free(&run->options);
}

int decode_main(int argc, char **argv) {
    decoding run = {.options = {.max_tokens = 128, .takes_auto = true, .takes_heads = true}};
    eval_options *o = &run.options;
    specrt_error err = {0};
    const cli_option options[] = {
        EVAL_TARGET(*o),
        EVAL_DRAFT(*o),
        EVAL_CHAIN(*o,
                   "draft steps per cycle, or tokens of a block (3; auto: at most 6; of a tree 6)"),
        sl_cli_strings("policy", "SPEC", &o->policies,
                       "which tokens may be drafted (microspec); auto, or auto+SPEC, chooses how "
                       "many draft steps by their cost, or decodes plainly"),
        sl_cli_string("costs", "FILE", &run.costs.file,
                      "costs for auto, from specrt-eval plan --costs-out (default: measured)"),
        sl_cli_real("draft-p-min", "P", &o->p_min, 0, 1,
                    "end a draft where its best path is less probable (0)"),
        EVAL_PROMPTS(*o),
        EVAL_SAMPLING(*o),
        {0},
    };
    const cli_tool tool = {
        "specrt-eval decode",
        "specrt-eval decode --target target.gguf --draft draft.safetensors --prompt 'What is a "
        "heap?'",
        "Writes answers as they are decoded, then accept length, coverage and times. Without "
        "--prompt and --prompts, each line of stdin is a turn of a conversation, and an empty line "
        "begins a new conversation. Without --draft, the target decodes plainly; the tokens are "
        "the same.",
        "specrt-eval decode --target FILE [--draft FILE] [--policy SPEC] [--prompt TEXT]", options};
    int code = sl_cli_parse(&tool, argc, argv, &o->common, NULL);
    if (code >= 0) return code;
    run.answers = json_object_new_array();
    specrt_status status = open_run(&run, &err);
    if (status == SPECRT_STATUS_OK)
        status = o->texts.n || o->prompts.n ? answer_all(&run, &err) : converse(&run, &err);
    if (status == SPECRT_STATUS_OK) warn_unanswered(&run);
    if (status == SPECRT_STATUS_OK && o->common.json) print_json(&run);
    if (status == SPECRT_STATUS_OK && !o->common.json) print_figures(&run);
    close_run(&run);
    return status == SPECRT_STATUS_OK ? CLI_OK : sl_cli_fail(&err);
}
