/* prompts.c : prompt files in the shapes that benchmarks come in. */
#include "specrt_tools.h"
#include "corpus/prompts.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/error.h"
#include "corpus/stream.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/utf8.h"

enum { MAX_FILE = 1 << 30 };

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void prompt_free(prompt *p) {
    free(p->system);
    for (int i = 0; i < p->n_turns; i++) free(p->turns[i]);
    free((void *)p->turns);
    free(p->ids);
    free(p->domain);
}

void sl_prompts_free(prompt_list *list) {
    for (int i = 0; i < list->n; i++) prompt_free(&list->items[i]);
    free(list->items);
    *list = (prompt_list){0};
}

/* ---- one record: without a message, BAD_INPUT where it is no prompt, or NO_MEMORY ---- */

static specrt_status keep(char **out, const char *text) {
    *out = strdup(text);
    return *out ? SPECRT_STATUS_OK : SPECRT_STATUS_NO_MEMORY;
}

static specrt_status add_turn(prompt *p, const char *text) {
    char **turn = (char **)sl_more(&p->turns, (size_t)p->n_turns, sizeof *turn);
    if (!turn) return SPECRT_STATUS_NO_MEMORY;
    TRY(keep(turn, text));
    p->n_turns++;
    return SPECRT_STATUS_OK;
}

/* "category" is Spec-Bench's; its kinds of MT-Bench count as one task, as its own report does. */
static const char *domain_of(json_object *record, const char *file_name) {
    static const char *const keys[] = {"domain", "category", "task"};
    static const char *const mt_bench[] = {"writing", "roleplay",   "reasoning", "math",
                                           "coding",  "extraction", "stem",      "humanities"};
    for (size_t i = 0; i < 3; i++) {
        const char *name = sl_json_get_text(record, keys[i]);
        if (!name) continue;
        for (size_t k = 0; i == 1 && k < sizeof mt_bench / sizeof *mt_bench; k++)
            if (strcmp(name, mt_bench[k]) == 0) return "mt_bench";
        return name;
    }
    return file_name;
}

static specrt_status take_ids(json_object *array, prompt *p) {
    size_t n = json_object_array_length(array);
    if (n > INT32_MAX) return SPECRT_STATUS_BAD_INPUT;
    p->ids = (int32_t *)calloc(n ? n : 1, sizeof *p->ids);
    if (!p->ids) return SPECRT_STATUS_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        json_object *id = json_object_array_get_idx(array, i);
        if (!json_object_is_type(id, json_type_int)) return SPECRT_STATUS_BAD_INPUT;
        p->ids[i] = json_object_get_int(id);
    }
    p->n_ids = (int32_t)n;
    return SPECRT_STATUS_OK;
}

static specrt_status take_turns(json_object *array, prompt *p) {
    for (size_t i = 0; i < json_object_array_length(array); i++) {
        json_object *turn = json_object_array_get_idx(array, i);
        if (!json_object_is_type(turn, json_type_string)) return SPECRT_STATUS_BAD_INPUT;
        TRY(add_turn(p, json_object_get_string(turn)));
    }
    return SPECRT_STATUS_OK;
}

/* Two texts as one turn, with an empty line between them. */
static specrt_status add_joined(prompt *p, const char *before, const char *after) {
    char *whole;
    const char *between = *before && *after ? "\n\n" : "";
    if (asprintf(&whole, "%s%s%s", before, between, after) < 0) return SPECRT_STATUS_NO_MEMORY;
    specrt_status status = add_turn(p, whole);
    free(whole);
    return status;
}

/* What the user says are turns; the answers come from the target.
 *   *told : goes before the first of them */
static specrt_status take_message(json_object *message, const char **told, prompt *p) {
    const char *text = sl_json_get_text(message, "content"),
               *role = sl_json_get_text(message, "role");
    if (!text) return SPECRT_STATUS_BAD_INPUT;
    if (role && strcmp(role, "system") == 0)
        return p->system ? SPECRT_STATUS_OK : keep(&p->system, text);
    if (role && strcmp(role, "user") != 0) return SPECRT_STATUS_OK;
    TRY(add_joined(p, *told, text));
    *told = "";
    return SPECRT_STATUS_OK;
}

static specrt_status take_messages(json_object *messages, const char **told, prompt *p) {
    if (!json_object_is_type(messages, json_type_array)) return SPECRT_STATUS_BAD_INPUT;
    for (size_t i = 0; i < json_object_array_length(messages); i++)
        TRY(take_message(json_object_array_get_idx(messages, i), told, p));
    return SPECRT_STATUS_OK;
}

/* BFCL: "question" is turns of messages, "function" what may be called, told before the first. */
static specrt_status take_calls(json_object *turns, json_object *record, prompt *p) {
    json_object *functions = sl_json_get(record, "function");
    const char *told = "";
    if (functions) told = json_object_to_json_string_ext(functions, JSON_C_TO_STRING_PLAIN);
    for (size_t i = 0; i < json_object_array_length(turns); i++)
        TRY(take_messages(json_object_array_get_idx(turns, i), &told, p));
    return SPECRT_STATUS_OK;
}

