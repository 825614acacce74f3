/* saved.h : the words of 32 bits of a saved session (docs/FORMAT.md, "Saved sessions"), as sources write and
 * read their own */
#ifndef SOURCES_SAVED_H
#define SOURCES_SAVED_H

#include "core/base.h"

/* Bytes of the header that belong to sources. */
enum {
    SPECRT__SAVED_P = 64,    /* f64: retrieval's p */
    SPECRT__SAVED_FILL = 80, /* i32: ranks that fill up the window */
    SPECRT__SAVED_EVENTS =
        84, /* i32: events of retrieval, of which more than the warm-up are alike */
    SPECRT__SAVED_HEADER = 104
};

/* Lists of `retrieve`, which every save has, also of a program without it. */
enum { SPECRT__SAVED_RETRIEVAL = 5 };

typedef struct specrt__save {
    uint8_t *bytes; /* NULL: words are only counted */
    size_t n;
} specrt__save;

static inline void specrt__save_word(specrt__save *out, int32_t word) {
    if (out->bytes) memcpy(out->bytes + out->n, &word, 4);
    out->n += 4;
}

/* A list: its length, then its words. */
static inline void specrt__save_list(specrt__save *out, const int32_t *words, int32_t n) {
    specrt__save_word(out, n);
    for (int32_t i = 0; i < n; i++) specrt__save_word(out, words[i]);
}

static inline void specrt__save_header(specrt__save *out, size_t at, const void *value, size_t n) {
    if (out->bytes) memcpy(out->bytes + at, value, n);
}

typedef struct specrt__saved_list {
    const uint8_t *words;
    int32_t n; /* within the limits that the source named */
} specrt__saved_list;

typedef struct specrt__saved {
    const uint8_t *header;           /* [SPECRT__SAVED_HEADER] */
    const specrt__saved_list *lists; /* those of the source */
} specrt__saved;

static inline int32_t specrt__saved_word(const specrt__saved_list *list, int32_t i) {
    return (int32_t)specrt__base_load32(list->words + 4 * (size_t)i);
}

/* Whether all words are from 0 on and below `end`. */
static inline bool specrt__saved_within(const specrt__saved_list *list, int32_t end) {
    for (int32_t i = 0; i < list->n; i++)
        if (specrt__saved_word(list, i) < 0 || specrt__saved_word(list, i) >= end) return false;
    return true;
}

#endif
