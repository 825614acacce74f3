/* generate.c : specrt-eval generate. The target alone writes answers: text that calibration should
 * count, since it is what will be drafted. Prompts are shared out over the cores, an engine of one
 * thread each; the output is in the prompts' order and the same for any number of threads. */
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include "shared/eval.h"
#include "base/error.h"
#include "base/io.h"
#include "base/json.h"
#include "base/measure.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/text.h"

typedef struct generation {
    eval_options options;
    bool with_ids;
    eval_models models;
    prompt_list prompts;
    chat **chats;         /* [threads] */
    decoder **decoders;   /* [threads], over a sequence each */
    char **lines;         /* [n] JSON, owned */
    specrt_error *errors; /* [n] */
    progress bar;
    int64_t n_done, n_tokens;
    pthread_mutex_t lock;
} generation;

static char *line_of(const generation *g, const prompt *p, const id_list *tokens) {
    char *text = text_of(g->models.tok, tokens);
    if (!text) return NULL;
    json_object *o = json_object_new_object();
    if (p->n_turns) sl_json_put(o, "prompt", sl_json_text(p->turns[0]));
    sl_json_put(o, "output", sl_json_text(text));
    sl_json_put(o, "domain", sl_json_text(p->domain));
    if (g->with_ids) {
        sl_json_put(o, "ids", sl_json_ids(tokens->ids, tokens->n));
        sl_json_put(o, "n_tokens", sl_json_whole(tokens->n));
        sl_json_put(o, "n_loop", sl_json_whole((uint64_t)loop_tokens(tokens->ids, tokens->n)));
    }
    free(text);
    return sl_json_to_text(o);
}

static specrt_status generate(generation *g, int64_t i, int worker, run_result *result,
                              id_list *ids, specrt_error *err) {
    const eval_options *o = &g->options;
    const prompt *p = &g->prompts.items[i];
    const specrt_sampling sampling = eval_sampling(o, (int)i, 0);
    const specrt_request request = {.max_tokens = o->max_tokens, .sampling = &sampling};
    TRY(chat_prompt(g->chats[worker], p, ids));
    TRY(run_prompt(&g->models, g->decoders[worker], &request, ids, NULL, NULL, result, err));
    g->lines[i] = line_of(g, p, &result->tokens);
    return g->lines[i] ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "an answer");
}

static void generate_task(void *arg, int64_t i, int worker) {
    generation *g = (generation *)arg;
    run_result result = {0};
    id_list ids = {0};
    generate(g, i, worker, &result, &ids, &g->errors[i]);
    pthread_mutex_lock(&g->lock);
    g->n_tokens += (int64_t)result.tokens.n;
    sl_progress_update(&g->bar, (uint64_t)++g->n_done);
    pthread_mutex_unlock(&g->lock);
    free(result.tokens.ids);
    free(ids.ids);
}

/* A prompt that cannot be answered (longer than the context) is passed over; what the machine fails at
 * ends the run, or the file would depend on it. */
static specrt_status write_lines(generation *g, out_file *out, int *n_written, specrt_error *err) {
    for (int i = 0; i < g->prompts.n; i++) {
        const prompt *p = &g->prompts.items[i];
        const specrt_error *failure = &g->errors[i];
        if (!g->lines[i] && failure->status == SPECRT_STATUS_BAD_INPUT &&
            sl_prompts_pass_over(&g->prompts, p, failure))
            continue;
        if (!g->lines[i])
            return specrt_error_set(err, failure->status, "%.80s: %.400s", p->place, failure->msg);
        TRY(sl_out_write(out, g->lines[i], strlen(g->lines[i]), err));
        TRY(sl_out_write(out, "\n", 1, err));
        ++*n_written;
    }
    return sl_prompts_account(&g->prompts, *n_written, err);
}

