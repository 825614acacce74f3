/* report.c : what cograph-build says of its work: a table, the --json object, the bundle's provenance. */
#include "build.h"

#include <inttypes.h>
#include "base/json.h"
#include "base/measure.h"
#include "base/text.h"

static const int32_t degrees[] = {8, 64, 256, 1024, 4096};

/* How many of these are told: up to the first that no row has more successors than. */
static int n_told(const graph *g) {
    int n = 1;
    while (n < (int)(sizeof degrees / sizeof degrees[0]) && degrees[n - 1] < g->header.max_degree)
        n++;
    return n;
}

void cograph_report_table(const cograph_build *b, FILE *out) {
    const graph *g = &b->graph;
    fprintf(out, "%s: %s tokens in %s documents\n", sl_text_name(b->header.name),
            sl_text_count(b->header.n_tokens), sl_text_count(b->header.n_docs));
    if (!g->header.n_edges) return;
    fprintf(out, "%s edges of %s tokens, %s of them by EvoSpec's rule\n\n",
            sl_text_count(g->header.n_edges), sl_text_count((uint64_t)g->header.n_sources),
            sl_text_count(g->n_rule_edges));
    fprintf(out, "  successors   mean rows   share of pairs\n");
    for (int i = 0; i < n_told(g); i++) {
        double rows, share = graph_share(g, degrees[i], &rows);
        fprintf(out, "%12s %11.1f %15.3f%%\n", sl_text_count((uint64_t)degrees[i]), rows,
                100 * share);
    }
}

static json_object *shares_json(const graph *g) {
    json_object *rows = json_object_new_array();
    for (int i = 0; i < n_told(g); i++) {
        double n_rows, share = graph_share(g, degrees[i], &n_rows);
        json_object *o = json_object_new_object();
        sl_json_put(o, "successors", json_object_new_int(degrees[i]));
        sl_json_put(o, "rows_mean", sl_json_real(n_rows));
        sl_json_put(o, "share_of_pairs", sl_json_real(share));
        json_object_array_add(rows, o);
    }
    return rows;
}

static json_object *common_json(const cograph_build *b) {
    const specrt_cograph_header *h = &b->graph.header;
    json_object *o = json_object_new_object(), *tok = json_object_new_object();
    sl_json_put(tok, "name", sl_json_text(b->header.name));
    sl_json_put(tok, "sha256", sl_json_hex(b->header.sha256, 32));
    sl_json_put(tok, "n_vocab", json_object_new_int(b->header.n_vocab));
    sl_json_put(o, "tool", json_object_new_string("cograph-build " SPECRT_VERSION_STRING));
    sl_json_put(o, "tokenizer", tok);
    sl_json_put(o, "options", sl_json_text(b->header.options));
    sl_json_put(o, "n_tokens", sl_json_whole(b->header.n_tokens));
    sl_json_put(o, "n_documents", sl_json_whole(b->header.n_docs));
    sl_json_put(o, "n_bytes", sl_json_whole(b->header.n_bytes));
    sl_json_put(o, "digest", sl_json_hex64(b->header.digest));
    if (!h->n_edges) return o;
    sl_json_put(o, "n_pairs", sl_json_whole(h->n_pairs));
    sl_json_put(o, "n_sources", json_object_new_int(h->n_sources));
    sl_json_put(o, "n_edges", sl_json_whole(h->n_edges));
    sl_json_put(o, "n_edges_rule", sl_json_whole(b->graph.n_rule_edges));
    sl_json_put(o, "successors", json_object_new_int(h->max_degree));
    sl_json_put(o, "successor_count", json_object_new_int(h->min_count));
    sl_json_put(o, "max_degree", json_object_new_int(h->rule_degree));
    sl_json_put(o, "min_count", json_object_new_int(h->rule_count));
    sl_json_put(o, "tau", sl_json_real((double)h->rule_share));
    sl_json_put(o, "shares", shares_json(&b->graph));
    return o;
}

char *cograph_report_provenance(const cograph_build *b) {
    return sl_json_to_text(common_json(b));
}

char *cograph_report_json(const cograph_build *b) {
    json_object *o = common_json(b);
    sl_json_put(o, "bytes_read", sl_json_whole(b->stats.bytes_read));
    sl_json_put(o, "n_bad_records", sl_json_whole(b->stats.n_bad_records));
    sl_json_put(o, "tokens_per_second",
                b->seconds_counting > 0
                    ? sl_json_real((double)b->header.n_tokens / b->seconds_counting)
                    : NULL);
    sl_json_put(o, "seconds", sl_json_real(b->seconds));
    sl_json_put(o, "peak_bytes", json_object_new_int64(sl_measure_peak_bytes()));
    return sl_json_to_text(o);
}
