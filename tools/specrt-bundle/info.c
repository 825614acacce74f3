/* info.c : specrt-bundle info. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/json.h"
#include "base/text.h"
#include "verbs.h"

enum { N_TOP = 16, N_SHOWN = 12 }; /* ids for programs; for people, on a line */

/* Of what may be null. */
static const char *string_of(json_object *value) {
    const char *text = json_object_get_string(value);
    return text ? text : "";
}

/* ---- what sections hold ------------------------------------------------------------------------ */

/* Tags of sections that hold clusters. */
static const char *const clustered[] = {"cluster", "group", "centroid"};
enum { N_CLUSTERED = sizeof clustered / sizeof clustered[0] };

/* What routes and searches; headers are NULL where the bundle has none, or a damaged one. */
typedef struct views {
    specrt_clusters clusters[N_CLUSTERED];
    specrt_cograph graph;
    const specrt_hnsw_header *index; /* it may need a head for all else */
    specrt_sketch sketch;
} views;

static void views_open(const specrt_bundle *bundle, views *out) {
    size_t n;
    for (int i = 0; i < N_CLUSTERED; i++)
        specrt_bundle_clusters(bundle, clustered[i], &out->clusters[i], NULL);
    specrt_bundle_cograph(bundle, &out->graph, NULL);
    specrt_bundle_sketch(bundle, &out->sketch, NULL);
    out->index = (const specrt_hnsw_header *)specrt_bundle_data(bundle, "hnsw", &n);
    if (out->index && verb_check_section("", bundle, "hnsw", NULL, NULL) != SPECRT_STATUS_OK)
        out->index = NULL;
}

static void cluster_range(const specrt_clusters *c, uint32_t *least, uint32_t *most) {
    *least = UINT32_MAX;
    *most = 0;
    for (int32_t m = 0; m < c->header->n_clusters; m++) {
        uint32_t size = c->offsets[m + 1] - c->offsets[m];
        if (size < *least) *least = size;
        if (size > *most) *most = size;
    }
}

static const char *router_name(const specrt_clusters *c) {
    static const char *const names[] = {"none", "centroid", "dynaspec", "coral"};
    return names[c->header->router];
}

/* Successors that the published rule keeps. */
static uint64_t rule_edges(const specrt_cograph *g) {
    uint64_t n = 0;
    for (int32_t i = 0; i < g->header->n_vocab; i++) n += g->n_rule[i];
    return n;
}

static const char *vectors_name(const specrt_hnsw_header *h) {
    return h->vectors == SPECRT_HNSW_INT8 ? "int8" : h->vectors == SPECRT_HNSW_F16 ? "f16" : "none";
}

static const char *metric_name(const specrt_hnsw_header *h) {
    return h->metric ? "augmented-l2" : "ip";
}

/* ---- for people ------------------------------------------------------------------------------- */

/* What the section holds, in 62 columns; nothing where it is damaged or unknown to this version. */
static void put_content(const views *v, const char *tag) {
    for (int i = 0; i < N_CLUSTERED; i++) {
        const specrt_clusters *c = &v->clusters[i];
        uint32_t least, most;
        if (!c->header || strcmp(tag, clustered[i]) != 0) continue;
        cluster_range(c, &least, &most);
        printf("%s rows in %s clusters of %s to %s; router %s",
               sl_text_count((uint64_t)c->header->n_members),
               sl_text_count((uint64_t)c->header->n_clusters), sl_text_count(least),
               sl_text_count(most), router_name(c));
    }
    if (v->graph.header && strcmp(tag, "cograph") == 0)
        printf("%s successors of %s of %s tokens", sl_text_count(v->graph.header->n_edges),
               sl_text_count((uint64_t)v->graph.header->n_sources),
               sl_text_count((uint64_t)v->graph.header->n_vocab));
    if (v->index && strcmp(tag, "hnsw") == 0)
        printf("%s of %s rows; recall of the ten best %.4f at ef %" PRId32,
               sl_text_count((uint64_t)v->index->n_nodes),
               sl_text_count((uint64_t)v->index->n_rows), (double)v->index->recall, v->index->ef);
    if (v->sketch.header && strcmp(tag, "sketch") == 0) {
        printf("%s rows of %d columns: signs in %d directions, two bits in %d%s",
               sl_text_count((uint64_t)v->sketch.header->n_rows), (int)v->sketch.header->n_cols,
               (int)v->sketch.header->n_signs, (int)v->sketch.header->rank,
               v->sketch.header->whitened ? ", chosen by recorded states" : "");
        if (v->sketch.header->n_clusters > 0)
            printf("; in %s clusters", sl_text_count((uint64_t)v->sketch.header->n_clusters));
    }
    if (strcmp(tag, "ident") == 0) printf("tokenizer and head");
    if (strcmp(tag, "ranks") == 0) printf("token ids by rank");
    if (strcmp(tag, "prov") == 0) printf("provenance");
}

