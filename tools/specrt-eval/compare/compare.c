/* compare.c : specrt-eval compare. For each turn every policy decodes it in turn, in an order that
 * rotates, so that drift of the machine hits all alike; every token is checked against plain
 * decoding's. */
#include "compare.h"
#include "engine/backend/own.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/io.h"
#include "base/measure.h"
#include "base/memory.h"
#include "base/progress.h"

/* ---- ways ---- */

/* `full` scores the head where it lies; all else packs rows, and @head=TYPE copies it. */
static int64_t bytes_of(const eval_models *m, const compare_way *k) {
    const specrt_policy_info *info = specrt_policy_get_info(k->policy);
    bool copied = *eval_head_suffix(k->name) != 0;
    int64_t rows = (info->is_full ? 0 : info->bound) + (copied ? m->info->head.n_rows : 0);
    return rows * (int64_t)models_row_bytes(m, k->name);
}

/* Whether way i drafts as the last one does. */
static bool drafts_alike(const comparison *c, int i) {
    const compare_way *k = &c->ways[c->n_ways - 1], *other = &c->ways[i];
    return other->policy && other->alignment == k->alignment && !other->drafts.auto_draft &&
           !k->drafts.auto_draft &&
           eval_same_policy(other->policy, other->name, k->policy, k->name);
}

/* @return NULL: there is no memory */
static compare_way *add_row(comparison *c) {
    compare_way *k = (compare_way *)sl_more(&c->ways, (size_t)c->n_ways, sizeof *k);
    if (!k) return NULL;
    *k = (compare_way){.name = "plain"};
    c->n_ways++;
    return k;
}

static specrt_status add_one(comparison *c, const char *text, const alignment *a,
                             specrt_error *err) {
    compare_way *k = add_row(c);
    if (!k) return sl_error_no_memory_for(err, "the comparison");
    specrt_session_params params = models_session(&c->models, &c->options, 0);
    k->alignment = a;
    if (text)
        TRY(eval_open_drafts(&c->models, &c->options, &c->costs, text, &params, &k->drafts, err));
    k->policy = k->drafts.policy;
    if (text) snprintf(k->name, sizeof k->name, "%s", text);
    for (int i = FULL; text && i + 1 < c->n_ways; i++)
        if (drafts_alike(c, i)) {
            if (strcmp(c->ways[i].name, text) != 0 && !a)
                sl_cli_warn("policy %s: the same as %s, which is compared already; left out", text,
                            c->ways[i].name);
            eval_close_drafts(&k->drafts);
            c->n_ways--;
            return SPECRT_STATUS_OK;
        }
    if (text) k->bytes_extra = bytes_of(&c->models, k);
    if (a) TRY(compare_align_open(c, k, a, err));
    TRY(eval_decoder(&c->models, a ? k->sequence : c->models.sequences[0], text ? &k->drafts : NULL,
                     false, &params, &k->decoder, err));
    if (a)
        own_align(k->sequence, k->controller, decoder_session(k->decoder),
                  c->options.sampled_drafts);
    return SPECRT_STATUS_OK;
}

static specrt_status add_way(void *user, const char *text, specrt_error *err) {
    return add_one((comparison *)user, text, NULL, err);
}

/* Chains of the engine's own head, where it drafts by itself. */
static specrt_status add_own(comparison *c, specrt_error *err) {
    const specrt_session_params params = models_session(&c->models, &c->options, 0);
    const char *engine = c->models.info->engine;
    if (!c->models.info->has_own || c->options.sampled_drafts) return SPECRT_STATUS_OK;
    compare_way *k = add_row(c);
    if (!k) return sl_error_no_memory_for(err, "the comparison");
    snprintf(k->name, sizeof k->name, "%.*s's own draft", (int)strcspn(engine, " "), engine);
    k->is_own = true;
    return eval_decoder(&c->models, c->models.sequences[0], NULL, true, &params, &k->decoder, err);
}

