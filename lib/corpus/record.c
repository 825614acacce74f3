/* record.c : one JSON record to documents. Knows the shapes corpora come in: conversations
 * (ShareGPT, OpenAI messages), an answer beside its prompt (Alpaca and kin), completions by an API,
 * requests and results of an API's batches and logs, and plain text. json-c puts one U+FFFD for each lone
 * surrogate escape, as Python's json gives after UTF-16 with errors="replace"; a repeated key takes
 * its last value. */
#include "corpus/corpus_impl.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "base/error.h"
#include "base/json.h"

enum { LONG_RECORD = 256 << 10 };
static const char PIECE[] = "a piece of a streamed answer in";

/* Whose words they are: the target's (counted), another's (counted with all_messages), or of a text
 * that nobody says (counted). */
typedef enum speaker { SPEAKER_TARGET, SPEAKER_OTHER, SPEAKER_NONE } speaker;

typedef struct record_sink {
    struct corpus_arena *arena;
    const corpus_options *options;
    const corpus_doc *base;
    char *why;
} record_sink;

static const char *const conversation_keys[] = {"conversations", "conversation", "messages",
                                                "items",         "dialogue",     NULL};
static const char *const answer_keys[] = {"output", "response",   "completion",
                                          "answer", "generation", "canonical_solution",
                                          "chosen", "out",        NULL};
static const char *const prompt_keys[] = {"system",  "instruction", "input", "prompt", "question",
                                          "problem", "context",     "turns", "obj",    NULL};
static const char *const plain_keys[] = {"text", "content", "raw_content", NULL};
static const char *const target_roles[] = {
    "assistant",     "gpt",       "model",  "bot",   "chatgpt", "ai",
    "function_call", "tool_call", "output", "agent", NULL};
static const char *const other_roles[] = {"user",        "human",       "system",   "developer",
                                          "tool",        "function",    "prompter", "observation",
                                          "ipython",     "environment", "context",  "tool_response",
                                          "instruction", NULL};

static bool listed(const char *const *list, const char *name) {
    while (*list && strcasecmp(*list, name) != 0) list++;
    return *list != NULL;
}

/* first_of() : the value of the first listed key that is there and not null. */
static struct json_object *first_of(struct json_object *object, const char *const *keys) {
    struct json_object *value = NULL;
    while (*keys && !value) json_object_object_get_ex(object, *keys++, &value);
    return value;
}

static specrt_status odd(record_sink *sink, const char *what, const char *name) {
    snprintf(sink->why, 256, "%s %.100s", what, name);
    return SPECRT_STATUS_BAD_INPUT;
}

static specrt_status add_text(record_sink *sink, const char *text, size_t n, speaker who) {
    if (who == SPEAKER_OTHER && !sink->options->all_messages) return SPECRT_STATUS_OK;
    if (n == 0 && who != SPEAKER_TARGET) return SPECRT_STATUS_OK;
    corpus_doc doc = *sink->base;
    doc.text = text;
    doc.n_bytes = n;
    return sl_corpus_arena_add_doc(sink->arena, &doc, false);
}

/* add_content() : a string, null, or a list of strings and {"type": "text", "text": ...} parts;
 * parts of other types (images) hold no text. */
static specrt_status add_content(record_sink *sink, struct json_object *content, speaker who) {
    specrt_status status = SPECRT_STATUS_OK;
    switch (json_object_get_type(content)) {
    case json_type_null: return SPECRT_STATUS_OK;
    case json_type_string:
        return add_text(sink, json_object_get_string(content),
                        (size_t)json_object_get_string_len(content), who);
    case json_type_array:
        for (size_t i = 0; status == SPECRT_STATUS_OK && i < json_object_array_length(content); i++)
            status = add_content(sink, json_object_array_get_idx(content, i), who);
        return status;
    case json_type_object: return add_content(sink, first_of(content, plain_keys), who);
    default: return odd(sink, "text expected, found", json_object_get_string(content));
    }
}

/* add_arguments() : the text of a call the target wrote. */
static specrt_status add_arguments(record_sink *sink, struct json_object *call, speaker who) {
    struct json_object *function = sl_json_get(call, "function"),
                       *arguments = sl_json_get(function ? function : call, "arguments");
    if (!arguments || who != SPEAKER_TARGET) return SPECRT_STATUS_OK;
    if (json_object_is_type(arguments, json_type_string)) return add_content(sink, arguments, who);
    size_t n;
    const char *text = json_object_to_json_string_length(
        arguments, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &n);
    return text ? add_text(sink, text, n, who) : SPECRT_STATUS_NO_MEMORY;
}

