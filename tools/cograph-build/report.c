/* report.c : what cograph-build says of its work: a table, the --json object, the bundle's provenance. */
#include "build.h"

#include <inttypes.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/measure.h"
#include "base/text.h"

static const int32_t degrees[] = {8, 64, 256, 1024, 4096};
enum { N_DEGREES = sizeof degrees / sizeof degrees[0] };

void cograph_report_table(const cograph_build *b, FILE *out) {
    const graph *g = &b->graph;
    fprintf(out, "%s: %s tokens in %s documents\n", text_name(b->header.name),
            text_count(b->header.n_tokens), text_count(b->header.n_docs));
    if (!g->header.n_edges) return;
    fprintf(out, "%s edges of %s tokens, %s of them by EvoSpec's rule\n\n",
            text_count(g->header.n_edges), text_count((uint64_t)g->header.n_sources),
            text_count(g->n_rule_edges));
    fprintf(out, "  successors   mean rows   share of pairs\n");
    for (int i = 0; i < N_DEGREES; i++) {
        double rows, share = graph_share(g, degrees[i], &rows);
        if (i && degrees[i - 1] >= g->header.max_degree) break;
        fprintf(out, "%12s %11.1f %15.3f%%\n", text_count((uint64_t)degrees[i]), rows, 100 * share);
    }
}

static json_object *shares_json(const graph *g) {
    json_object *rows = json_object_new_array();
    for (int i = 0; i < N_DEGREES; i++) {
        double n_rows, share = graph_share(g, degrees[i], &n_rows);
        json_object *o = json_object_new_object();
        if (i && degrees[i - 1] >= g->header.max_degree) {
            json_object_put(o);
            break;
        }
        json_put(o, "successors", json_object_new_int(degrees[i]));
        json_put(o, "rows_mean", json_real(n_rows));
        json_put(o, "share_of_pairs", json_real(share));
        json_object_array_add(rows, o);
    }
    return rows;
}

static json_object *common_json(const cograph_build *b) {
    const specrt_cograph_header *h = &b->graph.header;
    json_object *o = json_object_new_object(), *tok = json_object_new_object();
    json_put(tok, "name", json_text(b->header.name));
    json_put(tok, "sha256", json_hex(b->header.sha256, 32));
    json_put(tok, "n_vocab", json_object_new_int(b->header.n_vocab));
    json_put(o, "tool", json_object_new_string("cograph-build " SPECRT_VERSION_STRING));
    json_put(o, "tokenizer", tok);
    json_put(o, "options", json_text(b->header.options));
    json_put(o, "n_tokens", json_whole(b->header.n_tokens));
    json_put(o, "n_documents", json_whole(b->header.n_docs));
    json_put(o, "n_bytes", json_whole(b->header.n_bytes));
    json_put(o, "digest", json_hex64(b->header.digest));
    if (!h->n_edges) return o;
    json_put(o, "n_pairs", json_whole(h->n_pairs));
    json_put(o, "n_sources", json_object_new_int(h->n_sources));
    json_put(o, "n_edges", json_whole(h->n_edges));
    json_put(o, "n_edges_rule", json_whole(b->graph.n_rule_edges));
    json_put(o, "successors", json_object_new_int(h->max_degree));
    json_put(o, "successor_count", json_object_new_int(h->min_count));
    json_put(o, "max_degree", json_object_new_int(h->rule_degree));
    json_put(o, "min_count", json_object_new_int(h->rule_count));
    json_put(o, "tau", json_real((double)h->rule_share));
    json_put(o, "shares", shares_json(&b->graph));
    return o;
}

char *cograph_report_provenance(const cograph_build *b) {
    return json_to_text(common_json(b));
}

char *cograph_report_json(const cograph_build *b) {
    json_object *o = common_json(b);
    json_put(o, "bytes_read", json_whole(b->stats.bytes_read));
    json_put(o, "n_bad_records", json_whole(b->stats.n_bad_records));
    json_put(o, "tokens_per_second",
             b->seconds_counting > 0 ? json_real((double)b->header.n_tokens / b->seconds_counting)
                                     : NULL);
    json_put(o, "seconds", json_real(b->seconds));
    json_put(o, "peak_bytes", json_object_new_int64(measure_peak_bytes()));
    return json_to_text(o);
}