/* As it is, and with drafters that learn. */
static specrt_status add_given(void *user, const char *text, specrt_error *err) {
    comparison *c = (comparison *)user;
    TRY(add_one(c, text, NULL, err));
    bool learns = !auto_is_named(text) && !*eval_head_suffix(text);
    for (int i = 0; learns && i < c->n_alignments; i++)
        TRY(add_one(c, text, &c->alignments[i], err));
    return SPECRT_STATUS_OK;
}

static specrt_status add_ways(comparison *c, specrt_error *err) {
    const cli_list *given = &c->options.policies;
    TRY(add_way(c, NULL, err));
    TRY(add_way(c, "full", err));
    TRY(add_own(c, err));
    if (given->n == 0) return add_given(c, "microspec", err);
    return each_policy(given, add_given, c, err);
}

/* ---- one turn ---- */

static int domain_of(comparison *c, const char *name) {
    for (int i = 0; i < c->n_domains; i++)
        if (strcmp(c->domains[i], name) == 0) return i;
    char **domain = (char **)sl_more(&c->domains, (size_t)c->n_domains, sizeof *domain);
    return domain && (*domain = strdup(name)) ? c->n_domains++ : -1;
}

static specrt_status reserve_turn(comparison *c, specrt_error *err) {
    if (c->n_turns < c->capacity) return SPECRT_STATUS_OK;
    c->capacity = 2 * c->capacity + 64;
    for (int i = 0; i < c->n_ways; i++) {
        compare_way *k = &c->ways[i];
        turn_sample *grown =
            (turn_sample *)realloc(k->samples, (size_t)c->capacity * sizeof *k->samples);
        if (!grown) return sl_error_no_memory_for(err, "the comparison");
        k->samples = grown;
    }
    return SPECRT_STATUS_OK;
}

/* What a session would have counted of the engine's own chains. */
static void count_own(const comparison *c, compare_way *k) {
    const specrt_head_desc *head = &c->models.info->head;
    const id_list *answer = &k->result.tokens;
    specrt_session_stats *s = &k->result.stats;
    const decoder_cycle *cycles;
    size_t at = 0; /* of a cycle's root in the answer */
    s->n_cycles = decoder_cycles(k->decoder, &cycles);
    for (int64_t i = 0; i < s->n_cycles; i++) {
        const decoder_cycle *chain = &cycles[i];
        size_t n = 1;
        while (n < (size_t)chain->n && at + n < answer->n &&
               chain->tokens[n] == answer->ids[at + n])
            n++;
        at += n;
        s->n_by_length[n]++;
        s->n_passes += chain->n - 1;
        s->n_rows += chain->n > 1 ? head->n_rows : 0;
    }
    s->n_emitted = s->n_covered = (int64_t)at;
    s->n_bytes = s->n_passes * head->n_rows * (int64_t)specrt_row_bytes(head->dtype, head->n_cols);
}

/* When a short answer would have ended. */
static void note_tokens(void *user, const int32_t *tokens, int32_t n) {
    compare_way *k = (compare_way *)user;
    const double now = sl_measure_seconds();
    (void)tokens;
    if (k->n_seen == 0) k->first_at = now;
    if (k->n_seen < k->short_tokens && k->n_seen + n >= k->short_tokens)
        k->seconds_short = now - k->first_at;
    k->n_seen += n;
}

/* Of the rounds that one counts whose request was the shortest. */
static void take_sample(comparison *c, compare_way *k, int domain, size_t n_prompt, int64_t round) {
    const id_list *tokens = &k->result.tokens;
    turn_sample *to = &k->samples[c->n_turns];
    turn_sample s = {.domain = domain,
                     .prompt = c->prompt,
                     .n_prompt = (int64_t)n_prompt,
                     .n_tokens = (int64_t)tokens->n,
                     .n_loop = loop_tokens(tokens->ids, tokens->n),
                     .seconds = k->result.seconds,
                     .seconds_short = k->seconds_short > 0 ? k->seconds_short : k->result.seconds,
                     .times = k->result.times,
                     .stats = k->result.stats};
    watch_end(k, &s);
    compare_align_end(k, &s.align);
    if (round == 0 || s.seconds + s.times.prefill < to->seconds + to->times.prefill) *to = s;
}