/* A text, below which an Alpaca instruction has its input. */
static specrt_status take_text(json_object *record, const char *key, prompt *p) {
    const char *input = strcmp(key, "instruction") ? NULL : sl_json_get_text(record, "input");
    return add_joined(p, sl_json_get_text(record, key), input ? input : "");
}

static specrt_status take_record(json_object *record, prompt *p) {
    static const char *const keys[] = {"prompt", "question", "instruction", "text"};
    bool batch = sl_json_get_text(record, "custom_id") != NULL;
    json_object *body = sl_json_get_type(record, batch ? "body" : "request", json_type_object);
    if (body) record = body; /* a request of an OpenAI batch, or in a log */
    const char *system = sl_json_get_text(record, "system"), *told = "";
    json_object *ids = sl_json_get_type(record, "prompt_ids", json_type_array),
                *turns = sl_json_get_type(record, "turns", json_type_array),
                *calls = sl_json_get_type(record, "question", json_type_array),
                *messages = sl_json_get_type(record, "messages", json_type_array);
    if (system) TRY(keep(&p->system, system));
    if (ids) return take_ids(ids, p);
    if (turns) return take_turns(turns, p);
    if (calls) return take_calls(calls, record, p);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (sl_json_get_text(record, keys[i])) return take_text(record, keys[i], p);
    return take_messages(messages, &told, p);
}

static specrt_status append(prompt_list *out, const prompt *p) {
    prompt *item = (prompt *)sl_more(&out->items, (size_t)out->n, sizeof *item);
    if (!item) return SPECRT_STATUS_NO_MEMORY;
    *item = *p;
    out->n++;
    return SPECRT_STATUS_OK;
}

static bool is_empty(const prompt *p) {
    for (int i = 0; i < p->n_turns; i++)
        if (p->turns[i][0] == '\0') return true;
    return p->n_turns == 0 && p->n_ids == 0;
}

static specrt_status pass_over_empty(prompt *p, prompt_list *out) {
    if (out->n_empty++ == 0) memcpy(out->first_empty, p->place, sizeof p->place);
    prompt_free(p);
    return SPECRT_STATUS_OK;
}

static specrt_status read_record(const char *path, int line, const char *file_name,
                                 json_object *record, prompt_list *out, specrt_error *err) {
    prompt p = {0};
    specrt_status status = SPECRT_STATUS_BAD_INPUT;
    snprintf(p.place, sizeof p.place, "%.80s:%d", base_name(path), line);
    if (json_object_is_type(record, json_type_object)) status = take_record(record, &p);
    if (!status && is_empty(&p)) return pass_over_empty(&p, out);
    if (!status) status = keep(&p.domain, domain_of(record, file_name));
    if (!status) status = append(out, &p);
    if (!status) return SPECRT_STATUS_OK;
    prompt_free(&p);
    if (status == SPECRT_STATUS_NO_MEMORY) return sl_error_no_memory_for(err, "prompts");
    return specrt_error_set(err, status,
                            "%s:%d: expected an object with a text under prompt, question, "
                            "instruction, text, turns or messages, or prompt_ids",
                            path, line);
}

/* ---- one file ---- */

/* All of a stream, with a NUL behind it. */
static specrt_status read_stream(corpus_stream *s, char **text, size_t *n, specrt_error *err) {
    size_t capacity = 0, got = 1;
    while (got) {
        size_t need = *n < capacity ? capacity : *n + (1 << 16);
        if (need > MAX_FILE || !sl_reserve(text, &capacity, need, 1))
            return sl_error_no_memory_for(err, "prompts");
        TRY(sl_corpus_stream_read(s, *n, *text + *n, capacity - *n, &got, err));
        *n += got;
    }
    (*text)[*n] = '\0';
    return SPECRT_STATUS_OK;
}

static specrt_status read_all(const char *path, char **text, size_t *n, specrt_error *err) {
    corpus_stream s;
    TRY(sl_corpus_stream_open(&s, path, NULL, 0, err));
    specrt_status status = read_stream(&s, text, n, err);
    sl_corpus_stream_close(&s);
    return status;
}

/* Values one after another: JSON Lines, or one object over several lines; an array holds several. */
static specrt_status read_value(const char *path, int line, const char *name, json_object *value,
                                prompt_list *out, specrt_error *err) {
    if (!json_object_is_type(value, json_type_array))
        return read_record(path, line, name, value, out, err);
    for (size_t i = 0; i < json_object_array_length(value); i++)
        TRY(read_record(path, line, name, json_object_array_get_idx(value, i), out, err));
    return SPECRT_STATUS_OK;
}

