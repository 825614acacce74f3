/* file.c : one file being read: what it holds, its batches, its lines. */
#include "specrt_tools.h"
#include "corpus/corpus_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"

enum { PROBE_RECORDS = 16 };

void sl_corpus_file_release(corpus_open_file *file) {
    if (!file || --file->refs > 0) return;
    sl_corpus_stream_close(&file->stream);
    sl_corpus_window_free(&file->window);
    free(file);
}

static void plan_blocks(corpus_open_file *file) {
    const corpus_format *f = &file->format;
    bool ids = f->kind == KIND_IDS;
    uint64_t end = ids && f->end > 0 ? f->end : file->stream.n_raw, first = ids ? f->first : 0,
             block = ids ? f->group_bytes : CORPUS_BATCH_BYTES;
    file->parallel = file->stream.any_offset && f->kind != KIND_VALUES;
    file->n_blocks = end > first ? (end - first + block - 1) / block : 0;
    sl_corpus_values_begin(&file->scanner, f->first);
}

/* Lines become values like any other. */
static specrt_status split_lines(struct corpus_arena *a, const corpus_range *range) {
    const char *text = a->window.bytes + (range->start - a->window.base);
    size_t n = (size_t)(range->end - range->start);
    specrt_status status = SPECRT_STATUS_OK;
    a->values.n = 0;
    for (size_t at = 0; at < n && status == SPECRT_STATUS_OK;) {
        const char *newline = (const char *)memchr(text + at, '\n', n - at);
        size_t step = newline ? (size_t)(newline - text) - at : n - at, length = step, blanks = 0;
        if (length > 0 && text[at + length - 1] == '\r') length--; /* others split at both, too */
        while (blanks < length && strchr(" \t\r", text[at + blanks]) && text[at + blanks]) blanks++;
        const char *fault = length > CORPUS_CAP_BYTES ? RECORD_TOO_LONG : NULL;
        if (blanks < length)
            status = sl_corpus_values_add(&a->values, (corpus_value_span){at, length, fault, at});
        at += step + 1;
    }
    return status;
}

static specrt_status copy_range(struct corpus_arena *a, const corpus_window *w,
                                const corpus_range *range) {
    size_t n = (size_t)(range->end - range->start), skip = (size_t)(range->start - w->base);
    if (a->window.capacity < n + 4) {
        sl_corpus_window_free(&a->window);
        a->window.bytes = (char *)malloc(n + 4);
        if (!a->window.bytes) return SPECRT_STATUS_NO_MEMORY;
        a->window.capacity = n + 4;
    }
    a->window.base = range->start;
    a->window.n = n;
    a->window.n_lines_before = w->n_lines_before + sl_corpus_count_lines(w->bytes, n ? skip : 0);
    if (n > 0) memcpy(a->window.bytes, w->bytes + skip, n);
    return SPECRT_STATUS_OK;
}

/* frame_in_order() : from the file's window, moving `scanner`. */
static specrt_status frame_in_order(corpus_open_file *file, corpus_value_scanner *scanner,
                                    uint64_t block, struct corpus_arena *a, corpus_range *range,
                                    specrt_error *err) {
    specrt_status status;
    if (file->format.kind == KIND_VALUES) {
        memset(range, 0, sizeof *range);
        range->start = scanner->at;
        status = sl_corpus_values_frame(scanner, &file->window, &file->stream, &a->values, err);
        range->end = scanner->at;
    } else
        status =
            sl_corpus_frame_block(&file->format, &file->window, &file->stream, block, range, err);
    if (status != SPECRT_STATUS_OK) return status;
    status = copy_range(a, &file->window, range);
    return status == SPECRT_STATUS_OK ? status : sl_error_no_memory(err, file->stream.name);
}

specrt_status sl_corpus_file_frame(corpus_open_file *file, uint64_t block, struct corpus_arena *a,
                                   corpus_range *range, specrt_error *err) {
    specrt_status status =
        file->parallel
            ? sl_corpus_frame_block(&file->format, &a->window, &file->stream, block, range, err)
            : frame_in_order(file, &file->scanner, block, a, range, err);
    if (status != SPECRT_STATUS_OK || file->format.kind != KIND_LINES) return status;
    return split_lines(a, range) == SPECRT_STATUS_OK ? status
                                                     : sl_error_no_memory(err, file->stream.name);
}

bool sl_corpus_file_ended(const corpus_open_file *file, const corpus_range *range) {
    if (file->format.kind == KIND_VALUES) return range->start == range->end;
    if (file->format.kind == KIND_IDS && file->format.end > 0)
        return range->start >= file->format.end;
    const corpus_window *w = &file->window;
    return w->ended && range->start >= w->base + w->n;
}

uint64_t sl_corpus_file_position(const corpus_open_file *file) {
    if (!file->stream.any_offset) return sl_corpus_stream_raw_position(&file->stream);
    bool ids = file->format.kind == KIND_IDS;
    uint64_t at = file->parallel
                      ? file->next_block * (ids ? file->format.group_bytes : CORPUS_BATCH_BYTES)
                      : file->scanner.at;
    return at < file->stream.n_raw ? at : file->stream.n_raw;
}

/* A batch of a file that is read in blocks does not know how many lines came before: they are
 * counted again. Only the few records that are shown ask. */