static specrt_status run_round(comparison *c, const specrt_request *request, const id_list *ids,
                               int domain, int64_t round, specrt_error *err) {
    for (int i = 0; i < c->n_ways; i++) {
        compare_way *k = &c->ways[(i + c->n_turns + round) % c->n_ways];
        watch_begin(c, k);
        compare_align_begin(k, request->max_tokens < c->options.max_tokens);
        k->short_tokens = c->short_tokens;
        k->seconds_short = 0, k->n_seen = 0;
        TRY(run_prompt(&c->models, k->decoder, request, ids, note_tokens, k, &k->result, err));
        if (k->is_own) count_own(c, k);
        take_sample(c, k, domain, ids->n, round);
    }
    return SPECRT_STATUS_OK;
}

static specrt_status run_turn(comparison *c, const id_list *prompt_ids, int domain, bool warm_up,
                              specrt_error *err) {
    const specrt_sampling sampling = eval_sampling(&c->options, c->prompt, c->turn);
    const bool keeps = c->stream || (c->turn > 0 && c->remembers);
    const specrt_request request = {.begin = keeps ? SPECRT_BEGIN_TURN : SPECRT_BEGIN_NEW,
                                    .max_tokens = warm_up ? 8 : c->options.max_tokens,
                                    .sampling = &sampling};
    const id_list *plain = &c->ways[PLAIN].result.tokens;
    TRY(reserve_turn(c, err));
    for (int64_t round = 0; round < (warm_up ? 1 : c->rounds); round++)
        TRY(run_round(c, &request, prompt_ids, domain, round, err));
    for (int i = 1; i < c->n_ways && !warm_up; i++)
        TRY(compare_check(c, &c->ways[i], prompt_ids, c->domains[domain], err));
    c->since += (int64_t)plain->n;
    c->n_turns += !warm_up && compare_is_answered(c);
    c->n_unanswered += !warm_up && !compare_is_answered(c);
    return SPECRT_STATUS_OK;
}

/* Later turns see the answer to the earlier ones; every policy gives the same. */
static specrt_status run_one(comparison *c, const prompt *p, id_list *ids, bool warm_up,
                             specrt_error *err) {
    int domain = domain_of(c, p->domain);
    if (domain < 0) return sl_error_no_memory_for(err, "the comparison");
    TRY(chat_prompt(c->chat, p, ids));
    if (!warm_up && c->stream && c->domain >= 0 && c->domain != domain) watch_change(c);
    if (!warm_up) c->domain = domain;
    c->turn = 0;
    TRY(run_turn(c, ids, domain, warm_up, err));
    const id_list *answer = &c->ways[PLAIN].result.tokens;
    while (++c->turn < p->n_turns && !warm_up) {
        TRY(ids_append(ids, answer->ids, (int32_t)answer->n));
        TRY(chat_answered(c->chat, ids));
        TRY(chat_user(c->chat, p->turns[c->turn], ids));
        TRY(run_turn(c, ids, domain, false, err));
    }
    return SPECRT_STATUS_OK;
}

static specrt_status run_all(comparison *c, specrt_error *err) {
    prompt_list *prompts = &c->prompts;
    id_list ids = {0};
    progress bar;
    specrt_status status = run_one(c, &prompts->items[0], &ids, true, err);
    if (status == SPECRT_STATUS_BAD_INPUT && prompts->n > 1) status = SPECRT_STATUS_OK;
    c->n_compared = 0;
    sl_progress_begin(&bar, c->options.common.progress, "compare", "prompts", (uint64_t)prompts->n);
    for (int i = 0; status == SPECRT_STATUS_OK && i < prompts->n; i++) {
        c->prompt = i;
        status = run_one(c, &prompts->items[i], &ids, false, err);
        sl_progress_update(&bar, (uint64_t)i + 1);
        if (status == SPECRT_STATUS_BAD_INPUT &&
            sl_prompts_pass_over(prompts, &prompts->items[i], err))
            status = SPECRT_STATUS_OK;
        else if (status == SPECRT_STATUS_OK)
            chat_announce(c->chat);
    }
    sl_progress_end(&bar);
    free(ids.ids);
    return status == SPECRT_STATUS_OK
               ? sl_prompts_account(prompts, c->n_turns + c->n_unanswered, err)
               : status;
}

