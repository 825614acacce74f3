/* costs.c : see costs.h. */
#include "specrt_tools.h"
#include "engine/infer/costs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/io.h"
#include "base/json.h"

const int32_t pass_widths[PASS_WIDTHS] = {1, 4, 10};

/* ---- to JSON ---- */

static json_object *json_curve(const curve *c, const char *size) {
    json_object *points = json_object_new_array();
    for (int i = 0; i < c->n; i++) {
        json_object *o = json_object_new_object();
        sl_json_put(o, size, sl_json_whole((uint64_t)c->x[i]));
        sl_json_put(o, "seconds", sl_json_real(c->y[i]));
        json_object_array_add(points, o);
    }
    return points;
}

void pass_costs_put(const pass_costs *costs, json_object *o) {
    json_object *heads = json_object_new_array();
    for (int w = 0; w < PASS_WIDTHS; w++) {
        json_object *head = json_object_new_object();
        sl_json_put(head, "topk", sl_json_whole((uint64_t)pass_widths[w]));
        sl_json_put(head, "points", json_curve(&costs->head[w], "rows"));
        json_object_array_add(heads, head);
    }
    sl_json_put(o, "head_first", json_curve(&costs->head_first, "rows"));
    sl_json_put(o, "head", heads);
    sl_json_put(o, "draft", json_curve(&costs->draft, "tokens"));
    sl_json_put(o, "target", json_curve(&costs->target, "nodes"));
    if (costs->keeps_chains) sl_json_put(o, "keeps_chains", json_object_new_boolean(true));
    if (costs->policy[0]) sl_json_put(o, "policy", sl_json_text(costs->policy));
    if (costs->policy_rows)
        sl_json_put(o, "policy_rows", sl_json_whole((uint64_t)costs->policy_rows));
}

/* ---- from a file ---- */

static specrt_status bad_points(const char *path, const char *key, const char *size,
                                specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: %s: expected 1 to %d objects with %s and seconds, both above 0 "
                            "and sizes ascending",
                            path, key, CURVE_MOST, size);
}

/* [{SIZE: n, "seconds": s}, ...] */
static specrt_status take_points(const char *path, json_object *points, const char *key,
                                 const char *size, curve *out, specrt_error *err) {
    size_t n = json_object_is_type(points, json_type_array) ? json_object_array_length(points) : 0;
    if (n < 1 || n > CURVE_MOST) return bad_points(path, key, size, err);
    for (size_t i = 0; i < n; i++) {
        json_object *point = json_object_array_get_idx(points, i), *x, *y;
        if (!json_object_is_type(point, json_type_object) ||
            !json_object_object_get_ex(point, size, &x) ||
            !json_object_object_get_ex(point, "seconds", &y) ||
            json_object_get_int64(x) > INT32_MAX ||
            !((double)json_object_get_int64(x) > (i ? out->x[i - 1] : 0)) ||
            !(json_object_get_double(y) > 0) || isinf(json_object_get_double(y)))
            return bad_points(path, key, size, err);
        sl_curve_add(out, (double)json_object_get_int64(x), json_object_get_double(y));
    }
    sl_curve_make_monotone(out);
    return SPECRT_STATUS_OK;
}

static specrt_status take_curve(const char *path, json_object *o, const char *key, const char *size,
                                curve *out, specrt_error *err) {
    json_object *points = NULL;
    json_object_object_get_ex(o, key, &points);
    return take_points(path, points, key, size, out, err);
}

/* One curve for each width, by its topk. */
static specrt_status take_head(const char *path, json_object *o, int width, curve *out,
                               specrt_error *err) {
    json_object *heads = NULL, *topk, *points;
    json_object_object_get_ex(o, "head", &heads);
    size_t n = json_object_is_type(heads, json_type_array) ? json_object_array_length(heads) : 0;
    for (size_t i = 0; i < n; i++) {
        json_object *head = json_object_array_get_idx(heads, i);
        if (json_object_is_type(head, json_type_object) &&
            json_object_object_get_ex(head, "topk", &topk) &&
            json_object_get_int(topk) == pass_widths[width] &&
            json_object_object_get_ex(head, "points", &points))
            return take_points(path, points, "head", "rows", out, err);
    }
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: head: expected points for a topk of %d, found none", path,
                            (int)pass_widths[width]);
}

/* One that parses; files of specrt-llama --costs have none. */
static specrt_status take_policy(const char *path, json_object *o, pass_costs *out,
                                 specrt_error *err) {
    json_object *policy;
    specrt_error why = {0};
    if (!json_object_object_get_ex(o, "policy", &policy)) return SPECRT_STATUS_OK;
    const char *text = json_object_get_string(policy);
    if (!json_object_is_type(policy, json_type_string) || strlen(text) >= sizeof out->policy)
        snprintf(why.msg, sizeof why.msg, "policy: expected a text that names one, found none");
    else
        (void)specrt_policy_check(text, &why);
    if (why.msg[0])
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: %s; specrt-eval plan --costs-out writes a new file", path,
                                why.msg);
    snprintf(out->policy, sizeof out->policy, "%s", text);
    return SPECRT_STATUS_OK;
}

static specrt_status take_policy_rows(const char *path, json_object *o, pass_costs *out,
                                      specrt_error *err) {
    json_object *rows;
    if (!json_object_object_get_ex(o, "policy_rows", &rows)) return SPECRT_STATUS_OK;
    int64_t n = json_object_get_int64(rows);
    if (!json_object_is_type(rows, json_type_int) || n < 1 || n > INT32_MAX)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: policy_rows: expected a whole number from 1 to %d; "
                                "specrt-eval plan --costs-out writes a new file",
                                path, INT32_MAX);
    out->policy_rows = (int32_t)n;
    return SPECRT_STATUS_OK;
}

static specrt_status take_all(const char *path, json_object *o, pass_costs *out,
                              specrt_error *err) {
    TRY(take_curve(path, o, "head_first", "rows", &out->head_first, err));
    for (int w = 0; w < PASS_WIDTHS; w++) TRY(take_head(path, o, w, &out->head[w], err));
    TRY(take_curve(path, o, "draft", "tokens", &out->draft, err));
    json_object *keeps = NULL;
    out->keeps_chains =
        json_object_object_get_ex(o, "keeps_chains", &keeps) && json_object_get_boolean(keeps);
    TRY(take_policy(path, o, out, err));
    TRY(take_policy_rows(path, o, out, err));
    return take_curve(path, o, "target", "nodes", &out->target, err);
}

specrt_status pass_costs_read(const char *path, pass_costs *out, specrt_error *err) {
    file_view view;
    *out = (pass_costs){.file = path};
    TRY(sl_file_map(path, &view, err));
    char *text = strndup(view.n ? (const char *)view.bytes : "", view.n);
    sl_file_unmap(&view);
    if (!text) return sl_error_no_memory(err, path);
    json_object *o = json_tokener_parse(text);
    free(text);
    specrt_status status =
        json_object_is_type(o, json_type_object)
            ? take_all(path, o, out, err)
            : specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                               "%s: expected the JSON object that specrt-eval plan --costs-out "
                               "or specrt-llama --costs writes",
                               path);
    json_object_put(o);
    return status;
}

specrt_status pass_costs_write(const pass_costs *costs, const char *path, bool force,
                               specrt_error *err) {
    json_object *o = json_object_new_object();
    pass_costs_put(costs, o);
    char *text = sl_json_to_text(o);
    if (!text) return sl_error_no_memory(err, path);
    specrt_status status = sl_out_bytes(path, force, text, strlen(text), err);
    free(text);
    return status;
}
