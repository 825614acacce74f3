/* id_ranges.c : see id_ranges.h. */
#include "counts/id_ranges.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/io.h"

/* Marks ids and ranges separated by commas or white space. NULL at the end of good text, else where it
 * stops being any.
 *   marks : [n_vocab] */
static const char *mark_ids(const char *text, int32_t n_vocab, uint8_t *marks) {
    static const char between[] = ", \t\r\n";
    for (text += strspn(text, between); *text; text += strspn(text, between)) {
        char *end;
        if (!isdigit((unsigned char)*text)) return text;
        long long first = strtoll(text, &end, 10), last = first;
        if (*end == '-' && isdigit((unsigned char)end[1])) last = strtoll(end + 1, &end, 10);
        if (last < first || last >= n_vocab || (*end && !strchr(between, *end))) return text;
        while (first <= last) marks[first++] = 1;
        text = end;
    }
    return NULL;
}

static specrt_status mark_list(const char *text, const char *where, int32_t n_vocab, uint8_t *marks,
                               specrt_error *err) {
    const char *stop = mark_ids(text, n_vocab, marks);
    if (!stop) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "%s: expected ids below %" PRId32 " as in 5,7-9, found '%.20s'", where,
                            n_vocab, stop);
}

static specrt_status mark_file(const char *path, int32_t n_vocab, uint8_t *marks,
                               specrt_error *err) {
    file_view view;
    TRY(sl_file_map(path, &view, err));
    char *text = strndup(view.n ? (const char *)view.bytes : "", view.n);
    specrt_status status =
        text ? mark_list(text, path, n_vocab, marks, err) : sl_error_no_memory(err, NULL);
    if (status == SPECRT_STATUS_BAD_ARG) err->status = status = SPECRT_STATUS_BAD_INPUT;
    free(text);
    sl_file_unmap(&view);
    return status;
}

static specrt_status take_marks(const uint8_t *marks, int32_t n_vocab, id_list *out,
                                specrt_error *err) {
    out->ids = (int32_t *)calloc((size_t)n_vocab, sizeof *out->ids);
    if (!out->ids) return sl_error_no_memory(err, NULL);
    for (int32_t id = 0; id < n_vocab; id++)
        if (marks[id]) out->ids[out->n++] = id;
    return SPECRT_STATUS_OK;
}

specrt_status sl_id_ranges_read(const char *flag, const char *text, int32_t n_vocab, id_list *out,
                                specrt_error *err) {
    uint8_t *marks = (uint8_t *)calloc((size_t)n_vocab, 1);
    *out = (id_list){0};
    if (!marks) return sl_error_no_memory(err, NULL);
    specrt_status status = text[strspn(text, "0123456789,- ")]
                               ? mark_file(text, n_vocab, marks, err)
                               : mark_list(text, flag, n_vocab, marks, err);
    if (status == SPECRT_STATUS_OK) status = take_marks(marks, n_vocab, out, err);
    free(marks);
    return status;
}