/* ---- the verb ---- */

static specrt_status check_memory(comparison *c, specrt_error *err) {
    const char *asked = c->memory ? c->memory : "off";
    c->remembers = strcmp(asked, "conversation") == 0;
    if (!c->remembers && strcmp(asked, "off") != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--memory: expected off or conversation, found '%s'", asked);
    if (c->remembers && c->stream)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "--memory conversation: expected no --stream, which keeps all state");
    if (c->rounds > 1 && (c->remembers || c->stream || c->align.list))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--rounds: expected no --stream, --memory and --align, whose later "
                                "rounds would know the answers");
    return SPECRT_STATUS_OK;
}

/* A table of nothing is no comparison. */
static specrt_status check_unanswered(const comparison *c, specrt_error *err) {
    char why[256];
    if (c->n_unanswered == 0) return SPECRT_STATUS_OK;
    snprintf(why, sizeof why,
             "nothing was decoded for %d of %d turns, where the answer's first token ends it; try "
             "other prompts or --chat-template",
             c->n_unanswered, c->n_unanswered + c->n_turns);
    if (c->n_turns == 0) return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s", why);
    sl_cli_warn("%s", why);
    return SPECRT_STATUS_OK;
}

static specrt_status compare(comparison *c, specrt_error *err) {
    eval_options *o = &c->options;
    if (!o->draft || strcmp(o->draft, "none") == 0)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "expected --draft FILE, an EAGLE head, an MTP module or a small GGUF");
    TRY(eval_choose_tree(o, false, err));
    if (c->report) TRY(sl_out_check(c->report, o->common.force, err));
    if (o->common.output) TRY(sl_out_check(o->common.output, o->common.force, err));
    TRY(check_memory(c, err));
    TRY(compare_align_check(c, err));
    TRY(models_open(o, 1, &c->models, err));
    TRY(chat_create(o, c->models.tok, &c->chat, err));
    TRY(add_ways(c, err));
    TRY(run_all(c, err));
    for (int i = 0; i < c->n_ways; i++)
        if (c->ways[i].controller) engine_controller_finish(c->ways[i].controller);
    TRY(compare_align_save(c, err));
    TRY(check_unanswered(c, err));
    TRY(compare_decide(c, err));
    if (o->common.json)
        compare_print_json(c);
    else
        compare_print_table(c);
    if (o->common.output) TRY(compare_write_json(c, o->common.output, o->common.force, err));
    return c->report ? compare_write_report(c, c->report, o->common.force, err) : SPECRT_STATUS_OK;
}

static void close_comparison(comparison *c) {
    for (int i = 0; i < c->n_ways; i++) {
        compare_way *k = &c->ways[i];
        decoder_free(k->decoder);
        compare_align_close(k);
        eval_close_drafts(&k->drafts);
        free(k->result.tokens.ids);
        free(k->samples);
        free(k->watch.lengths);
    }
    compare_free_verdict(&c->verdict);
    for (int i = 0; i < c->n_domains; i++) free(c->domains[i]);
    free((void *)c->domains);
    free(c->ways);
    free(c->splits);
    chat_free(c->chat);
    sl_prompts_free(&c->prompts);
    models_close(&c->models);
    eval_options_free(&c->options);
}

/* clang-format off */
#define COMPARE_POLICIES(c) \
    sl_cli_strings("policy", "SPEC", &(c).options.policies, \
     "repeat, or a comma list; full is always added (microspec); auto, or auto+SPEC, chooses the " \
     "number of draft steps and rows by their cost; SPEC@head=q4_0 or q8_0 scores a copy of the " \
     "head in that type"), \
    sl_cli_string("costs", "FILE", &(c).costs.file, \
     "costs for auto, from specrt-eval plan --costs-out (default: measured)"), \
    sl_cli_int("rounds", "N", &(c).rounds, 1, 1000, \
     "decode each turn N times; the fastest counts (1)"), \
    sl_cli_int("short", "N", &(c).short_tokens, 1, INT32_MAX, \
     "--json: also whole requests whose answers end at N tokens (off)")