uint64_t sl_corpus_file_line(corpus_open_file *file, const struct corpus_arena *a,
                             uint64_t offset) {
    const corpus_window *w = &a->window;
    if (!file->parallel)
        return w->n_lines_before + sl_corpus_count_lines(w->bytes, (size_t)(offset - w->base)) + 1;
    uint64_t line = 1;
    char *buffer = (char *)malloc(CORPUS_BATCH_BYTES);
    for (uint64_t at = 0; buffer && at < offset;) {
        size_t n = offset - at < CORPUS_BATCH_BYTES ? (size_t)(offset - at) : CORPUS_BATCH_BYTES,
               got;
        if (sl_corpus_stream_read(&file->stream, at, buffer, n, &got, NULL) != SPECRT_STATUS_OK ||
            got == 0)
            break;
        line += sl_corpus_count_lines(buffer, got);
        at += got;
    }
    free(buffer);
    return line;
}

/* try_records() : refuse JSON of which none of the first records holds text. */
static specrt_status try_records(corpus_open_file *file, struct corpus_arena *a,
                                 const corpus_range *range, const corpus_options *options,
                                 char refusal[512]) {
    specrt_status status = SPECRT_STATUS_BAD_INPUT;
    corpus_doc base = {0};
    char why[256];
    size_t n = a->values.n < PROBE_RECORDS ? a->values.n : PROBE_RECORDS;
    for (size_t i = 0; i < n && status == SPECRT_STATUS_BAD_INPUT; i++) {
        const corpus_value_span *span = &a->values.spans[i];
        char *text = a->window.bytes + (range->start + span->at - a->window.base);
        if (span->fault)
            snprintf(why, sizeof why, "%s", span->fault);
        else
            status = sl_corpus_record_parse(a, text, span->n, options, &base, why);
        if (status == SPECRT_STATUS_BAD_INPUT && !refusal[0])
            snprintf(
                refusal, 512, "%s:%llu: %s; expected %s", file->stream.name,
                (unsigned long long)sl_corpus_file_line(file, a, range->start + span->fault_at),
                why, RECORD_SHAPES);
    }
    if (status != SPECRT_STATUS_BAD_INPUT) refusal[0] = '\0';
    return status == SPECRT_STATUS_NO_MEMORY ? status : SPECRT_STATUS_OK;
}

static specrt_status probe(corpus_open_file *file, const corpus_options *options, char refusal[512],
                           specrt_error *err) {
    corpus_value_scanner scanner = file->scanner;
    corpus_range range;
    struct corpus_arena *a = (struct corpus_arena *)calloc(1, sizeof *a);
    if (!a) return sl_error_no_memory(err, file->stream.name);
    specrt_error broken = {0};
    specrt_status status = frame_in_order(file, &scanner, 0, a, &range, &broken);
    if (status == SPECRT_STATUS_BAD_INPUT && file->stream.codec == CODEC_NONE) {
        snprintf(refusal, 512, "%s",
                 broken.msg); /* a broken array; in a folder it is passed over */
        status = SPECRT_STATUS_OK;
    } else if (status != SPECRT_STATUS_OK) {
        if (err) *err = broken;
    } else {
        if (file->format.kind == KIND_LINES) status = split_lines(a, &range);
        if (status == SPECRT_STATUS_OK) status = try_records(file, a, &range, options, refusal);
        if (status != SPECRT_STATUS_OK) sl_error_no_memory(err, file->stream.name);
    }
    sl_corpus_arena_free(a);
    return status;
}

static specrt_status check_size(const corpus_open_file *file, specrt_error *err) {
    uint64_t end = file->format.end, found = file->stream.n_raw;
    if (!file->stream.any_offset || found >= end) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: the file is cut short; expected %llu bytes, found %llu",
                            file->stream.name, (unsigned long long)end, (unsigned long long)found);
}

specrt_status sl_corpus_file_open(const char *path, const uint8_t *bytes, size_t n,
                                  const corpus_options *options, corpus_open_file **out,
                                  char refusal[512], specrt_error *err) {
    *out = NULL;
    refusal[0] = '\0';
    corpus_open_file *file = (corpus_open_file *)calloc(1, sizeof *file);
    if (!file) return sl_error_no_memory(err, path);
    file->refs = 1;
    specrt_status status = sl_corpus_stream_open(&file->stream, path, bytes, n, err);
    if (status == SPECRT_STATUS_OK)
        status = sl_corpus_window_fill(&file->window, &file->stream, CORPUS_HEAD_BYTES, err);
    if (status == SPECRT_STATUS_OK)
        status = sl_corpus_format_tell(&file->format, path, file->window.bytes, file->window.n,
                                       options, err);
    if (status == SPECRT_STATUS_OK) {
        status = check_size(file, err);
        if (!file->format.refusal) plan_blocks(file);
        corpus_kind kind = file->format.kind;
        if (file->format.refusal)
            snprintf(refusal, 512, "%s: %s", file->stream.name, file->format.refusal);
        else if (status == SPECRT_STATUS_OK && (kind == KIND_LINES || kind == KIND_VALUES))
            status = probe(file, options, refusal, err);
    }
    if (file->parallel) sl_corpus_window_free(&file->window);
    if (status == SPECRT_STATUS_OK)
        *out = file;
    else
        sl_corpus_file_release(file);
    return status;
}
