/* provenance.c : what a bundle's sections were made by and from, for people: a few lines for each. */
#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "verbs.h"

enum { INDENT = 11, COLUMNS = 100, MAX_NAMES = 8 };

/* One fact after another, over as many lines as they need. */
typedef struct paragraph {
    int column; /* of the cursor */
} paragraph;

static void put_fact(paragraph *p, const char *key, const char *value) {
    key = sl_text_name(key), value = sl_text_name(value);
    int n = sl_text_columns(key) + 1 + sl_text_columns(value);
    bool fits = p->column + 2 + n < COLUMNS; /* and a comma */
    if (p->column > INDENT && fits) p->column += printf(", ");
    if (p->column > INDENT && !fits) p->column = printf(",\n%*s", INDENT, "") - 2;
    printf("%s %s", key, value);
    p->column += n;
}

/* Domains and inputs have names; of figures in a list only their number is told. */
static void put_list(paragraph *p, const char *key, json_object *list) {
    size_t n = json_object_array_length(list);
    char number[32];
    for (size_t i = 0; i < n && i < MAX_NAMES; i++) {
        json_object *name = json_object_object_get(json_object_array_get_idx(list, i), "name");
        if (!name) break;
        put_fact(p, i == 0 ? key : "and", json_object_get_string(name));
        if (i + 1 == n) return;
    }
    snprintf(number, sizeof number, "(%zu)", n);
    if (n > 0) put_fact(p, key, number);
}

/* What is neither null nor an object. */
static void put_plain(paragraph *p, const char *key, json_object *value) {
    if (json_object_is_type(value, json_type_array))
        put_list(p, key, value);
    else if (value && !json_object_is_type(value, json_type_object))
        put_fact(p, key, json_object_get_string(value));
}

static void put_value(paragraph *p, const char *key, json_object *value) {
    char name[128];
    if (!json_object_is_type(value, json_type_object)) {
        put_plain(p, key, value);
        return;
    }
    if (strcmp(key, "tokenizer") == 0) return; /* it is printed above */
    json_object_object_foreach(value, inner, member) {
        snprintf(name, sizeof name, "%.60s.%.60s", key, inner);
        put_plain(p, name, member);
    }
}

/* What a section was made from, by the names that our tools give it. */
static bool names_input(const char *key) {
    static const char *const inputs[] = {"model",   "domains", "input",
                                         "options", "queries", "states"};
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        if (strcmp(key, inputs[i]) == 0) return true;
    return false;
}

static void put_section(const char *tag, json_object *entry, bool all) {
    paragraph p = {INDENT};
    json_object *tool = json_object_object_get(entry, "tool");
    sl_text_pad(tag, INDENT - 1, stdout);
    putchar(' ');
    if (tool) put_fact(&p, "made by", json_object_get_string(tool));
    json_object_object_foreach(entry, key, value) {
        if (value != tool && (all || names_input(key))) put_value(&p, key, value);
    }
    putchar('\n');
}

void verb_print_provenance(json_object *provenance, bool all) {
    printf("\nprovenance of sections (%sall of it: --json)\n", all ? "" : "more: -v, ");
    json_object_object_foreach(provenance, tag, entry) {
        if (json_object_is_type(entry, json_type_object)) put_section(tag, entry, all);
    }
}