static const char *depends_text(uint32_t flags) {
    static char text[32];
    snprintf(text, sizeof text, "%s%s%s",
             flags & SPECRT_SECTION_DEPENDS_TOKENIZER ? "tokenizer " : "",
             flags & SPECRT_SECTION_DEPENDS_HEAD ? "head " : "",
             flags & SPECRT_SECTION_DEPENDS_DRAFTER ? "drafter" : "");
    return text;
}

static void print_sections(const specrt_bundle *bundle, const views *v) {
    int32_t n;
    const specrt_bundle_section *s = specrt_bundle_sections(bundle, &n);
    printf("\n%-8s %13s  %-12s  %s\n", "section", "stored bytes", "depends on", "content");
    for (int32_t i = 0; i < n; i++) {
        const char *tag = verb_tag(&s[i]);
        printf("%-8s %13s  %-12s  ", sl_text_name(tag), sl_text_count(s[i].stored_bytes),
               depends_text(s[i].flags));
        put_content(v, tag);
        putchar('\n');
    }
}

static void print_storage(const specrt_bundle *bundle) {
    int32_t n;
    const specrt_bundle_section *s = specrt_bundle_sections(bundle, &n);
    printf("\n%-8s %13s %13s %6s  %7s  %s\n", "section", "raw bytes", "stored bytes", "ratio",
           "version", "checksum");
    for (int32_t i = 0; i < n; i++)
        printf("%-8s %13s %13s %6.2f  %7" PRIu32 "  %016" PRIx64 "%s\n",
               sl_text_name(verb_tag(&s[i])), sl_text_count(s[i].raw_bytes),
               sl_text_count(s[i].stored_bytes),
               s[i].stored_bytes ? (double)s[i].raw_bytes / (double)s[i].stored_bytes : 1.0,
               s[i].version, s[i].checksum, s[i].flags & SPECRT_SECTION_ZSTD ? "" : " (raw)");
}

static void print_ident(const specrt_ident *d) {
    if (!d) return;
    if (d->n_vocab) {
        printf("\ntokenizer  %s: %s ids, %s normal\n           sha256 ",
               sl_text_name(d->tokenizer_name), sl_text_count((uint64_t)d->n_vocab),
               sl_text_count((uint64_t)d->n_normal));
        for (int i = 0; i < 32; i++) printf("%02x", d->tokenizer_sha256[i]);
    } else {
        printf("\ntokenizer  not recorded");
    }
    if (d->head_rows)
        printf("\nhead       %s [%" PRId32 ", %" PRId32 "]\n", sl_text_name(d->head_name),
               d->head_rows, d->head_cols);
    else
        printf("\nhead       not recorded\n");
}