static specrt_status add_calls(record_sink *sink, struct json_object *message, speaker who) {
    specrt_status status = add_arguments(sink, sl_json_get(message, "function_call"), who);
    struct json_object *calls = sl_json_get(message, "tool_calls");
    for (size_t i = 0; status == SPECRT_STATUS_OK && i < sl_json_length(calls); i++)
        status = add_arguments(sink, json_object_array_get_idx(calls, i), who);
    return status;
}

/* The target ends what it says with a terminator: after the last of these documents. */
static void mark_completion(struct corpus_arena *a, size_t first) {
    if (a->n_docs > first) a->docs[a->n_docs - 1].completion = true;
}

/* Beside a text, "from" may as well say where the text was found. */
static struct json_object *role_of(struct json_object *message) {
    struct json_object *role = sl_json_get(message, "role"), *from = sl_json_get(message, "from");
    if (json_object_is_type(role, json_type_string)) return role;
    if (!json_object_is_type(from, json_type_string)) return NULL;
    const char *name = json_object_get_string(from);
    bool speaks =
        sl_json_get(message, "value") || listed(target_roles, name) || listed(other_roles, name);
    return speaks ? from : NULL;
}

static specrt_status add_message(record_sink *sink, struct json_object *message) {
    static const char *const keys[] = {"content", "value", "text", NULL};
    struct json_object *role = role_of(message);
    if (!role) return odd(sink, "a message without role or from:", json_object_get_string(message));
    const char *name = json_object_get_string(role);
    bool target = listed(target_roles, name);
    if (!target && !listed(other_roles, name)) return odd(sink, "a message of unknown role", name);
    speaker who = target ? SPEAKER_TARGET : SPEAKER_OTHER;
    size_t first = sink->arena->n_docs;
    specrt_status status = target
                               ? add_content(sink, sl_json_get(message, "reasoning_content"), who)
                               : SPECRT_STATUS_OK;
    if (status == SPECRT_STATUS_OK) status = add_content(sink, first_of(message, keys), who);
    if (status == SPECRT_STATUS_OK) status = add_calls(sink, message, who);
    if (target) mark_completion(sink->arena, first);
    return status;
}

static specrt_status add_choices(record_sink *sink, struct json_object *choices);

/* add_turns() : what stands where one speaker's words are due: a string, a list of alternative or
 * successive strings, or messages that name their speakers, however nested. */
static specrt_status add_turns(record_sink *sink, struct json_object *turns, speaker who) {
    if (role_of(turns)) return add_message(sink, turns);
    struct json_object *choices = sl_json_get_type(turns, "choices", json_type_array);
    if (choices && who == SPEAKER_TARGET) return add_choices(sink, choices);
    specrt_status status = SPECRT_STATUS_OK;
    if (json_object_is_type(turns, json_type_array)) {
        for (size_t i = 0; status == SPECRT_STATUS_OK && i < json_object_array_length(turns); i++)
            status = add_turns(sink, json_object_array_get_idx(turns, i), who);
        return status;
    }
    size_t first = sink->arena->n_docs;
    status = add_content(sink, turns, who);
    if (who == SPEAKER_TARGET) mark_completion(sink->arena, first);
    return status;
}

static specrt_status add_conversation(record_sink *sink, struct json_object *messages) {
    if (!json_object_is_type(messages, json_type_array)) return add_message(sink, messages);
    specrt_status status = SPECRT_STATUS_OK;
    for (size_t i = 0; status == SPECRT_STATUS_OK && i < json_object_array_length(messages); i++)
        status = add_conversation(sink, json_object_array_get_idx(messages, i));
    return status;
}

/* add_choices() : what completion servers and benchmark harnesses write. */
static specrt_status add_choices(record_sink *sink, struct json_object *choices) {
    static const char *const keys[] = {"message", "turns", "text", NULL};
    specrt_status status = SPECRT_STATUS_OK;
    for (size_t i = 0; status == SPECRT_STATUS_OK && i < json_object_array_length(choices); i++) {
        struct json_object *choice = json_object_array_get_idx(choices, i);
        if (sl_json_get(choice, "delta")) return odd(sink, PIECE, "choices");
        struct json_object *answer =
            json_object_is_type(choice, json_type_object) ? first_of(choice, keys) : choice;
        status = add_turns(sink, answer, SPEAKER_TARGET);
    }
    return status;
}

static specrt_status add_prompts(record_sink *sink, struct json_object *record) {
    specrt_status status = SPECRT_STATUS_OK;
    for (int i = 0; prompt_keys[i] && status == SPECRT_STATUS_OK; i++) {
        struct json_object *value = sl_json_get(record, prompt_keys[i]);
        if (value) status = add_turns(sink, value, SPEAKER_OTHER);
    }
    return status;
}

