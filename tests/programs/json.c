/* json.c : fields of a file of JSON by name. json FILE PATH... prints them, a line each; PATH=PATTERN is a
 * field that must match. tests/json_path.h says what a path is. Of several values in a file the root is an
 * array. The exit code is 1 where something is missing or does not match. */
#include "base/io.h"
#include "json_path.h"

/* The value of a file, or an array of its values; NULL: not JSON to its end. */
static json_object *read_all(const file_view *file) {
    json_object *all = json_object_new_array(), *only;
    json_tokener *tokener = json_tokener_new();
    const char *text = (const char *)file->bytes;
    size_t at = 0;
    while (at < file->n) {
        json_object *value = json_tokener_parse_ex(tokener, text + at, (int)(file->n - at));
        if (json_tokener_get_error(tokener) != json_tokener_success) break;
        at += json_tokener_get_parse_end(tokener);
        while (at < file->n && strchr(" \r\n", text[at])) at++;
        json_object_array_add(all, value);
    }
    json_tokener_free(tokener);
    size_t n = at < file->n ? 0 : json_object_array_length(all);
    if (n > 1) return all;
    only = n ? json_object_get(json_object_array_get_idx(all, 0)) : NULL;
    json_object_put(all);
    return only;
}

int main(int argc, char **argv) {
    static json_found found;
    file_view file = {0};
    specrt_error err = {0};
    int failed = 0;
    if (argc < 3 || sl_file_map(argv[1], &file, &err)) {
        fprintf(stderr, "json: %s\n", argc < 3 ? "expected FILE PATH..." : err.msg);
        return 2;
    }
    json_object *root = read_all(&file);
    if (!root) fprintf(stderr, "%s: expected JSON\n", argv[1]);
    for (int i = 2; root && i < argc; i++) {
        const char *end = json_find(&found, root, argv[i]);
        if (end && *end == '\0') {
            puts(found.text);
        } else if (!end || fnmatch(end + 1, found.text, 0) != 0) {
            fprintf(stderr, "%s: expected %s, found %s\n", argv[1], argv[i], found.text);
            failed = 1;
        }
    }
    json_object_put(root);
    sl_file_unmap(&file);
    return root ? failed : 2;
}