/* The tokens of the text, where weights make the ranks' counts other numbers; else NULL. */
static json_object *tokens_unweighted(json_object *provenance) {
    json_object *ranks = json_object_object_get(provenance, "ranks");
    json_object *domains = json_object_object_get(ranks, "domains");
    for (size_t i = 0; i < sl_json_length(domains); i++) {
        json_object *domain = json_object_array_get_idx(domains, i);
        if (json_object_get_double(json_object_object_get(domain, "weight")) != 1)
            return verb_coverage(provenance, "n_tokens");
    }
    return NULL;
}

static void print_ranks(const specrt_ranks *r, json_object *provenance) {
    const specrt_ranks_header *h = r->header;
    json_object *tokens = tokens_unweighted(provenance);
    printf("ranks      %s of %s valid ids by default; %" PRId32 " forced, %" PRId32
           " of them terminators; %s ranked\n",
           sl_text_count((uint64_t)h->n_default), sl_text_count((uint64_t)h->n_valid), h->n_forced,
           h->n_terminators, sl_text_count((uint64_t)h->n_ranked));
    if (tokens)
        printf("           %s tokens counted, %s with their domains' weights\n",
               sl_text_count((uint64_t)json_object_get_int64(tokens)), sl_text_count(h->n_tokens));
    else
        printf("           %s tokens counted\n", sl_text_count(h->n_tokens));
    printf("forced    ");
    for (int32_t i = 0; i < h->n_forced && i < N_SHOWN; i++) printf(" %" PRId32, r->ids[i]);
    printf("%s\ntop       ", h->n_forced > N_SHOWN ? " ..." : "");
    for (int32_t i = h->n_forced; i < h->n_valid && i < h->n_forced + N_SHOWN; i++)
        printf(" %" PRId32, r->ids[i]);
    printf("\n");
}

static void print_coverage(json_object *provenance) {
    json_object *calibration = verb_coverage(provenance, "coverage_calibration");
    json_object *holdout = verb_coverage(provenance, "coverage_holdout");
    json_object *low = verb_coverage(provenance, "coverage_holdout_low");
    json_object *high = verb_coverage(provenance, "coverage_holdout_high");
    if (calibration)
        printf("coverage   %.4f of the calibration text", json_object_get_double(calibration));
    if (holdout) printf(", %.4f of held-out text", json_object_get_double(holdout));
    if (low && high)
        printf(" (95%% interval %.4f to %.4f)", json_object_get_double(low),
               json_object_get_double(high));
    if (calibration) printf("\n");
}

/* ---- for people, in detail ---- */

/* Clusters by level, and some clusters with their first tokens. */
static void print_clusters(const char *tag, const specrt_clusters *c, json_object *provenance) {
    json_object *examples =
        json_object_object_get(json_object_object_get(provenance, tag), "examples");
    printf("\n%-8s  clusters by level", tag);
    for (int32_t i = 0; i < c->header->n_schedule; i++) printf(" %" PRId32, c->schedule[i]);
    printf("\n");
    for (size_t i = 0; i < sl_json_length(examples); i++) {
        json_object *o = json_object_array_get_idx(examples, i);
        json_object *tokens = json_object_object_get(o, "tokens");
        printf("  %5" PRId32 " %6" PRId32 " rows ",
               json_object_get_int(json_object_object_get(o, "cluster")),
               json_object_get_int(json_object_object_get(o, "size")));
        for (size_t k = 0; k < sl_json_length(tokens); k++)
            printf(" %s", sl_text_name(string_of(json_object_array_get_idx(tokens, k))));
        printf("\n");
    }
}

static void print_graph(const specrt_cograph *g) {
    const specrt_cograph_header *h = g->header;
    printf("\ncograph   at most %" PRId32 " successors each, seen %" PRId32 " times or more; "
           "%s tokens counted, %s pairs\n",
           h->max_degree, h->min_count, sl_text_count(h->n_tokens), sl_text_count(h->n_pairs));
    printf("          %s obey EvoSpec's rule: at most %" PRId32 " each, seen %" PRId32
           " times, in a share of %g\n",
           sl_text_count(rule_edges(g)), h->rule_degree, h->rule_count, (double)h->rule_share);
}

