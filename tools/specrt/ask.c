/* ask.c : a serving endpoint answers prompts. Answers are appended to a file as they come, so that a run that
 * ends early loses none, and a second run asks for the others. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/text.h"
#include "corpus/prompts.h"
#include "http.h"
#include "specrt_tools.h"
#include "tool.h"

enum { ATTEMPTS = 5 };

typedef struct asking {
    const char *endpoint, *model;
    cli_list files;
    int64_t limit, max_tokens, n_parallel, seconds;
    double temperature;
    cli_common common;
    prompt_list prompts;
    bool *answered; /* [n] of prompts */
    char *url;      /* of chat completions, owned */
    char *served;   /* the model's name as the server has it, owned */
    FILE *out;
    progress bar;
    pthread_mutex_t lock; /* of all below, and of `out` */
    int n_answers, n_failed, n_kept;
    bool stopped; /* by a failure that the next request would meet too */
    specrt_error failure;
} asking;

/* ---- answers of an earlier run ---- */

static bool same_text(json_object *o, const char *key, const char *text) {
    json_object *value;
    return json_object_object_get_ex(o, key, &value) && text &&
           strcmp(json_object_get_string(value), text) == 0;
}

/* Marks the first unanswered prompt of this text. An answer to another prompt stays in the file. */
static void mark(asking *a, json_object *answer) {
    for (int i = 0; i < a->prompts.n; i++) {
        const prompt *p = &a->prompts.items[i];
        if (a->answered[i] || p->n_turns == 0 || !same_text(answer, "prompt", p->turns[0]))
            continue;
        a->n_kept++;
        a->answered[i] = true;
        return;
    }
}

static specrt_status take_line(asking *a, const char *line, int64_t number, specrt_error *err) {
    json_object *o = json_tokener_parse(line), *temperature;
    specrt_status status = SPECRT_STATUS_OK;
    if (!json_object_is_type(o, json_type_object) || !same_text(o, "model", a->served))
        status = specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT,
            "%s:%lld: expected an answer of the model %s, found another text; name another file",
            a->common.output, (long long)number, a->served);
    else if (json_object_object_get_ex(o, "temperature", &temperature) &&
             json_object_get_double(temperature) != a->temperature)
        status = specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                  "--temperature %g: expected %g, as in %s:%lld; name another file",
                                  a->temperature, json_object_get_double(temperature),
                                  a->common.output, (long long)number);
    else
        mark(a, o);
    json_object_put(o);
    return status;
}

/* Reads the whole lines of the output. What follows them is an answer that was cut, and goes. */
static specrt_status take_answers(asking *a, specrt_error *err) {
    const char *path = a->common.output;
    FILE *f = fopen(path, "r");
    if (!f) return SPECRT_STATUS_OK; /* the first run */
    char *line = NULL;
    size_t room = 0;
    long whole = 0;
    specrt_status status = SPECRT_STATUS_OK;
    ssize_t n;
    for (int64_t number = 1; status == SPECRT_STATUS_OK && (n = getline(&line, &room, f)) > 0;
         number++) {
        if (line[n - 1] != '\n') break;
        status = take_line(a, line, number, err);
        whole = ftell(f);
    }
    free(line);
    fclose(f);
    if (status == SPECRT_STATUS_OK && truncate(path, whole) != 0)
        status = specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot write", path);
    return status;
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

/* The text of choices[0] and why it ended, borrowed from the answer; NULL: none. */
static const char *answer_text(json_object *answer, const char **why) {
    json_object *choices, *message, *content, *reason;
    *why = NULL;
    if (!json_object_object_get_ex(answer, "choices", &choices) ||
        !json_object_is_type(choices, json_type_array))
        return NULL;
    json_object *first = json_object_array_get_idx(choices, 0);
    if (!first || !json_object_object_get_ex(first, "message", &message) ||
        !json_object_object_get_ex(message, "content", &content) ||
        !json_object_is_type(content, json_type_string))
        return NULL;
    if (json_object_object_get_ex(first, "finish_reason", &reason))
        *why = json_object_get_string(reason);
    return json_object_get_string(content);
}

static specrt_status write_answer(asking *a, const prompt *p, json_object *answer,
                                  specrt_error *err) {
    const char *why, *text = answer_text(answer, &why);
    if (!text)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: choices[0].message.content: expected a text, found none",
                                a->url);
    json_object *o = json_object_new_object();
    sl_json_put(o, "prompt", sl_json_text(p->turns[0]));
    sl_json_put(o, "output", sl_json_text(text));
    sl_json_put(o, "domain", sl_json_text(p->domain));
    sl_json_put(o, "finish_reason", sl_json_text(why));
    sl_json_put(o, "model", sl_json_text(a->served));
    sl_json_put(o, "temperature", sl_json_real(a->temperature));
    sl_json_put(o, "seed", sl_json_whole((uint64_t)a->common.seed));
    char *line = sl_json_to_text(o);
    if (!line) return sl_error_no_memory(err, p->place);
    pthread_mutex_lock(&a->lock);
    bool ok = fprintf(a->out, "%s\n", line) > 0 && fflush(a->out) == 0;
    a->n_answers += ok;
    sl_progress_update(&a->bar, (uint64_t)(a->n_answers + a->n_kept));
    pthread_mutex_unlock(&a->lock);
    free(line);
    return ok ? SPECRT_STATUS_OK
              : specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot write", a->common.output);
}

