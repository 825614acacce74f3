/* prompts.c : prompt files in the shapes that benchmarks come in. */
#include "eval.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "corpus_stream.h"
#include "io.h"
#include "utf8.h"

enum { MAX_FILE = 1 << 30 };

static specrt_status no_memory(specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for prompts");
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void prompt_free(prompt *p) {
    for (int i = 0; i < p->n_turns; i++) free(p->turns[i]);
    free((void *)p->turns);
    free(p->ids);
    free(p->domain);
}

void prompts_free(prompt_list *list) {
    for (int i = 0; i < list->n; i++) prompt_free(&list->items[i]);
    free(list->items);
    *list = (prompt_list){0};
}

/* ---- one record ---- */

static bool add_turn(prompt *p, const char *text) {
    char **grown = (char **)realloc((void *)p->turns, (size_t)(p->n_turns + 1) * sizeof *grown);
    if (!grown) return false;
    p->turns = grown;
    p->turns[p->n_turns] = strdup(text);
    return p->turns[p->n_turns] && ++p->n_turns;
}

/* "category" is Spec-Bench's; its kinds of MT-Bench count as one task, as its own report does. */
static const char *domain_of(json_object *record, const char *file_name) {
    static const char *const keys[] = {"domain", "category", "task"};
    static const char *const mt_bench[] = {"writing", "roleplay",   "reasoning", "math",
                                           "coding",  "extraction", "stem",      "humanities"};
    json_object *value;
    for (size_t i = 0; i < 3; i++) {
        if (!json_object_object_get_ex(record, keys[i], &value) ||
            !json_object_is_type(value, json_type_string))
            continue;
        const char *name = json_object_get_string(value);
        for (size_t k = 0; i == 1 && k < sizeof mt_bench / sizeof *mt_bench; k++)
            if (strcmp(name, mt_bench[k]) == 0) return "mt_bench";
        return name;
    }
    return file_name;
}

static bool take_ids(json_object *array, prompt *p) {
    size_t n = json_object_array_length(array);
    if (n == 0 || n > INT32_MAX) return false;
    p->ids = (int32_t *)malloc(n * sizeof *p->ids);
    for (size_t i = 0; p->ids && i < n; i++) {
        json_object *id = json_object_array_get_idx(array, i);
        if (!json_object_is_type(id, json_type_int)) return false;
        p->ids[i] = json_object_get_int(id);
    }
    p->n_ids = (int32_t)n;
    return p->ids != NULL;
}

static bool take_turns(json_object *array, prompt *p) {
    size_t n = json_object_array_length(array);
    for (size_t i = 0; i < n; i++) {
        json_object *turn = json_object_array_get_idx(array, i);
        if (!json_object_is_type(turn, json_type_string)) return false;
        if (!add_turn(p, json_object_get_string(turn))) return false;
    }
    return n > 0;
}

/* An Alpaca instruction goes before its input. */
static bool take_instruction(json_object *record, const char *text, prompt *p) {
    json_object *input;
    const char *more = "";
    if (json_object_object_get_ex(record, "input", &input) &&
        json_object_is_type(input, json_type_string))
        more = json_object_get_string(input);
    char *whole = (char *)malloc(strlen(text) + strlen(more) + 3);
    if (whole) sprintf(whole, *more ? "%s\n\n%s" : "%s", text, more);
    bool ok = whole && add_turn(p, whole);
    free(whole);
    return ok;
}

/* BFCL: "question" is turns of messages, "function" what may be called, told before the first. */
static bool take_calls(json_object *turns, json_object *record, prompt *p) {
    json_object *functions, *messages, *content;
    const char *told = "";
    if (json_object_object_get_ex(record, "function", &functions))
        told = json_object_to_json_string_ext(functions, JSON_C_TO_STRING_PLAIN);
    for (size_t i = 0; i < json_object_array_length(turns); i++) {
        messages = json_object_array_get_idx(turns, i);
        if (!json_object_is_type(messages, json_type_array)) return false;
        for (size_t k = 0; k < json_object_array_length(messages); k++) {
            json_object *message = json_object_array_get_idx(messages, k);
            if (!json_object_object_get_ex(message, "content", &content) ||
                !json_object_is_type(content, json_type_string))
                return false;
            const char *text = json_object_get_string(content);
            char *whole = (char *)malloc(strlen(told) + strlen(text) + 3);
            if (whole) sprintf(whole, *told ? "%s\n\n%s" : "%s%s", told, text);
            bool ok = whole && add_turn(p, whole);
            free(whole);
            if (!ok) return false;
            told = "";
        }
    }
    return p->n_turns > 0;
}

static bool take_record(json_object *record, prompt *p) {
    static const char *const texts[] = {"prompt", "question", "instruction", "text"};
    json_object *value;
    if (json_object_object_get_ex(record, "prompt_ids", &value) &&
        json_object_is_type(value, json_type_array))
        return take_ids(value, p);
    if (json_object_object_get_ex(record, "turns", &value) &&
        json_object_is_type(value, json_type_array))
        return take_turns(value, p);
    if (json_object_object_get_ex(record, "question", &value) &&
        json_object_is_type(value, json_type_array))
        return take_calls(value, record, p);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (json_object_object_get_ex(record, texts[i], &value) &&
            json_object_is_type(value, json_type_string))
            return take_instruction(i == 2 ? record : NULL, json_object_get_string(value), p);
    return false;
}

static specrt_status append(prompt_list *out, const prompt *p, specrt_error *err) {
    prompt *grown = (prompt *)realloc(out->items, (size_t)(out->n + 1) * sizeof *grown);
    if (!grown) return no_memory(err);
    out->items = grown;
    out->items[out->n++] = *p;
    return SPECRT_STATUS_OK;
}

static specrt_status read_record(const char *path, int line, const char *file_name,
                                 json_object *record, prompt_list *out, specrt_error *err) {
    prompt p = {0};
    bool ok = json_object_is_type(record, json_type_object) && take_record(record, &p);
    for (int i = 0; ok && i < p.n_turns; i++) ok = p.turns[i][0] != '\0';
    if (ok) p.domain = strdup(domain_of(record, file_name));
    snprintf(p.place, sizeof p.place, "%.80s:%d", base_name(path), line);
    specrt_status status = SPECRT_STATUS_OK;
    if (!ok)
        status = specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                  "%s:%d: expected an object with a text that is not empty under "
                                  "prompt, question, instruction, text or turns, or prompt_ids",
                                  path, line);
    else
        status = p.domain ? append(out, &p, err) : no_memory(err);
    if (status != SPECRT_STATUS_OK) prompt_free(&p);
    return status;
}