static void print_index(const specrt_hnsw_header *h) {
    printf("\nhnsw      %" PRId32 " columns; m %" PRId32 ", ef-construction %" PRId32 ", %" PRId32
           " levels; metric %s, vectors %s\n",
           h->dim, h->m, h->ef_construction, h->max_level + 1, metric_name(h), vectors_name(h));
}

static void print_details(const specrt_bundle *bundle, const views *v, json_object *provenance) {
    print_storage(bundle);
    for (int i = 0; i < N_CLUSTERED; i++)
        if (v->clusters[i].header) print_clusters(clustered[i], &v->clusters[i], provenance);
    if (v->graph.header) print_graph(&v->graph);
    if (v->index) print_index(v->index);
}

static void print_all(const char *path, const specrt_bundle *bundle, uint64_t bytes, bool verbose) {
    int32_t n;
    views v;
    specrt_ranks ranks;
    json_object *provenance = verb_provenance(bundle);
    views_open(bundle, &v);
    specrt_bundle_sections(bundle, &n);
    printf("%s: bundle, %" PRId32 " sections, %s bytes\n", sl_text_name(path), n,
           sl_text_count(bytes));
    print_ident(specrt_bundle_ident(bundle));
    if (specrt_bundle_ranks(bundle, &ranks, NULL) == SPECRT_STATUS_OK) {
        print_ranks(&ranks, provenance);
        print_coverage(provenance);
    }
    print_sections(bundle, &v);
    if (verbose) print_details(bundle, &v, provenance);
    if (provenance) verb_print_provenance(provenance, verbose);
    json_object_put(provenance);
}

/* ---- for programs ----------------------------------------------------------------------------- */

static json_object *depends_json(uint32_t flags) {
    json_object *list = json_object_new_array();
    if (flags & SPECRT_SECTION_DEPENDS_TOKENIZER)
        json_object_array_add(list, sl_json_text("tokenizer"));
    if (flags & SPECRT_SECTION_DEPENDS_HEAD) json_object_array_add(list, sl_json_text("head"));
    if (flags & SPECRT_SECTION_DEPENDS_DRAFTER)
        json_object_array_add(list, sl_json_text("drafter"));
    return list;
}

static json_object *sections_json(const specrt_bundle *bundle) {
    int32_t n;
    const specrt_bundle_section *s = specrt_bundle_sections(bundle, &n);
    json_object *list = json_object_new_array();
    for (int32_t i = 0; i < n; i++) {
        json_object *o = json_object_new_object();
        sl_json_put(o, "tag", sl_json_text(verb_tag(&s[i])));
        sl_json_put(o, "version", sl_json_whole(s[i].version));
        sl_json_put(o, "offset", sl_json_whole(s[i].offset));
        sl_json_put(o, "raw_bytes", sl_json_whole(s[i].raw_bytes));
        sl_json_put(o, "stored_bytes", sl_json_whole(s[i].stored_bytes));
        sl_json_put(o, "zstd", json_object_new_boolean((s[i].flags & SPECRT_SECTION_ZSTD) != 0));
        sl_json_put(o, "optional",
                    json_object_new_boolean((s[i].flags & SPECRT_SECTION_OPTIONAL) != 0));
        sl_json_put(o, "depends", depends_json(s[i].flags));
        sl_json_put(o, "checksum", sl_json_hex64(s[i].checksum));
        json_object_array_add(list, o);
    }
    return list;
}

static json_object *tokenizer_json(const specrt_ident *d) {
    json_object *o = json_object_new_object();
    sl_json_put(o, "name", sl_json_text(d->tokenizer_name));
    sl_json_put(o, "sha256", sl_json_hex(d->tokenizer_sha256, 32));
    sl_json_put(o, "n_vocab", sl_json_whole((uint64_t)d->n_vocab));
    sl_json_put(o, "n_normal", sl_json_whole((uint64_t)d->n_normal));
    return o;
}

