/* ask.c : a serving endpoint answers prompts. Answers are appended to a file as they come, so that a run that
 * ends early loses none, and a second run asks for the others. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/text.h"
#include "corpus/prompts.h"
#include "answers.h"
#include "http.h"
#include "specrt_tools.h"
#include "tool.h"

enum {
    ATTEMPTS = 5,           /* of a prompt */
    ALIKE = 3,              /* failures of one kind in a row, after which the run stops */
    ANSWER_BYTES = 1 << 16, /* of an answer's JSON, and */
    TOKEN_BYTES = 1 << 10,  /* for each token that is asked for; */
    MOST_BYTES = 1 << 28,   /* at most */
    MODELS_BYTES = 1 << 24  /* of a server's list of models */
};

typedef struct asking {
    const char *endpoint, *model;
    cli_list files;
    int64_t limit, max_tokens, n_parallel, seconds;
    double temperature;
    bool no_reasoning;
    cli_common common;
    prompt_list prompts;
    bool *answered; /* [n] of prompts */
    char *url;      /* of chat completions, owned */
    char *served;   /* the model's name as the server has it, owned */
    int n_kept;     /* answers of earlier runs */
    answers out;
    progress bar;
    pthread_mutex_t lock; /* of all below, of `out` and `bar` */
    int n_answers;
    int kind, n_alike;    /* of the last failures in a row */
    bool warned;          /* that requests are tried again */
    bool stopped;         /* the next request would fail, too */
    specrt_error failure; /* the last one */
} asking;

/* ---- answers of an earlier run ---- */

/* Marks the first unanswered prompt of this text. An answer to another prompt stays in the file. */
static void mark(asking *a, const char *text) {
    for (int i = 0; i < a->prompts.n; i++) {
        if (a->answered[i] || strcmp(text, a->prompts.items[i].turns[0]) != 0) continue;
        a->n_kept++;
        a->answered[i] = true;
        return;
    }
}

static specrt_status take_answer(void *arg, json_object *o, int64_t line, specrt_error *err) {
    asking *a = (asking *)arg;
    const char *text = sl_json_get_text(o, "prompt"), *model = sl_json_get_text(o, "model");
    double temperature = json_object_get_double(sl_json_get(o, "temperature"));
    if (!text || !model || !sl_json_get_text(o, "output"))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s:%lld: expected an answer of the model %s, found another text; "
                                "name another file",
                                a->common.output, (long long)line, a->served);
    if (strcmp(model, a->served) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s:%lld: expected an answer of the model %s, found one of %s; "
                                "name that model (--model) or another file",
                                a->common.output, (long long)line, a->served, sl_text_name(model));
    if (fabs(temperature - a->temperature) > 1e-6) /* the file has nine digits */
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--temperature %g: expected %g, as in %s:%lld; name another file",
                                a->temperature, temperature, a->common.output, (long long)line);
    mark(a, text);
    return SPECRT_STATUS_OK;
}

/* ---- one prompt ---- */

static void add_message(json_object *messages, const char *role, const char *text) {
    json_object *m = json_object_new_object();
    sl_json_put(m, "role", sl_json_text(role));
    sl_json_put(m, "content", sl_json_text(text));
    json_object_array_add(messages, m);
}

static char *request_of(const asking *a, const prompt *p) {
    json_object *o = json_object_new_object(), *messages = json_object_new_array();
    if (p->system) add_message(messages, "system", p->system);
    add_message(messages, "user", p->turns[0]);
    sl_json_put(o, "model", sl_json_text(a->served));
    sl_json_put(o, "messages", messages);
    sl_json_put(o, "max_tokens", sl_json_whole((uint64_t)a->max_tokens));
    sl_json_put(o, "temperature", sl_json_real(a->temperature));
    sl_json_put(o, "seed", sl_json_whole((uint64_t)a->common.seed));
    return sl_json_to_text(o);
}

static json_object *first_under(json_object *o, const char *key) {
    json_object *list = sl_json_get(o, key);
    return json_object_is_type(list, json_type_array) ? json_object_array_get_idx(list, 0) : NULL;
}

static json_object *text_under(json_object *o, const char *key) {
    return sl_json_get_text(o, key) ? sl_json_get(o, key) : NULL;
}

static size_t put_part(FILE *to, const char *before, json_object *text) {
    size_t n = (size_t)json_object_get_string_len(text);
    if (n > 0) fputs(before, to), fwrite(json_object_get_string(text), 1, n, to);
    return n;
}

