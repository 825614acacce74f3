/* rewrite.c : specrt-bundle merge, unpack and pack, which all store sections that exist anew. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bundle_file.h"
#include "base/error.h"
#include "formats/bundle_write.h"
#include "base/json.h"
#include "base/text.h"
#include "verbs.h"

/* One input. */
typedef struct source {
    const char *path;
    bundle_file file;
    json_object *provenance;
} source;

/* The sections of all inputs, borrowed from them. */
typedef struct collection {
    source *sources; /* [n_sources] */
    int n_sources;
    bundle_part parts[SPECRT_BUNDLE_MAX_SECTIONS];
    char tags[SPECRT_BUNDLE_MAX_SECTIONS][9];
    const source *origins[SPECRT_BUNDLE_MAX_SECTIONS];
    void *owned[SPECRT_BUNDLE_MAX_SECTIONS]; /* data of the part, where it was decompressed */
    int n_parts;
    specrt_ident ident;
    bool force;
} collection;

static bool same_part(const bundle_part *a, const bundle_part *b) {
    return a->version == b->version && a->depends == b->depends && a->n_bytes == b->n_bytes &&
           (a->n_bytes == 0 || memcmp(a->data, b->data, a->n_bytes) == 0);
}

/* A later bundle's section replaces an earlier one's only by force, unless they are the same. Takes
 * over `owned` when it returns OK. */
static specrt_status add_part(collection *c, const char *tag, const bundle_part *part, void *owned,
                              const source *from, specrt_error *err) {
    int at = 0;
    while (at < c->n_parts && strcmp(c->tags[at], tag) != 0) at++;
    bool there = at < c->n_parts;
    if (there && !same_part(&c->parts[at], part) && !c->force)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: section '%s' differs from that of %s; use -f to take the "
                                "later one",
                                from->path, tag, c->origins[at]->path);
    if (at == SPECRT_BUNDLE_MAX_SECTIONS)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_LIMIT, "%s: more than %d sections",
                                from->path, SPECRT_BUNDLE_MAX_SECTIONS);
    bool same = there && same_part(&c->parts[at], part);
    if (same && !part->provenance) return free(owned), SPECRT_STATUS_OK;
    strcpy(c->tags[at], tag);
    free(c->owned[at]);
    c->parts[at] = *part;
    c->parts[at].tag = c->tags[at];
    c->origins[at] = from;
    c->owned[at] = owned;
    if (!there) c->n_parts++;
    return SPECRT_STATUS_OK;
}

static specrt_status add_section(collection *c, const source *from, const specrt_bundle_section *s,
                                 specrt_error *err) {
    char tag[9];
    json_object *entry;
    void *owned;
    snprintf(tag, sizeof tag, "%s", verb_tag(s));
    bundle_part part = {.version = s->version,
                        .depends = s->flags & ~SPECRT_SECTION_ZSTD,
                        .n_bytes = (size_t)s->raw_bytes};
    TRY(bundle_file_section(&from->file, s, &part.data, &owned, err));
    if (json_object_object_get_ex(from->provenance, tag, &entry))
        part.provenance = json_object_to_json_string_ext(entry, JSON_C_TO_STRING_PLAIN |
                                                                    JSON_C_TO_STRING_NOSLASHESCAPE);
    specrt_status status = add_part(c, tag, &part, owned, from, err);
    if (status != SPECRT_STATUS_OK) free(owned);
    return status;
}

/* "ident" and "prov" are put together by sl_bundle_write(). */
static specrt_status add_source(collection *c, const source *from, specrt_error *err) {
    int32_t n;
    const specrt_bundle_section *s = specrt_bundle_sections(from->file.bundle, &n);
    const specrt_ident *ident = specrt_bundle_ident(from->file.bundle);
    if (ident) TRY(sl_bundle_ident_merge(from->path, &c->ident, ident, err));
    for (int32_t i = 0; i < n; i++)
        if (strcmp(verb_tag(&s[i]), "ident") != 0 && strcmp(verb_tag(&s[i]), "prov") != 0)
            TRY(add_section(c, from, &s[i], err));
    return SPECRT_STATUS_OK;
}

static specrt_status collect(collection *c, specrt_error *err) {
    for (int i = 0; i < c->n_sources; i++) {
        source *from = &c->sources[i];
        TRY(bundle_file_open(from->path, &from->file, err));
        from->provenance = verb_provenance(from->file.bundle);
        TRY(add_source(c, from, err));
    }
    return SPECRT_STATUS_OK;
}