static specrt_status prepare(generation *g, specrt_error *err) {
    int threads = (int)g->options.common.threads;
    size_t n = (size_t)g->prompts.n;
    if (threads > g->prompts.n) threads = g->prompts.n;
    TRY(sl_new(&g->chats, (size_t)threads, sizeof *g->chats, "prompts", err));
    TRY(sl_new(&g->decoders, (size_t)threads, sizeof *g->decoders, "prompts", err));
    TRY(sl_new(&g->lines, n, sizeof *g->lines, "prompts", err));
    TRY(sl_new(&g->errors, n, sizeof *g->errors, "prompts", err));
    TRY(models_open(&g->options, threads, &g->models, err));
    specrt_session_params params = models_session(&g->models, &g->options, 0);
    for (int i = 0; i < g->models.n_sequences; i++) {
        TRY(chat_create(&g->options, g->models.tok, &g->chats[i], err));
        TRY(models_decoder(&g->models, g->models.sequences[i], NULL, &params, &g->decoders[i],
                           err));
    }
    return SPECRT_STATUS_OK;
}

/* The answers themselves are the JSON on stdout where no file takes them. */
static specrt_status print_json(const generation *g, int n_written, double seconds,
                                specrt_error *err) {
    json_object *o = json_object_new_object();
    sl_json_put(o, "n_prompts", sl_json_whole((uint64_t)g->prompts.n));
    sl_json_put(o, "n_answers", sl_json_whole((uint64_t)n_written));
    sl_json_put(o, "n_tokens", sl_json_whole((uint64_t)g->n_tokens));
    sl_json_put(o, "seconds", sl_json_real(seconds));
    sl_prompts_put_json(&g->prompts, o);
    chat_put_json(g->chats[0], o);
    return sl_cli_print_json(sl_json_to_text(o), err);
}

static specrt_status run(generation *g, specrt_error *err) {
    const eval_options *o = &g->options;
    const char *path = o->common.output ? o->common.output : "-";
    out_file out;
    int n_written = 0;
    TRY(prompts_given(o, &g->prompts, err));
    TRY(prepare(g, err));
    TRY(sl_out_open(&out, path, o->common.force, err));
    double began = sl_measure_seconds();
    sl_progress_begin(&g->bar, o->common.progress, "generate", "prompts", (uint64_t)g->prompts.n);
    sl_parallel_for(g->models.n_sequences, g->prompts.n, generate_task, g);
    sl_progress_end(&g->bar);
    double seconds = sl_measure_seconds() - began;
    specrt_status status = write_lines(g, &out, &n_written, err);
    if (status == SPECRT_STATUS_OK) status = sl_out_commit(&out, err);
    sl_out_abort(&out);
    if (status != SPECRT_STATUS_OK) return status;
    chat_announce(g->chats[0]);
    sl_cli_info("%d answers, %s tokens in %.1f s, %.0f tokens/s", n_written,
                sl_text_count((uint64_t)g->n_tokens), seconds, (double)g->n_tokens / seconds);
    return o->common.json && o->common.output ? print_json(g, n_written, seconds, err) : status;
}

static void close_generation(generation *g) {
    for (int i = 0; i < g->models.n_sequences; i++) {
        chat_free(g->chats[i]);
        decoder_free(g->decoders[i]);
    }
    for (int i = 0; g->lines && i < g->prompts.n; i++) free(g->lines[i]);
    free((void *)g->chats);
    free((void *)g->decoders);
    free((void *)g->lines);
    free(g->errors);
    sl_prompts_free(&g->prompts);
    models_close(&g->models);
    eval_options_free(&g->options);
}

int generate_main(int argc, char **argv) {
    generation g = {.options = {.max_tokens = 128}, .lock = PTHREAD_MUTEX_INITIALIZER};
    eval_options *o = &g.options;
    specrt_error err = {0};
    const cli_option options[] = {
        EVAL_TARGET(*o),
        EVAL_PROMPTS(*o),
        sl_cli_flag("ids", &g.with_ids,
                    "also write the token ids, and how many of them repeat a loop"),
        EVAL_SAMPLING(*o),
        {0},
    };
    const cli_tool tool = {
        "specrt-eval generate",
        "specrt-eval generate --target target.gguf --prompts questions.jsonl -o answers.jsonl",
        "Answers prompts with the target alone, for vocabtrim-calibrate to count. Writes one JSON "
        "object per line: prompt, output, domain. The same seed gives the same file for any "
        "--threads.",
        "specrt-eval generate --target FILE --prompts FILE... [-o FILE]", options};
    int code = sl_cli_parse(&tool, argc, argv, &o->common, NULL);
    if (code >= 0) return code;
    specrt_status status = run(&g, &err);
    close_generation(&g);
    return status == SPECRT_STATUS_OK ? CLI_OK : sl_cli_fail(&err);
}
