/* extract.c : specrt-bundle extract. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bundle_file.h"
#include "base/error.h"
#include "base/json.h"
#include "verbs.h"

static specrt_status section_missing(const char *path, const specrt_bundle *bundle, const char *tag,
                                     specrt_error *err) {
    char tags[256] = "";
    int32_t n;
    const specrt_bundle_section *s = specrt_bundle_sections(bundle, &n);
    for (int32_t i = 0; i < n && strlen(tags) < sizeof tags - 12; i++) {
        if (i > 0) strcat(tags, ", ");
        strcat(tags, verb_tag(&s[i]));
    }
    return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                            "%s: has no section '%.20s'; it holds %s", path, tag, tags);
}

static specrt_status write_section(const bundle_file *b, const char *tag, const char *output,
                                   bool force, size_t *n_bytes, specrt_error *err) {
    int32_t n, at = 0;
    const specrt_bundle_section *s = specrt_bundle_sections(b->bundle, &n);
    const void *data;
    void *owned;
    while (at < n && strcmp(verb_tag(&s[at]), tag) != 0) at++;
    if (at == n) return section_missing(b->path, b->bundle, tag, err);
    TRY(bundle_file_section(b, &s[at], &data, &owned, err));
    *n_bytes = (size_t)s[at].raw_bytes;
    specrt_status status = sl_out_bytes(output, force, data, *n_bytes, err);
    free(owned);
    return status;
}

static specrt_status extract(const char *path, const char *tag, const char *output, bool force,
                             size_t *n_bytes, specrt_error *err) {
    bundle_file b;
    TRY(bundle_file_open(path, &b, err));
    specrt_status status = write_section(&b, tag, output, force, n_bytes, err);
    bundle_file_close(&b);
    return status;
}

int extract_main(int argc, char **argv) {
    static const cli_tool tool = {
        "specrt-bundle", "specrt-bundle extract model.specb ranks -o ranks.bin",
        "Writes the decompressed bytes of one section to a file, or to stdout.",
        "specrt-bundle extract BUNDLE SECTION [-o FILE]", NULL};
    cli_common common;
    cli_list rest;
    specrt_error err;
    size_t n_bytes = 0;
    int code = verb_start(&tool, argc, argv, &common, &rest, 2, 2, "a bundle and a section");
    if (code >= 0) return code;
    const char *output = common.output ? common.output : "-";
    bool to_stdout = strcmp(output, "-") == 0 || strcmp(output, "/dev/stdout") == 0;
    if (to_stdout && common.json)
        code = sl_cli_usage("stdout: expected --json or the section, found both; give -o FILE");
    else if (!common.output && isatty(STDOUT_FILENO))
        code = sl_cli_usage("stdout: expected a file or pipe, found a terminal; give -o FILE, or "
                            "-o - to write bytes there");
    else if (extract(rest.items[0], rest.items[1], output, common.force, &n_bytes, &err))
        code = sl_cli_fail(&err);
    else
        code = CLI_OK;
    if (code == CLI_OK && common.json) {
        json_object *o = json_object_new_object();
        sl_json_put(o, "file", sl_json_text(output));
        sl_json_put(o, "section", sl_json_text(rest.items[1]));
        sl_json_put(o, "bytes", sl_json_whole(n_bytes));
        sl_json_print(o);
    } else if (code == CLI_OK) {
        sl_cli_info("%s: %zu bytes of section %s", to_stdout ? "stdout" : output, n_bytes,
                    rest.items[1]);
    }
    sl_cli_list_free(&rest);
    return code;
}