/* What the model wrote, as it writes it: a server takes the tags away that separate the reasoning. */
static json_object *join(json_object *reasoning, json_object *content) {
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    if (!to) return NULL;
    bool reasons = put_part(to, "<think>", reasoning) > 0;
    put_part(to, reasons ? "</think>" : "", content);
    json_object *o = fclose(to) == 0 ? json_object_new_string_len(text, (int)n) : NULL;
    free(text);
    return o;
}

/* An answer without a text, and one that ended before the first character of its text. */
static specrt_status refuse_answer(const asking *a, json_object *answer, json_object *message,
                                   specrt_error *err) {
    char quote[HTTP_QUOTE], *sent = sl_json_to_text(json_object_get(answer));
    http_quote(sent ? sent : "", sent ? strlen(sent) : 0, quote);
    free(sent);
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: %s: expected a text, found none; %s; the server sent: %s", a->url,
                            message ? "choices[0].message.content" : "choices[0].message",
                            message ? "raise --max-tokens where the model reasons before it answers"
                                    : "name an OpenAI-compatible API by --endpoint",
                            quote);
}

/* The text of choices[0] and why it ended (NULL: unknown), owned. */
static specrt_status read_answer(const asking *a, json_object *answer, json_object **text,
                                 const char **why, specrt_error *err) {
    json_object *first = first_under(answer, "choices"), *message = sl_json_get(first, "message"),
                *content = text_under(message, "content"),
                *reasoning = text_under(message, "reasoning_content");
    if (!reasoning) reasoning = text_under(message, "reasoning");
    if (a->no_reasoning) reasoning = NULL;
    *why = sl_json_get_text(first, "finish_reason");
    size_t n =
        (size_t)(json_object_get_string_len(content) + json_object_get_string_len(reasoning));
    bool was_cut = *why && strcmp(*why, "length") == 0;
    if (n == 0 && (!content || was_cut)) return refuse_answer(a, answer, message, err);
    *text = join(reasoning, content);
    return *text ? SPECRT_STATUS_OK : sl_error_no_memory(err, a->url);
}

/* The line of an answer, owned; NULL: no memory. `text` is released. */
static char *line_of(const asking *a, const prompt *p, json_object *text, const char *why) {
    json_object *o = json_object_new_object();
    sl_json_put(o, "prompt", sl_json_text(p->turns[0]));
    sl_json_put(o, "output", text);
    sl_json_put(o, "domain", sl_json_text(p->domain));
    sl_json_put(o, "finish_reason", sl_json_text(why));
    sl_json_put(o, "model", sl_json_text(a->served));
    sl_json_put(o, "temperature", sl_json_real(a->temperature));
    sl_json_put(o, "seed", sl_json_whole((uint64_t)a->common.seed));
    char *json = sl_json_to_text(o), *line = NULL;
    if (json && asprintf(&line, "%s\n", json) < 0) line = NULL;
    free(json);
    return line;
}

