/* bundle_write.h : create a bundle or replace sections of one, atomically, under a lock. */
#ifndef BUNDLE_WRITE_H
#define BUNDLE_WRITE_H

#include <stdbool.h>
#include "specrt.h"

typedef struct bundle_part {
    const char *tag;
    uint32_t version;
    uint32_t depends; /* SPECRT_SECTION_DEPENDS_*, SPECRT_SECTION_OPTIONAL */
    const void *data; /* borrowed */
    size_t n_bytes;
    const char *provenance; /* JSON object text: inputs with digests, parameters, figures; no times,
                             * absolute paths or thread counts; NULL: none */
} bundle_part;

typedef struct bundle_update {
    const bundle_part *parts; /* [n_parts] sections to add or replace */
    int n_parts;
    const char *const *drop; /* [n_drop] tags to leave out */
    int n_drop;
    const specrt_ident
        *ident; /* merged into the bundle's: a tokenizer or head that differs is an error */
    bool raw;   /* store raw instead of zstd */
    bool whole; /* nothing of a file that is there stays; replacing it needs force */
    bool force; /* replace a section, or a file that is no bundle */
} bundle_update;

/* bundle_ranks() : the bytes of a "ranks" section, owned (free them); part->data points to them.
 *   ids, counts : [header->n_ranked] by rank */
specrt_status bundle_ranks(const specrt_ranks_header *header, const int32_t *ids,
                           const uint64_t *counts, bundle_part *part, specrt_error *err);

/* bundle_ident_head() : record a head, named by its tensor, with its sketch. */
specrt_status bundle_ident_head(specrt_ident *ident, const specrt_head_desc *head, const char *name,
                                specrt_error *err);

/* bundle_ident_merge() : what `into` does not know yet is taken from `from`.
 *   path : of the bundle, for messages
 * @return BUNDLE_MISMATCH naming both sides when tokenizers or heads differ. */
specrt_status bundle_ident_merge(const char *path, specrt_ident *into, const specrt_ident *from,
                                 specrt_error *err);

/* bundle_write_check(), bundle_ident_check() : what bundle_write() would refuse, before the work that
 * makes the section: a section that is there, or a file that is no bundle, without force; another
 * tokenizer or head. */
specrt_status bundle_write_check(const char *path, const char *tag, bool force, specrt_error *err);
specrt_status bundle_ident_check(const char *path, const specrt_ident *ident, specrt_error *err);

/* bundle_write() : create `path` or rewrite it with the update applied (temp file, fsync, rename).
 * Waits for another tool that holds the bundle's lock. Same inputs, same bytes. */
specrt_status bundle_write(const char *path, const bundle_update *update, specrt_error *err);

#endif