static specrt_status read_values(const char *path, const char *name, const char *text, size_t n,
                                 prompt_list *out, specrt_error *err) {
    json_tokener *tokener = json_tokener_new();
    specrt_status status = tokener ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "prompts");
    int line = 1;
    for (size_t at = sl_utf8_mark(text, n); status == SPECRT_STATUS_OK && at < n;) {
        for (; at < n && strchr(" \t\r\n", text[at]); at++) line += text[at] == '\n';
        if (at >= n) break;
        json_object *value = json_tokener_parse_ex(tokener, text + at, (int)(n - at));
        enum json_tokener_error error = json_tokener_get_error(tokener);
        if (error != json_tokener_success) {
            status = specrt_error_set(
                err, SPECRT_STATUS_BAD_INPUT,
                "%s:%d: expected JSON: %s; a prompt is a line as {\"prompt\": \"text\"}", path,
                line, sl_json_error(error));
            break;
        }
        status = read_value(path, line, name, value, out, err);
        json_object_put(value);
        size_t end = at + json_tokener_get_parse_end(tokener);
        for (; at < end; at++) line += text[at] == '\n';
        json_tokener_reset(tokener);
    }
    if (tokener) json_tokener_free(tokener);
    return status;
}

static bool is_chosen(const prompt_choice *c, int i) {
    return (c->every == 0 || i % c->every == 0) && (c->skip_every == 0 || i % c->skip_every != 0);
}

/* Of the prompts from `first` on. The limit is evenly spread: files are often sorted by task. */
static void thin(prompt_list *list, int first, const prompt_choice *c) {
    int n = 0, kept = 0, at = 0;
    for (int i = first; i < list->n; i++) n += is_chosen(c, i - first);
    int64_t limit = c->limit > 0 && c->limit < n ? c->limit : n;
    for (int i = first; i < list->n; i++) {
        prompt p = list->items[i];
        if (is_chosen(c, i - first) && at++ == (int)((int64_t)kept * n / limit))
            list->items[first + kept++] = p;
        else
            prompt_free(&p);
    }
    list->n = first + kept;
}

/* "questions" of "folder/questions.jsonl.gz". */
static char *name_of(const char *path) {
    char *name = strdup(base_name(path));
    if (name) name[strcspn(name, ".")] = '\0';
    return name;
}

specrt_status sl_prompts_read(const char *path, const prompt_choice *choice, prompt_list *out,
                              specrt_error *err) {
    char *text = NULL, *name = name_of(path);
    size_t n = 0;
    int first = out->n, n_empty = out->n_empty;
    specrt_status status =
        name ? read_all(path, &text, &n, err) : sl_error_no_memory_for(err, "prompts");
    if (status == SPECRT_STATUS_OK) status = read_values(path, name, text, n, out, err);
    if (status == SPECRT_STATUS_OK && out->n == first)
        status = specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                  "%s: expected one prompt per line, found %s", path,
                                  out->n_empty > n_empty ? "empty lines only" : "none");
    if (status == SPECRT_STATUS_OK && choice) thin(out, first, choice);
    free(text);
    free(name);
    return status;
}

specrt_status sl_prompts_add(const char *text, const char *domain, prompt_list *out) {
    prompt p = {.place = "--prompt"};
    specrt_status status = keep(&p.domain, domain);
    if (!status) status = add_turn(&p, text);
    if (!status) status = append(out, &p);
    if (status) prompt_free(&p);
    return status;
}

/* ---- those that are passed over ---- */

bool sl_prompts_pass_over(prompt_list *list, const prompt *p, const specrt_error *why) {
    if (list->n == 1) return false;
    if (list->n_unfit++ == 0)
        snprintf(list->first_unfit, sizeof list->first_unfit, "%s: %.400s", p->place, why->msg);
    return true;
}

/* "2 prompts were passed over: 1 empty, first a.jsonl:3; 1 unfit, first a.jsonl:6: prompt: ..." */
static void describe_passed_over(const prompt_list *list, char *out, size_t n) {
    int n_all = list->n_empty + list->n_unfit;
    int at = snprintf(out, n, "%d prompt%s passed over:", n_all, n_all == 1 ? " was" : "s were");
    if (list->n_empty)
        at += snprintf(out + at, n - (size_t)at, " %d empty, first %s%s", list->n_empty,
                       list->first_empty, list->n_unfit ? ";" : "");
    if (list->n_unfit)
        snprintf(out + at, n - (size_t)at, " %d unfit, first %s", list->n_unfit, list->first_unfit);
}

specrt_status sl_prompts_account(const prompt_list *list, int64_t n_decoded, specrt_error *err) {
    char text[sizeof list->first_unfit + sizeof list->first_empty + 80];
    if (list->n_empty + list->n_unfit == 0) return SPECRT_STATUS_OK;
    describe_passed_over(list, text, sizeof text);
    if (n_decoded == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "no prompt could be decoded: %s",
                                text);
    sl_cli_warn("%s", text);
    return SPECRT_STATUS_OK;
}

void sl_prompts_put_json(const prompt_list *list, json_object *to) {
    sl_json_put(to, "n_empty", sl_json_whole((uint64_t)list->n_empty));
    sl_json_put(to, "n_unfit", sl_json_whole((uint64_t)list->n_unfit));
}