static specrt_status unknown_shape(record_sink *sink, struct json_object *record) {
    bool none = json_object_object_length(record) == 0;
    size_t at = (size_t)snprintf(sink->why, 256, "no known field; found%s", none ? " none" : "");
    json_object_object_foreach(record, key, value) {
        (void)value;
        if (at < 256) at += (size_t)snprintf(sink->why + at, 256 - at, " %.60s", key);
    }
    return SPECRT_STATUS_BAD_INPUT;
}

static struct json_object *conversation_of(struct json_object *record) {
    struct json_object *value = NULL;
    for (const char *const *key = conversation_keys; *key && !value; key++)
        value = sl_json_get_type(record, *key, json_type_array);
    return value;
}

static specrt_status add_object(record_sink *sink, struct json_object *record);

/* The response of an API that a log has as a text, owned; NULL: another text, or none. Values within a text
 * were not counted (LONG_RECORD). */
static struct json_object *parse_response(struct json_object *value) {
    bool is_short = json_object_is_type(value, json_type_string) &&
                    json_object_get_string_len(value) <= LONG_RECORD;
    const char *text = is_short ? json_object_get_string(value) : "";
    struct json_object *response = text[0] == '{' ? json_tokener_parse(text) : NULL;
    if (sl_json_get(response, "choices")) return response;
    json_object_put(response);
    return NULL;
}

/* Whether a text is an API's stream of events, which has JSON around each piece of the answer. */
static bool is_event_stream(struct json_object *value) {
    bool is_text = json_object_is_type(value, json_type_string);
    const char *text = is_text ? json_object_get_string(value) : "";
    if (strncmp(text, "data:", 5) != 0 && strncmp(text, "event:", 6) != 0) return false;
    return strstr(text, "\"delta\"") || strstr(text, "\"choices\"");
}

static specrt_status add_answer(record_sink *sink, struct json_object *answer, speaker who) {
    struct json_object *response = parse_response(answer);
    if (is_event_stream(answer)) return odd(sink, PIECE, "a text of events");
    if (!response) return add_turns(sink, answer, who);
    specrt_status status = add_object(sink, response);
    json_object_put(response);
    return status;
}

/* Where a line of an OpenAI batch or of a server's log has its result, which may be a text, else a batch's
 * request. */
static struct json_object *body_of(struct json_object *record) {
    struct json_object *response = sl_json_get(record, "response"),
                       *body = sl_json_get(response, "body");
    if (!body && (sl_json_get(response, "choices") || sl_json_get(response, "output")))
        body = response;
    if (!response && sl_json_get(record, "custom_id")) body = sl_json_get(record, "body");
    bool is_text = response && json_object_is_type(body, json_type_string);
    return is_text || json_object_is_type(body, json_type_object) ? body : NULL;
}

/* add_request() : what a logged result answers. Its answers were results of other requests. */
static specrt_status add_request(record_sink *sink, struct json_object *record) {
    struct json_object *inner = sl_json_get(record, "request"), *request = inner ? inner : record,
                       *messages = conversation_of(request);
    if (!sink->options->all_messages) return SPECRT_STATUS_OK;
    return messages ? add_conversation(sink, messages) : add_prompts(sink, request);
}

/* Whether the target's answer to the last message is elsewhere in the record, if at all. */
static bool is_unanswered(struct json_object *messages) {
    size_t n = json_object_array_length(messages);
    struct json_object *role = n ? role_of(json_object_array_get_idx(messages, n - 1)) : NULL;
    return !role || !listed(target_roles, json_object_get_string(role));
}

static specrt_status add_messages(record_sink *sink, struct json_object *record,
                                  struct json_object *messages) {
    struct json_object *answer = first_of(record, answer_keys);
    specrt_status status = add_content(sink, sl_json_get(record, "system"), SPEAKER_OTHER);
    if (status == SPECRT_STATUS_OK) status = add_conversation(sink, messages);
    if (status == SPECRT_STATUS_OK && answer && is_unanswered(messages))
        status = add_answer(sink, answer, SPEAKER_TARGET);
    return status;
}

static specrt_status add_object(record_sink *sink, struct json_object *record) {
    struct json_object *body = body_of(record);
    if (body) {
        TRY(add_request(sink, record));
        return json_object_is_type(body, json_type_object) ? add_object(sink, body)
                                                           : add_answer(sink, body, SPEAKER_TARGET);
    }
    struct json_object *found = conversation_of(record);
    if (found) return add_messages(sink, record, found);
    if (role_of(record)) return add_message(sink, record);
    found = sl_json_get_type(record, "choices", json_type_array);
    if (found) return add_choices(sink, found);
    found = first_of(record, answer_keys);
    if (found) {
        specrt_status status = add_prompts(sink, record);
        return status == SPECRT_STATUS_OK ? add_answer(sink, found, SPEAKER_TARGET) : status;
    }
    found = first_of(record, plain_keys);
    if (found) return add_content(sink, found, SPEAKER_NONE);
    if (first_of(record, prompt_keys)) return add_prompts(sink, record);
    return unknown_shape(sink, record);
}