static json_object *head_json(const specrt_ident *d) {
    json_object *o = json_object_new_object();
    sl_json_put(o, "name", sl_json_text(d->head_name));
    sl_json_put(o, "rows", sl_json_whole((uint64_t)d->head_rows));
    sl_json_put(o, "cols", sl_json_whole((uint64_t)d->head_cols));
    return o;
}

static json_object *ranks_json(const specrt_ranks *r, json_object *provenance) {
    const specrt_ranks_header *h = r->header;
    int32_t n_top = h->n_valid - h->n_forced < N_TOP ? h->n_valid - h->n_forced : N_TOP;
    json_object *o = json_object_new_object();
    sl_json_put(o, "n_default", json_object_new_int(h->n_default));
    sl_json_put(o, "n_forced", json_object_new_int(h->n_forced));
    sl_json_put(o, "n_terminators", json_object_new_int(h->n_terminators));
    sl_json_put(o, "n_valid", json_object_new_int(h->n_valid));
    sl_json_put(o, "n_ranked", json_object_new_int(h->n_ranked));
    sl_json_put(o, "n_vocab", json_object_new_int(h->n_vocab));
    sl_json_put(o, "n_tokens", sl_json_whole(h->n_tokens));
    sl_json_put(o, "forced", sl_json_ids(r->ids, (size_t)h->n_forced));
    sl_json_put(o, "top", sl_json_ids(r->ids + h->n_forced, (size_t)n_top));
    static const char *const figures[] = {"coverage_calibration", "coverage_holdout",
                                          "coverage_holdout_low", "coverage_holdout_high"};
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        sl_json_put(o, figures[i], json_object_get(verb_coverage(provenance, figures[i])));
    return o;
}

static json_object *clusters_json(const specrt_clusters *c) {
    json_object *o = json_object_new_object();
    uint32_t least, most;
    cluster_range(c, &least, &most);
    sl_json_put(o, "n_clusters", json_object_new_int(c->header->n_clusters));
    sl_json_put(o, "n_members", json_object_new_int(c->header->n_members));
    sl_json_put(o, "size_least", sl_json_whole(least));
    sl_json_put(o, "size_most", sl_json_whole(most));
    sl_json_put(o, "router", sl_json_text(router_name(c)));
    sl_json_put(o, "schedule", sl_json_ids(c->schedule, (size_t)c->header->n_schedule));
    return o;
}

static json_object *graph_json(const specrt_cograph *g) {
    const specrt_cograph_header *h = g->header;
    json_object *o = json_object_new_object();
    sl_json_put(o, "n_vocab", json_object_new_int(h->n_vocab));
    sl_json_put(o, "n_sources", json_object_new_int(h->n_sources));
    sl_json_put(o, "n_edges", sl_json_whole(h->n_edges));
    sl_json_put(o, "n_rule_edges", sl_json_whole(rule_edges(g)));
    sl_json_put(o, "n_tokens", sl_json_whole(h->n_tokens));
    sl_json_put(o, "n_pairs", sl_json_whole(h->n_pairs));
    sl_json_put(o, "max_degree", json_object_new_int(h->max_degree));
    sl_json_put(o, "min_count", json_object_new_int(h->min_count));
    return o;
}

static json_object *index_json(const specrt_hnsw_header *h) {
    json_object *o = json_object_new_object();
    sl_json_put(o, "n_rows", json_object_new_int(h->n_rows));
    sl_json_put(o, "n_nodes", json_object_new_int(h->n_nodes));
    sl_json_put(o, "dim", json_object_new_int(h->dim));
    sl_json_put(o, "m", json_object_new_int(h->m));
    sl_json_put(o, "n_levels", json_object_new_int(h->max_level + 1));
    sl_json_put(o, "metric", sl_json_text(metric_name(h)));
    sl_json_put(o, "vectors", sl_json_text(vectors_name(h)));
    sl_json_put(o, "ef_construction", json_object_new_int(h->ef_construction));
    sl_json_put(o, "ef", json_object_new_int(h->ef));
    sl_json_put(o, "recall_at_10", sl_json_real((double)h->recall));
    return o;
}

