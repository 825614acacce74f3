/* stream.h : the content of one input, a file, a pipe or memory, gzip and zstd unpacked on
 * the way. Packed data that is cut or damaged is an error, never an end. */
#ifndef CORPUS_STREAM_H
#define CORPUS_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "specrt.h"

typedef enum corpus_codec { CODEC_NONE, CODEC_GZIP, CODEC_ZSTD } corpus_codec;

typedef struct corpus_stream {
    const char *name; /* borrowed, for messages */
    int fd;           /* -1: memory */
    const uint8_t *memory;
    uint64_t n_raw;  /* size of a regular file or memory */
    bool sized;      /* n_raw is known: not a pipe */
    bool any_offset; /* sized and not packed: readable anywhere, from any thread */
    corpus_codec codec;
    void *decoder; /* z_stream or ZSTD_DStream; NULL between gzip members */
    uint8_t *in;   /* raw bytes read ahead */
    size_t in_at, in_n;
    uint64_t raw_at; /* raw bytes read from the file, those in `in` included */
    bool in_frame;   /* inside a gzip member or zstd frame */
} corpus_stream;

/* sl_corpus_stream_open() : path (or "-"), or memory when bytes != NULL; the codec is told by its magic. */
specrt_status sl_corpus_stream_open(corpus_stream *s, const char *name, const uint8_t *bytes,
                                    size_t n, specrt_error *err);
void sl_corpus_stream_close(corpus_stream *s);

/* sl_corpus_stream_read() : content at `offset`; less than n bytes only at the end. Unless any_offset is set,
 * calls must come in order without gaps. */
specrt_status sl_corpus_stream_read(corpus_stream *s, uint64_t offset, void *out, size_t n,
                                    size_t *got, specrt_error *err);
uint64_t sl_corpus_stream_raw_position(const corpus_stream *s); /* of what was read in order */

#endif
