/* id_ranges.c : see id_ranges.h. */
#include "counts/id_ranges.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/io.h"
#include "base/order.h"

/* Ids and ranges separated by commas or white space; NULL at the end of good text, else where it
 * stops being any. */
static const char *parse_ids(const char *text, int32_t n_vocab, id_list *out, bool *no_memory) {
    static const char *const between = ", \t\r\n";
    for (text += strspn(text, between); *text; text += strspn(text, between)) {
        char *end;
        if (*text < '0' || *text > '9') return text;
        long long first = strtoll(text, &end, 10), last = first;
        if (*end == '-' && end[1] >= '0' && end[1] <= '9') last = strtoll(end + 1, &end, 10);
        if (last < first || last >= n_vocab || (*end && !strchr(between, *end))) return text;
        size_t n = out->n + (size_t)(last - first) + 1;
        int32_t *grown = (int32_t *)realloc(out->ids, n * sizeof *grown);
        if (!grown) return *no_memory = true, text;
        out->ids = grown;
        while (first <= last) out->ids[out->n++] = (int32_t)first++;
        text = end;
    }
    return NULL;
}

static specrt_status parse_list(const char *text, const char *where, int32_t n_vocab, id_list *out,
                                specrt_error *err) {
    bool no_memory = false;
    const char *stop = parse_ids(text, n_vocab, out, &no_memory);
    if (no_memory) return sl_error_no_memory(err, NULL);
    if (stop)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: expected ids below %" PRId32 " as in 5,7-9, found '%.20s'",
                                where, n_vocab, stop);
    return SPECRT_STATUS_OK;
}

static specrt_status list_file(const char *path, int32_t n_vocab, id_list *out, specrt_error *err) {
    file_view view;
    TRY(sl_file_map(path, &view, err));
    char *text = (char *)calloc(view.n + 1, 1);
    specrt_status status = SPECRT_STATUS_NO_MEMORY;
    if (text) {
        if (view.n) memcpy(text, view.bytes, view.n);
        status = parse_list(text, path, n_vocab, out, err);
        if (status == SPECRT_STATUS_BAD_ARG) err->status = status = SPECRT_STATUS_BAD_INPUT;
    } else {
        sl_error_no_memory(err, NULL);
    }
    free(text);
    sl_file_unmap(&view);
    return status;
}

specrt_status sl_id_ranges_read(const char *flag, const char *text, int32_t n_vocab, id_list *out,
                                specrt_error *err) {
    *out = (id_list){0};
    bool is_list = strspn(text, "0123456789,- ") == strlen(text);
    specrt_status status =
        is_list ? parse_list(text, flag, n_vocab, out, err) : list_file(text, n_vocab, out, err);
    if (status != SPECRT_STATUS_OK) {
        free(out->ids);
        *out = (id_list){0};
        return status;
    }
    size_t n = 0;
    if (out->n) qsort(out->ids, out->n, sizeof *out->ids, sl_order_i32);
    for (size_t i = 0; i < out->n; i++)
        if (n == 0 || out->ids[n - 1] != out->ids[i]) out->ids[n++] = out->ids[i];
    out->n = n;
    return SPECRT_STATUS_OK;
}