static specrt_status add_answer(asking *a, const char *line, specrt_error *err) {
    pthread_mutex_lock(&a->lock);
    specrt_status status = answers_add(&a->out, line, err);
    if (status == SPECRT_STATUS_OK) {
        a->n_alike = 0;
        sl_progress_update(&a->bar, (uint64_t)++a->n_answers);
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

static specrt_status try_once(asking *a, const prompt *p, const char *body, http_fault *fault,
                              specrt_error *err) {
    http_request r = {a->url, getenv("OPENAI_API_KEY"), body, (int)a->seconds, MOST_BYTES};
    if (a->max_tokens < (MOST_BYTES - ANSWER_BYTES) / TOKEN_BYTES)
        r.most = (size_t)(ANSWER_BYTES + a->max_tokens * TOKEN_BYTES);
    json_object *answer, *text;
    const char *why;
    TRY(http_json(&r, &answer, fault, err));
    specrt_status status = read_answer(a, answer, &text, &why, err);
    fault->kind = status == SPECRT_STATUS_BAD_INPUT ? HTTP_NO_TEXT : HTTP_LOCAL;
    char *line = status == SPECRT_STATUS_OK ? line_of(a, p, text, why) : NULL;
    json_object_put(answer);
    if (status != SPECRT_STATUS_OK) return status;
    status = line ? add_answer(a, line, err) : sl_error_no_memory(err, p->place);
    free(line);
    return status;
}

static bool is_stopped(asking *a) {
    pthread_mutex_lock(&a->lock);
    bool stopped = a->stopped;
    pthread_mutex_unlock(&a->lock);
    return stopped;
}

/* Says once that a failure is not the end. */
static void warn_once(asking *a, const specrt_error *err) {
    pthread_mutex_lock(&a->lock);
    bool shows = a->bar.on;
    if (!a->warned) {
        sl_progress_end(&a->bar);
        sl_cli_info("%.400s; trying again, up to %d times for a prompt", err->msg, ATTEMPTS);
        a->bar.on = shows;
    }
    a->warned = true;
    pthread_mutex_unlock(&a->lock);
}

/* 1, 2, 4 and 8 seconds after the attempts, unless the run stops. */
static void wait_after(asking *a, int attempt) {
    for (int i = 0; i < 10 << attempt && !is_stopped(a); i++) usleep(100000);
}

static specrt_status try_often(asking *a, const prompt *p, const char *body, http_fault *fault,
                               specrt_error *err) {
    for (int attempt = 0;; attempt++) {
        specrt_status status = try_once(a, p, body, fault, err);
        if (status == SPECRT_STATUS_OK || !fault->again || attempt == ATTEMPTS - 1) return status;
        warn_once(a, err);
        wait_after(a, attempt);
        if (is_stopped(a)) return status;
    }
}

/* What fails after the run has stopped does not count. */
static void fail(asking *a, int kind, const specrt_error *err) {
    pthread_mutex_lock(&a->lock);
    if (!a->stopped) {
        a->n_alike = kind == a->kind ? a->n_alike + 1 : 1;
        a->kind = kind;
        a->failure = *err;
        a->stopped = kind == HTTP_LOCAL || a->n_alike >= ALIKE;
    }
    pthread_mutex_unlock(&a->lock);
}

static void ask_one(void *arg, int64_t i, int worker) {
    (void)worker;
    asking *a = (asking *)arg;
    const prompt *p = &a->prompts.items[i];
    if (a->answered[i] || is_stopped(a)) return;
    http_fault fault = {HTTP_LOCAL, false};
    specrt_error err;
    char *body = request_of(a, p);
    specrt_status status =
        body ? try_often(a, p, body, &fault, &err) : sl_error_no_memory(&err, p->place);
    free(body);
    if (status != SPECRT_STATUS_OK) fail(a, fault.kind, &err);
}

/* ---- all of them ---- */

/* The first model that the server lists. */
static specrt_status find_model(asking *a, const char *base, specrt_error *err) {
    char url[2048];
    json_object *answer;
    http_fault fault;
    snprintf(url, sizeof url, "%s/models", base);
    http_request r = {url, getenv("OPENAI_API_KEY"), NULL, 30, MODELS_BYTES};
    TRY(http_json(&r, &answer, &fault, err));
    const char *id = sl_json_get_text(first_under(answer, "data"), "id");
    bool found = id && (a->served = strdup(id));
    json_object_put(answer);
    return found ? SPECRT_STATUS_OK
                 : specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: data[0].id: expected a model, found none; name it by "
                                    "--model",
                                    url);
}

static specrt_status read_prompts(asking *a, specrt_error *err) {
    for (int i = 0; i < a->files.n; i++)
        TRY(sl_prompts_read(a->files.items[i], &(prompt_choice){.limit = a->limit}, &a->prompts,
                            err));
    for (int i = 0; i < a->prompts.n; i++)
        if (a->prompts.items[i].n_turns == 0)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: prompt_ids: expected a prompt as text, which a served "
                                    "model takes; found token ids",
                                    a->prompts.items[i].place);
    return sl_new(&a->answered, (size_t)a->prompts.n, sizeof *a->answered, "prompts", err);
}

/* All that can be refused is refused before the first request. */
static specrt_status prepare_asking(asking *a, specrt_error *err) {
    char base[1024];
    size_t n = strlen(a->endpoint);
    while (n > 0 && a->endpoint[n - 1] == '/') n--;
    if (n >= sizeof base)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--endpoint: expected at most %zu bytes, found %zu",
                                sizeof base - 1, n);
    snprintf(base, sizeof base, "%.*s", (int)n, a->endpoint);
    a->out.path = a->common.output;
    TRY(read_prompts(a, err));
    TRY(answers_open(&a->out, &a->files, false, err));
    if (asprintf(&a->url, "%s/chat/completions", base) < 0) a->url = NULL;
    a->served = a->model ? strdup(a->model) : NULL;
    if (!a->url || (a->model && !a->served)) return sl_error_no_memory(err, a->endpoint);
    if (!a->served) TRY(find_model(a, base, err));
    TRY(answers_open(&a->out, &a->files, true, err));
    return answers_read(&a->out, take_answer, a, err);
}