static specrt_status rewrite(collection *c, const char *output, bool raw, specrt_error *err) {
    TRY(sl_out_check(output, c->force, err));
    TRY(collect(c, err));
    bundle_update update = {.parts = c->parts,
                            .n_parts = c->n_parts,
                            .ident = &c->ident,
                            .raw = raw,
                            .whole = true,
                            .force = c->force};
    return sl_bundle_write(output, &update, err);
}

static void report(const char *output, const cli_common *common) {
    specrt_bundle *bundle;
    int32_t n;
    uint64_t raw = 0, stored = 0;
    /* What went through a pipe or to stdout cannot be looked at. */
    if (specrt_bundle_open(output, NULL, &bundle, NULL) != SPECRT_STATUS_OK) return;
    const specrt_bundle_section *s = specrt_bundle_sections(bundle, &n);
    for (int32_t i = 0; i < n; i++) raw += s[i].raw_bytes, stored += s[i].stored_bytes;
    specrt_bundle_close(bundle);
    if (common->json) {
        json_object *o = json_object_new_object();
        sl_json_put(o, "file", sl_json_text(output));
        sl_json_put(o, "n_sections", json_object_new_int(n));
        sl_json_put(o, "raw_bytes", sl_json_whole(raw));
        sl_json_put(o, "stored_bytes", sl_json_whole(stored));
        sl_json_print(o);
    } else {
        sl_cli_info("%s: %" PRId32 " sections, %s bytes stored as %s", output, n,
                    sl_text_count(raw), sl_text_count(stored));
    }
}

static int run(const cli_tool *tool, int argc, char **argv, int most, const char *what, bool raw) {
    cli_common common;
    cli_list rest;
    specrt_error err;
    int code = verb_start(tool, argc, argv, &common, &rest, 1, most, what);
    if (code >= 0) return code;
    collection *c = (collection *)calloc(1, sizeof *c);
    source *sources = (source *)calloc((size_t)rest.n, sizeof *sources);
    if (!common.output) {
        code = sl_cli_usage("expected -o FILE");
    } else if (!c || !sources) {
        sl_error_no_memory(&err, NULL);
        code = sl_cli_fail(&err);
    } else {
        *c = (collection){.sources = sources, .n_sources = rest.n, .force = common.force};
        for (int i = 0; i < rest.n; i++) sources[i].path = rest.items[i];
        code =
            rewrite(c, common.output, raw, &err) == SPECRT_STATUS_OK ? CLI_OK : sl_cli_fail(&err);
        if (code == CLI_OK) report(common.output, &common);
    }
    for (int i = 0; sources && i < rest.n; i++) {
        json_object_put(sources[i].provenance);
        bundle_file_close(&sources[i].file);
    }
    for (int i = 0; c && i < c->n_parts; i++) free(c->owned[i]);
    free(sources);
    free(c);
    sl_cli_list_free(&rest);
    return code;
}

int merge_main(int argc, char **argv) {
    static const cli_tool tool = {
        "specrt-bundle", "specrt-bundle merge ranks.specb clusters.specb -o model.specb",
        "Writes the sections of several bundles of one tokenizer and head into one. Where two\n"
        "hold different sections of a name, -f takes that of the later one.",
        "specrt-bundle merge BUNDLE... -o BUNDLE", NULL};
    return run(&tool, argc, argv, INT32_MAX, "at least one bundle", false);
}

int unpack_main(int argc, char **argv) {
    static const cli_tool tool = {
        "specrt-bundle", "specrt-bundle unpack model.specb -o model-raw.specb",
        "Stores all sections raw: larger, but mapped at opening and shared by processes instead\n"
        "of decompressed into each. Readers without libzstd need it.",
        "specrt-bundle unpack BUNDLE -o BUNDLE", NULL};
    return run(&tool, argc, argv, 1, "one bundle", true);
}

int pack_main(int argc, char **argv) {
    static const cli_tool tool = {"specrt-bundle",
                                  "specrt-bundle pack model-raw.specb -o model.specb",
                                  "Stores all sections with zstd, as the tools write them.",
                                  "specrt-bundle pack BUNDLE -o BUNDLE", NULL};
    return run(&tool, argc, argv, 1, "one bundle", false);
}