static json_object *sketch_json(const specrt_sketch *s) {
    json_object *o = json_object_new_object();
    sl_json_put(o, "n_rows", json_object_new_int(s->header->n_rows));
    sl_json_put(o, "rank", json_object_new_int(s->header->rank));
    sl_json_put(o, "n_signs", json_object_new_int(s->header->n_signs));
    sl_json_put(o, "n_clusters", json_object_new_int(s->header->n_clusters));
    sl_json_put(o, "n_cols", json_object_new_int(s->header->n_cols));
    sl_json_put(o, "whitened", json_object_new_boolean(s->header->whitened != 0));
    return o;
}

static void put_views(json_object *o, const specrt_bundle *bundle) {
    views v;
    views_open(bundle, &v);
    for (int i = 0; i < N_CLUSTERED; i++)
        sl_json_put(o, clustered[i], v.clusters[i].header ? clusters_json(&v.clusters[i]) : NULL);
    sl_json_put(o, "cograph", v.graph.header ? graph_json(&v.graph) : NULL);
    sl_json_put(o, "hnsw", v.index ? index_json(v.index) : NULL);
    sl_json_put(o, "sketch", v.sketch.header ? sketch_json(&v.sketch) : NULL);
}

static bool print_json(const char *path, const specrt_bundle *bundle, uint64_t bytes) {
    const specrt_ident *d = specrt_bundle_ident(bundle);
    json_object *provenance = verb_provenance(bundle), *o = json_object_new_object();
    specrt_ranks ranks;
    bool ranked = specrt_bundle_ranks(bundle, &ranks, NULL) == SPECRT_STATUS_OK;
    sl_json_put(o, "file", sl_json_text(path));
    sl_json_put(o, "bytes", sl_json_whole(bytes));
    sl_json_put(o, "sections", sections_json(bundle));
    sl_json_put(o, "tokenizer", d && d->n_vocab ? tokenizer_json(d) : NULL);
    sl_json_put(o, "head", d && d->head_rows ? head_json(d) : NULL);
    sl_json_put(o, "ranks", ranked ? ranks_json(&ranks, provenance) : NULL);
    put_views(o, bundle);
    sl_json_put(o, "provenance", provenance);
    return sl_json_print(o);
}

/* The container is sound, and still a section may not be what its format says. */
static void warn_of_damage(const char *path, const specrt_bundle *bundle) {
    int32_t n;
    specrt_error err;
    const specrt_bundle_section *s = specrt_bundle_sections(bundle, &n);
    for (int32_t i = 0; i < n; i++)
        if (verb_check_section(path, bundle, verb_tag(&s[i]), NULL, &err) != SPECRT_STATUS_OK)
            sl_cli_warn("%s", err.msg);
}

/* ---- the verb --------------------------------------------------------------------------------- */

int info_main(int argc, char **argv) {
    const cli_tool tool = {
        "specrt-bundle", "specrt-bundle info model.specb",
        "Shows the contents of a bundle and what it was built from. -v adds checksums, samples of "
        "clusters and how sections were built; --json has everything.",
        "specrt-bundle info BUNDLE [-v | --json]", NULL};
    cli_common common;
    const char *path;
    specrt_bundle *bundle;
    specrt_error err;
    struct stat file = {0};
    int code = verb_start_one(&tool, argc, argv, &common, &path, "one bundle");
    if (code >= 0) return code;
    if (specrt_bundle_open(path, NULL, &bundle, &err) != SPECRT_STATUS_OK) return sl_cli_fail(&err);
    stat(path, &file);
    warn_of_damage(path, bundle);
    if (common.json)
        print_json(path, bundle, (uint64_t)file.st_size);
    else
        print_all(path, bundle, (uint64_t)file.st_size, common.verbose);
    specrt_bundle_close(bundle);
    return CLI_OK;
}
