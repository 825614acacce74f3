/* verbs.c : what the verbs of specrt-bundle share. */
#include "verbs.h"

#include <string.h>
#include "base/json.h"

int verb_start(const cli_tool *tool, int argc, char **argv, cli_common *common, cli_list *rest,
               int least, int most, const char *what) {
    *rest = (cli_list){0};
    int code = sl_cli_parse(tool, argc, argv, common, rest);
    if (code < 0 && (rest->n < least || rest->n > most))
        code = sl_cli_usage("expected %s, found %d argument%s", what, rest->n,
                            rest->n == 1 ? "" : "s");
    if (code >= 0) sl_cli_list_free(rest);
    return code;
}

int verb_start_one(const cli_tool *tool, int argc, char **argv, cli_common *common,
                   const char **argument, const char *what) {
    cli_list rest;
    int code = verb_start(tool, argc, argv, common, &rest, 1, 1, what);
    if (code >= 0) return code;
    *argument = rest.items[0];
    sl_cli_list_free(&rest);
    return code;
}

json_object *verb_provenance(const specrt_bundle *bundle) {
    size_t n;
    const char *text = (const char *)specrt_bundle_data(bundle, "prov", &n);
    json_object *value = text ? sl_json_parse(text, n, NULL) : NULL;
    if (json_object_is_type(value, json_type_object)) return value;
    json_object_put(value);
    return NULL;
}

const char *verb_tag(const specrt_bundle_section *section) {
    static char tags[4][9];
    static int turn;
    char *tag = tags[turn++ % 4];
    memcpy(tag, section->tag, 8);
    return tag;
}

json_object *verb_coverage(json_object *provenance, const char *key) {
    json_object *ranks = json_object_object_get(provenance, "ranks");
    json_object *value = json_object_object_get(ranks, key);
    bool number =
        json_object_is_type(value, json_type_double) || json_object_is_type(value, json_type_int);
    return number ? value : NULL;
}
