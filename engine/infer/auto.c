/* auto.c : see auto.h. */
#include "specrt_block.h"
#include "specrt_tools.h"
#include "engine/infer/auto.h"

#include <string.h>
#include "base/error.h"
#include "base/io.h"

enum { LEAST_ROWS = 512 };

/* ---- the word ---- */

bool auto_is_named(const char *text) {
    return text && strncmp(text, "auto", 4) == 0 && (text[4] == '\0' || text[4] == '+');
}

const char *auto_policy(const char *text, const specrt_costs *costs) {
    if (!text) return "microspec";
    if (!auto_is_named(text)) return text;
    if (text[4] == '+') return text + 5;
    return costs && costs->policy[0] ? costs->policy : "microspec";
}

const char *auto_policy_file(const char *text, const specrt_costs *costs, const char *file) {
    bool named = auto_is_named(text) && text[4] == '\0' && costs->policy[0];
    return named ? file : NULL;
}

specrt_status auto_policy_opened(specrt_status status, const char *file, specrt_error *err) {
    if (status == SPECRT_STATUS_OK || status == SPECRT_STATUS_NO_MEMORY || !file || !err)
        return status;
    const specrt_error why = *err;
    return specrt_error_set(err, status,
                            "%s: policy: expected one that opens here, found %s; name its bundle "
                            "by --bundle, or another policy by --policy auto+POLICY",
                            file, why.msg);
}

/* ---- costs ---- */

specrt_status auto_costs_read(const char *path, specrt_costs *out, specrt_error *err) {
    TRY(specrt_costs_read(path, NULL, out, err));
    bool has = out->head_first.n > 0;
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++) has = has && out->head_next[w].n > 0;
    return has ? SPECRT_STATUS_OK
               : specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                  "%s: expected costs of the head, lines `first` and `next`, found "
                                  "none; specrt-eval plan --costs-out and specrt-llama --costs "
                                  "measure it",
                                  path);
}

specrt_status auto_costs_write(const specrt_costs *costs, const char *path, bool force,
                               specrt_error *err) {
    char text[SPECRT_COSTS_BYTES];
    return sl_out_bytes(path, force, text, specrt_costs_text(costs, text), err);
}

specrt_status auto_costs_fit(const specrt_costs *costs, int32_t n_block, const char *file,
                             specrt_error *err) {
    if ((costs->n_block > 0) == (n_block > 0)) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: expected costs of %s, found those of %s; measure this drafter's",
                            file, n_block > 0 ? "a drafter of blocks" : "drafts token by token",
                            n_block > 0 ? "drafts token by token" : "a drafter of blocks");
}

/* A product of n positions, between those that were timed: of 1, 4 and 10. */
static double block_head(const specrt_costs *c, double rows, int32_t n) {
    int32_t w = n > specrt_costs_width(1) ? 2 : 1;
    const specrt_curve *before = w == 1 ? &c->head_first : &c->head_next[w - 1];
    double low = specrt_costs_width(w - 1), at = specrt_curve_at(before, rows);
    double slope = (specrt_curve_at(&c->head_next[w], rows) - at) / (specrt_costs_width(w) - low);
    return at + (slope > 0 ? slope : 0) * (n - low);
}

double auto_head(const specrt_costs *c, double rows, int32_t n, int32_t topk) {
    if (c->n_block > 0) return block_head(c, rows, n);
    return specrt_curve_at(&c->head_first, rows) +
           (n - 1) * specrt_curve_at(specrt_costs_next(c, topk), rows);
}

/* Seconds of cycles; a chain's target reads a node a level. */
double auto_table(const auto_desc *d, double *cycles, double *sunk) {
    const specrt_costs *c = d->costs;
    const specrt_tree_params *tree = d->tree;
    for (int32_t list = 0; list < d->n_lists; list++) {
        *cycles++ = specrt_curve_at(&c->target, 1);
        *sunk++ = 0;
        for (int32_t n = 1; n <= tree->num_steps; n++) {
            double draft = specrt_costs_draft(c, 1, n, tree->topk);
            *sunk++ = c->n_block > 0 ? draft : 0;
            *cycles++ = draft + auto_head(c, d->rows[list], n, tree->topk) +
                        specrt_curve_at(&c->target, specrt_costs_nodes(tree, n));
        }
    }
    return specrt_costs_read_token(c);
}

specrt_status auto_open(const auto_desc *d, specrt_auto **out, specrt_error *err) {
    double cycles[SPECRT_AUTO_MAX_LISTS * (SPECRT_TREE_MAX_STEPS + 1)];
    double sunk[SPECRT_AUTO_MAX_LISTS * (SPECRT_TREE_MAX_STEPS + 1)];
    double read = auto_table(d, cycles, sunk);
    const specrt_auto_desc desc = {.num_steps = d->tree->num_steps,
                                   .n_lists = d->n_lists,
                                   .rows = d->lists,
                                   .costs = cycles,
                                   .read = read,
                                   .keeps_chains = d->costs->keeps_chains && d->tree->topk == 1};
    TRY(specrt_auto_create(&desc, NULL, out, err));
    return specrt_auto_set_sunk(*out, sunk, err); /* fits: parts of the costs */
}

/* ---- lists ---- */

static int32_t halve(int32_t most, int32_t least, int32_t rows[SPECRT_AUTO_MAX_LISTS]) {
    int32_t n = 0;
    for (int32_t size = most; n < SPECRT_AUTO_MAX_LISTS && (n == 0 || size >= least); size /= 2) {
        memmove(rows + 1, rows, (size_t)n++ * sizeof *rows);
        rows[0] = size;
    }
    return n;
}

int32_t auto_lists(const specrt_policy *policy, int32_t rows[SPECRT_AUTO_MAX_LISTS]) {
    const specrt_policy_info *info = specrt_policy_get_info(policy);
    int32_t least = LEAST_ROWS;
    for (int32_t i = least; i < info->n_static; i++)
        if (specrt_policy_ends(policy, info->static_ids[i])) least = i + 1;
    return info->n_static > 0 ? halve(info->n_static, least, rows) : 0;
}

/* Sums and windows that nothing fills up score fewer rows than their bound. */
static int32_t rows_of(const specrt_costs *costs, const specrt_policy *policy) {
    int32_t bound = specrt_policy_get_info(policy)->bound, seen = costs->policy_rows;
    bool known = seen > 0 && strcmp(specrt_policy_get_info(policy)->text, costs->policy) == 0;
    return known && seen < bound ? seen : bound;
}

specrt_status auto_create(const specrt_costs *costs, const specrt_tree_params *tree,
                          const specrt_policy *policy, specrt_auto **out, specrt_error *err) {
    int32_t lists[SPECRT_AUTO_MAX_LISTS], rows[SPECRT_AUTO_MAX_LISTS];
    int32_t n = auto_lists(policy, lists), all = rows_of(costs, policy);
    rows[0] = all;
    for (int32_t i = 0; i < n; i++) {
        int32_t left = all - (lists[n - 1] - lists[i]);
        rows[i] = left > lists[i] ? left : lists[i];
    }
    const auto_desc desc = {.costs = costs,
                            .tree = tree,
                            .rows = rows,
                            .lists = n ? lists : NULL,
                            .n_lists = n ? n : 1};
    return auto_open(&desc, out, err);
}