#define COMPARE_KEEPS(c) \
    sl_cli_flag("stream", &(c).stream, \
     "keep learned state from one prompt to the next, which shows the effect of changes of domain"), \
    sl_cli_string("memory", "SCOPE", &(c).memory, \
     "conversation: keep learned state from one turn to the next (off)")
/* clang-format on */

int compare_main(int argc, char **argv) {
    comparison c = {.options = {.max_tokens = 128, .takes_auto = true, .takes_heads = true},
                    .rounds = 1,
                    .domain = -1};
    eval_options *o = &c.options;
    specrt_error err = {0};
    const cli_option options[] = {
        EVAL_TARGET(*o),
        EVAL_DRAFT(*o),
        EVAL_CHAIN(*o,
                   "draft steps per cycle, or tokens of a block (3; auto: at most 6; of a tree 6)"),
        COMPARE_POLICIES(c),
        EVAL_PROMPTS(*o),
        COMPARE_KEEPS(c),
        EVAL_SAMPLING(*o),
        sl_cli_heading("Alignment"),
        sl_cli_string("align", "SPEC", &c.align.list,
                      "lora, lora-paper (EvoSpec) or osd: run each policy once more with a drafter "
                      "that learns; "
                      "a comma list, with settings as in lora@rate=1e-4@beta=0, which the README "
                      "lists (off)"),
        sl_cli_flag("align-async", &c.align.async,
                    "train on a thread of its own; drafts then differ from run to run"),
        sl_cli_string("align-load", "FILE", &c.align.load, "start with this adapter or head"),
        sl_cli_string("align-save", "FILE", &c.align.save,
                      "save the trained adapter or head; expects one --policy"),
        sl_cli_heading("Output"),
        sl_cli_flag("lists", &c.lists,
                    "print how much of the target's mass, and of its best tokens, the lists cover"),
        sl_cli_string("report", "FILE", &c.report, "write an HTML page with plots"),
        {0},
    };
    const cli_tool tool = {
        "specrt-eval compare",
        "specrt-eval compare --target target.gguf --draft draft.safetensors --bundle model.specb\n"
        "      --policy static,microspec --prompts questions.jsonl",
        "Decodes every prompt plainly and under each policy, in turns, and checks that all give "
        "the same tokens.\n\n"
        "accept   tokens per cycle, with the target's own token; mean over all cycles\n"
        "covered  emitted tokens that could have been drafted\n"
        "rows     number of LM-head rows scored per draft step\n"
        "draft    ms per cycle in the drafter's layer\n"
        "head     ms per cycle in products with rows of the head, and their ranking\n"
        "target   ms per cycle in the target's pass over the draft\n"
        "verify   ms per cycle in drawing tokens\n"
        "update   ms per cycle in learning and packing\n"
        "tok/s    tokens per second without the prompt, mean over turns; x plain and x full are\n"
        "         ratios of such means\n"
        "x whole  plain decoding's time of all requests, prompts included, beside the policy's;\n"
        "         the verdict below the table goes by this\n"
        "% full   accept length as a share of the full vocabulary's\n"
        "worst    the lowest such share of a task (domain, category or task of the prompts).\n"
        "         Policies are recommended by it, so give prompts that no list or sketch was\n"
        "         made from\n\n"
        "-o writes what --json prints to a file, beside the table.",
        "specrt-eval compare --target FILE --draft FILE --policy SPEC... --prompts FILE...",
        options};
    int code = sl_cli_parse(&tool, argc, argv, &o->common, NULL);
    if (code >= 0) return code;
    specrt_status status = prompts_given(o, &c.prompts, &err);
    if (status == SPECRT_STATUS_OK) status = compare(&c, &err);
    if (status == SPECRT_STATUS_OK && c.diverged)
        status = specrt_error_set(&err, SPECRT_STATUS_IO, "%s", c.divergence);
    close_comparison(&c);
    return status == SPECRT_STATUS_OK ? CLI_OK : sl_cli_fail(&err);
}