/* ---- one file ---- */

static specrt_status read_all(const char *path, char **text, size_t *n, specrt_error *err) {
    corpus_stream s;
    size_t capacity = 1 << 16, got = 1;
    *n = 0;
    *text = (char *)malloc(capacity);
    TRY(stream_open(&s, path, NULL, 0, err));
    specrt_status status = *text ? SPECRT_STATUS_OK : no_memory(err);
    while (status == SPECRT_STATUS_OK && got) {
        status = stream_read(&s, *n, *text + *n, capacity - *n - 1, &got, err);
        if (status == SPECRT_STATUS_OK) *n += got;
        if (*n + 1 < capacity) continue;
        char *grown = capacity < MAX_FILE ? (char *)realloc(*text, capacity *= 2) : NULL;
        if (grown)
            *text = grown;
        else
            status = no_memory(err);
    }
    stream_close(&s);
    if (status == SPECRT_STATUS_OK) (*text)[*n] = '\0';
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
    specrt_status status = tokener ? SPECRT_STATUS_OK : no_memory(err);
    int line = 1;
    for (size_t at = utf8_mark(text, n); status == SPECRT_STATUS_OK && at < n;) {
        for (; at < n && strchr(" \t\r\n", text[at]); at++) line += text[at] == '\n';
        if (at >= n) break;
        json_object *value = json_tokener_parse_ex(tokener, text + at, (int)(n - at));
        if (!value) {
            status =
                specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s:%d: no JSON: %s", path, line,
                                 json_tokener_error_desc(json_tokener_get_error(tokener)));
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

/* Keep `limit` of the prompts from `first` on, evenly spread: files are often sorted by task. */
static void thin(prompt_list *list, int first, int64_t limit) {
    int n = list->n - first, kept = 0;
    if (limit == 0 || n <= limit) return;
    for (int i = 0; i < n; i++) {
        prompt p = list->items[first + i];
        if (kept < limit && i == (int)(((int64_t)kept * n) / limit))
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

specrt_status prompts_read(const char *path, int64_t limit, prompt_list *out, specrt_error *err) {
    char *text = NULL, *name = name_of(path);
    size_t n = 0;
    int first = out->n;
    specrt_status status = name ? read_all(path, &text, &n, err) : no_memory(err);
    if (status == SPECRT_STATUS_OK) status = read_values(path, name, text, n, out, err);
    if (status == SPECRT_STATUS_OK && out->n == first)
        status = specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                  "%s: expected a prompt a line, found none", path);
    if (status == SPECRT_STATUS_OK) thin(out, first, limit);
    free(text);
    free(name);
    return status;
}

specrt_status prompts_add(const char *text, const char *domain, prompt_list *out) {
    prompt p = {.place = "--prompt", .domain = strdup(domain)};
    if (p.domain && add_turn(&p, text) && append(out, &p, NULL) == SPECRT_STATUS_OK)
        return SPECRT_STATUS_OK;
    prompt_free(&p);
    return SPECRT_STATUS_NO_MEMORY;
}

specrt_status prompts_of(const eval_options *o, prompt_list *out, specrt_error *err) {
    if (o->prompt && prompts_add(o->prompt, "prompt", out) != SPECRT_STATUS_OK)
        return no_memory(err);
    for (int i = 0; i < o->prompts.n; i++)
        TRY(prompts_read(o->prompts.items[i], o->limit, out, err));
    return SPECRT_STATUS_OK;
}