/* One try. *again: whether another may succeed. */
static specrt_status try_once(asking *a, const prompt *p, const char *body, bool *again,
                              specrt_error *err) {
    http_request r = {a->url, getenv("OPENAI_API_KEY"), body, (int)a->seconds};
    json_object *answer;
    TRY(http_json(&r, &answer, again, err));
    specrt_status status = write_answer(a, p, answer, err);
    *again = status == SPECRT_STATUS_BAD_INPUT;
    json_object_put(answer);
    return status;
}

static void fail(asking *a, const specrt_error *err, bool others_too) {
    pthread_mutex_lock(&a->lock);
    a->n_failed++;
    a->failure = *err;
    a->stopped = a->stopped || others_too;
    pthread_mutex_unlock(&a->lock);
}

static bool is_stopped(asking *a) {
    pthread_mutex_lock(&a->lock);
    bool stopped = a->stopped;
    pthread_mutex_unlock(&a->lock);
    return stopped;
}

static void ask_one(void *arg, int64_t i, int worker) {
    (void)worker;
    asking *a = (asking *)arg;
    const prompt *p = &a->prompts.items[i];
    if (a->answered[i] || p->n_turns == 0 || is_stopped(a)) return;
    char *body = request_of(a, p);
    bool again = true;
    specrt_error err;
    specrt_status status = body ? SPECRT_STATUS_IO : sl_error_no_memory(&err, p->place);
    for (int attempt = 0; body && again && attempt < ATTEMPTS && status != SPECRT_STATUS_OK;
         attempt++) {
        if (attempt) sleep(1u << (attempt - 1));
        status = try_once(a, p, body, &again, &err);
    }
    free(body);
    if (status != SPECRT_STATUS_OK) fail(a, &err, !again);
}

/* ---- all of them ---- */

/* The model that the server has, unless one is named. */
static specrt_status find_model(asking *a, const char *base, specrt_error *err) {
    char url[1024];
    json_object *answer, *data, *id = NULL;
    bool again;
    if (a->model)
        return (a->served = strdup(a->model)) ? SPECRT_STATUS_OK
                                              : sl_error_no_memory(err, a->model);
    snprintf(url, sizeof url, "%s/models", base);
    http_request r = {url, getenv("OPENAI_API_KEY"), NULL, 30};
    TRY(http_json(&r, &answer, &again, err));
    if (json_object_object_get_ex(answer, "data", &data) &&
        json_object_is_type(data, json_type_array) && json_object_array_length(data) > 0)
        json_object_object_get_ex(json_object_array_get_idx(data, 0), "id", &id);
    if (id) a->served = strdup(json_object_get_string(id));
    json_object_put(answer);
    return a->served ? SPECRT_STATUS_OK
                     : specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                        "%s: data[0].id: expected a model, found none; "
                                        "name it by --model",
                                        url);
}

static specrt_status prepare_asking(asking *a, specrt_error *err) {
    char base[512], url[1024];
    snprintf(base, sizeof base, "%s", a->endpoint);
    size_t n = strlen(base);
    if (n > 0 && base[n - 1] == '/') base[n - 1] = 0;
    snprintf(url, sizeof url, "%s/chat/completions", base);
    a->url = strdup(url);
    for (int i = 0; i < a->files.n; i++)
        TRY(sl_prompts_read(a->files.items[i], a->limit, &a->prompts, err));
    if (!a->url) return sl_error_no_memory(err, a->endpoint);
    TRY(sl_new(&a->answered, (size_t)a->prompts.n, sizeof *a->answered, a->endpoint, err));
    TRY(find_model(a, base, err));
    TRY(take_answers(a, err));
    a->out = fopen(a->common.output, "a");
    return a->out ? SPECRT_STATUS_OK
                  : specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot write", a->common.output);
}

static specrt_status ask_all(asking *a, specrt_error *err) {
    TRY(prepare_asking(a, err));
    sl_progress_begin(&a->bar, a->common.progress, "ask", "prompts", (uint64_t)a->prompts.n);
    sl_parallel_for((int)a->n_parallel, a->prompts.n, ask_one, a);
    sl_progress_end(&a->bar);
    if (a->n_failed == 0) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_IO,
                            "%d of %d prompts have an answer; run again for the others: %.300s",
                            a->n_answers + a->n_kept, a->prompts.n, a->failure.msg);
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
    asking a = {
        .max_tokens = 512, .n_parallel = 4, .seconds = 600, .lock = PTHREAD_MUTEX_INITIALIZER};
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
        sl_cli_int("parallel", "N", &a.n_parallel, 1, 256, "requests at a time (default 4)"),
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
    if (a.out && fclose(a.out) != 0 && code == CLI_OK) code = CLI_IO;
    sl_prompts_free(&a.prompts);
    sl_cli_list_free(&a.files);
    free(a.answered);
    free(a.served);
    free(a.url);
    return code;
}