/* find_field() : a key that has the whole name, else a dotted path. */
static struct json_object *find_field(struct json_object *object, const char *path) {
    struct json_object *value = sl_json_get(object, path);
    const char *dot = value ? NULL : strchr(path, '.');
    for (; dot && !value; dot = strchr(dot + 1, '.')) {
        char key[256];
        if ((size_t)(dot - path) >= sizeof key) break;
        memcpy(key, path, (size_t)(dot - path));
        key[dot - path] = '\0';
        struct json_object *inner = sl_json_get(object, key);
        if (inner) value = find_field(inner, dot + 1);
    }
    return value;
}

static specrt_status add_field(record_sink *sink, struct json_object *record) {
    struct json_object *value = find_field(record, sink->options->field);
    bool list = json_object_is_type(value, json_type_array);
    if (!value) return odd(sink, "no field", sink->options->field);
    if (json_object_is_type(value, json_type_object)) return add_object(sink, value);
    for (size_t i = 0; list && i < json_object_array_length(value); i++)
        if (!json_object_is_type(json_object_array_get_idx(value, i), json_type_string))
            return odd(sink, "not a list of strings: field", sink->options->field);
    if (!list && !json_object_is_type(value, json_type_string))
        return odd(sink, "not a string: field", sink->options->field);
    return add_answer(sink, value, SPEAKER_NONE);
}

static specrt_status add_record(record_sink *sink, struct json_object *record) {
    specrt_status status = SPECRT_STATUS_OK;
    if (sink->options->field && json_object_is_type(record, json_type_object))
        return add_field(sink, record);
    switch (json_object_get_type(record)) {
    case json_type_object: return add_object(sink, record);
    case json_type_string: return add_content(sink, record, SPEAKER_NONE);
    case json_type_array:
        for (size_t i = 0; status == SPECRT_STATUS_OK && i < json_object_array_length(record); i++)
            status = add_record(sink, json_object_array_get_idx(record, i));
        return status;
    default: return odd(sink, "a record expected, found", json_object_get_string(record));
    }
}

static uint64_t count_lone_surrogates(const char *text, size_t n) {
    uint64_t lone = 0;
    int32_t unit;
    for (const char *p = text; (p = sl_json_bad_escape(p, text + n, &unit)); p += 6)
        lone += unit != 0;
    return lone;
}

/* parse_json() : *out may be NULL with OK, for null. */
static specrt_status parse_json(struct corpus_arena *a, char *text, size_t n,
                                struct json_object **out, char why[256]) {
    if (!a->tokener) a->tokener = json_tokener_new_ex(CORPUS_MAX_DEPTH);
    if (!a->tokener) return SPECRT_STATUS_NO_MEMORY;
    json_tokener_reset(a->tokener);
    json_tokener_set_flags(a->tokener, JSON_TOKENER_STRICT);
    char saved = text[n];
    text[n] = '\0'; /* lets a number end */
    *out = json_tokener_parse_ex(a->tokener, text, (int)n + 1);
    text[n] = saved;
    enum json_tokener_error error = json_tokener_get_error(a->tokener);
    size_t end = json_tokener_get_parse_end(a->tokener);
    if (error == json_tokener_success && end >= n) return SPECRT_STATUS_OK; /* no NUL before */
    json_object_put(*out);
    *out = NULL;
    const char *what =
        error == json_tokener_success ? "something follows it" : sl_json_error(error);
    snprintf(why, 256, "malformed JSON at byte %zu of the record (%s)", end, what);
    return SPECRT_STATUS_BAD_INPUT;
}

specrt_status sl_corpus_record_parse(struct corpus_arena *a, char *text, size_t n,
                                     const corpus_options *options, const corpus_doc *base,
                                     char why[256]) {
    record_sink sink = {a, options, base, why};
    struct json_object *record;
    if (n > LONG_RECORD && sl_corpus_record_is_crowded(text, n)) {
        snprintf(why, 256, "a record of too many values (over a million, or 100000 nested)");
        return SPECRT_STATUS_BAD_INPUT;
    }
    specrt_status status = parse_json(a, text, n, &record, why);
    if (status != SPECRT_STATUS_OK) return status;
    size_t n_docs = a->n_docs;
    uint64_t n_text_bytes = a->n_text_bytes, n_replaced = a->n_replaced;
    status = add_record(&sink, record);
    json_object_put(record);
    if (status == SPECRT_STATUS_OK) {
        a->n_replaced += count_lone_surrogates(text, n);
    } else {
        a->n_docs = n_docs;
        a->n_text_bytes = n_text_bytes;
        a->n_replaced = n_replaced;
    }
    return status;
}