static specrt_status ask_all(asking *a, specrt_error *err) {
    TRY(prepare_asking(a, err));
    sl_progress_begin(&a->bar, a->common.progress, "ask", "prompts",
                      (uint64_t)(a->prompts.n - a->n_kept));
    sl_parallel_for((int)a->n_parallel, a->prompts.n, ask_one, a);
    sl_progress_end(&a->bar);
    int n = a->n_answers + a->n_kept;
    if (n == a->prompts.n) return SPECRT_STATUS_OK;
    bool alike = a->stopped && a->kind != HTTP_LOCAL;
    return specrt_error_set(err, SPECRT_STATUS_IO, "%d of %d prompts have an answer; %s: %s", n,
                            a->prompts.n,
                            alike ? "the run stopped because several failed in the same way"
                                  : "run again for the others",
                            a->failure.msg);
}

static int report(const asking *a) {
    specrt_error err;
    sl_cli_info("%s: %d answers, %d of them from an earlier run", a->common.output,
                a->n_answers + a->n_kept, a->n_kept);
    if (!a->common.json) return CLI_OK;
    json_object *o = json_object_new_object();
    sl_json_put(o, "n_prompts", sl_json_whole((uint64_t)a->prompts.n));
    sl_json_put(o, "n_answers", sl_json_whole((uint64_t)(a->n_answers + a->n_kept)));
    sl_json_put(o, "model", sl_json_text(a->served));
    sl_prompts_put_json(&a->prompts, o);
    return sl_cli_print_json(sl_json_to_text(o), &err) == SPECRT_STATUS_OK ? CLI_OK
                                                                           : sl_cli_fail(&err);
}

int ask_main(int argc, char **argv) {
    asking a = {.max_tokens = 512,
                .n_parallel = 4,
                .seconds = 600,
                .out = {.fd = -1},
                .lock = PTHREAD_MUTEX_INITIALIZER};
    const cli_option options[] = {
        sl_cli_string("endpoint", "URL", &a.endpoint,
                      "of an OpenAI-compatible API, such as http://localhost:8000/v1"),
        sl_cli_strings("prompts", "FILE...", &a.files, "JSON Lines or JSON arrays of prompts"),
        sl_cli_string("model", "NAME", &a.model,
                      "as the server has it (default: the first that it lists)"),
        sl_cli_int("limit", "N", &a.limit, 1, INT32_MAX,
                   "so many prompts of each file, evenly spread"),
        sl_cli_int("max-tokens", "N", &a.max_tokens, 1, INT32_MAX, "of an answer (default 512)"),
        sl_cli_real("temperature", "T", &a.temperature, 0, 10, "of sampling (default 0)"),
        sl_cli_flag("no-reasoning", &a.no_reasoning,
                    "leave out what the model writes before its answer"),
        sl_cli_int("parallel", "N", &a.n_parallel, 1, 128, "requests at a time (default 4)"),
        sl_cli_int("timeout", "SECONDS", &a.seconds, 1, 86400, "for one answer (default 600)"),
        {0}};
    const cli_tool tool = {
        "specrt",
        "specrt ask --endpoint http://localhost:8000/v1 --prompts questions.jsonl -o answers.jsonl",
        "Collects a model's answers, one JSON object a line, for calibrate to count. Answers are\n"
        "appended as they come. A second run with the same file asks for the missing ones only.\n"
        "OPENAI_API_KEY, where it is set, is sent as the bearer token. Needs the program curl.",
        "specrt ask --endpoint URL --prompts FILE... -o FILE [options]", options};
    specrt_error err;
    int code = sl_cli_parse(&tool, argc, argv, &a.common, NULL);
    if (code >= 0) return code;
    if (!a.endpoint || a.files.n == 0 || !a.common.output)
        code = sl_cli_usage("expected --endpoint, --prompts and -o");
    else if (strncmp(a.endpoint, "http://", 7) != 0 && strncmp(a.endpoint, "https://", 8) != 0)
        code = sl_cli_usage(
            "--endpoint: expected a URL that begins with http:// or https://, found %s",
            a.endpoint);
    else
        code = ask_all(&a, &err) == SPECRT_STATUS_OK ? report(&a) : sl_cli_fail(&err);
    answers_close(&a.out);
    sl_prompts_free(&a.prompts);
    sl_cli_list_free(&a.files);
    free(a.answered);
    free(a.served);
    free(a.url);
    return code;
}
