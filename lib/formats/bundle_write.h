/* sl_bundle_write.h : create a bundle or replace sections of one, atomically, under a lock. */
#ifndef FORMATS_BUNDLE_WRITE_H
#define FORMATS_BUNDLE_WRITE_H

#include <stdbool.h>
#include "specrt_tools.h"

typedef struct bundle_part {
    const char *tag;
    uint32_t version;
    uint32_t depends; /* SPECRT_SECTION_DEPENDS_*, SPECRT_SECTION_OPTIONAL */
    const void *data; /* borrowed */
    size_t n_bytes;
    /* JSON object text: inputs with digests, parameters, figures; no times, absolute paths or
     * thread counts; NULL: none */
    const char *provenance;
} bundle_part;

typedef struct bundle_update {
    const bundle_part *parts; /* [n_parts] sections to add or replace */
    int n_parts;
    const char *const *drop; /* [n_drop] tags to leave out */
    int n_drop;
    /* merged into the bundle's: a tokenizer or head that differs is an error */
    const specrt_ident *ident;
    bool raw;   /* store raw instead of zstd */
    bool whole; /* nothing of a file that is there stays; replacing it needs force */
    bool force; /* replace a section, or a file that is no bundle */
} bundle_update;

/* sl_bundle_ranks() : the bytes of a "ranks" section, owned (free them); part->data points to them.
 *   ids, counts : [header->n_ranked] by rank */
specrt_status sl_bundle_ranks(const specrt_ranks_header *header, const int32_t *ids,
                              const uint64_t *counts, bundle_part *part, specrt_error *err);

/* sl_bundle_ident_head() : record a head, named by its tensor, with its digest. */
specrt_status sl_bundle_ident_head(specrt_ident *ident, const specrt_head_desc *head,
                                   const char *name, specrt_error *err);

/* sl_bundle_ident_merge() : what `into` does not know yet is taken from `from`.
 *   path : of the bundle, for messages
 * @return BUNDLE_MISMATCH naming both sides when tokenizers or heads differ. */
specrt_status sl_bundle_ident_merge(const char *path, specrt_ident *into, const specrt_ident *from,
                                    specrt_error *err);

/* sl_bundle_write_check(), sl_bundle_ident_check() : what sl_bundle_write() would refuse, before the work
 * that makes the section: a section that is there, or a file that is no bundle, without force; another
 * tokenizer or head. */
specrt_status sl_bundle_write_check(const char *path, const char *tag, bool force,
                                    specrt_error *err);
specrt_status sl_bundle_ident_check(const char *path, const specrt_ident *ident, specrt_error *err);

/* sl_bundle_check_section() : both, where one section is to be written.
 *   path  : NULL: no bundle is asked for, and nothing is checked
 *   ident : NULL: not known yet */
specrt_status sl_bundle_check_section(const char *path, const char *tag, bool force,
                                      const specrt_ident *ident, specrt_error *err);

/* sl_bundle_write() : create `path` or rewrite it with the update applied (temp file, fsync, rename).
 * Waits for another tool that holds the bundle's lock. Same inputs, same bytes. */
specrt_status sl_bundle_write(const char *path, const bundle_update *update, specrt_error *err);

/* sl_bundle_write_section() : the same for one section.
 *   part       : its provenance is not looked at; data NULL: there was no memory for it
 *   provenance : owned, released here; NULL: there was no memory for it */
specrt_status sl_bundle_write_section(const char *path, bool force, const bundle_part *part,
                                      char *provenance, const specrt_ident *ident,
                                      specrt_error *err);

#endif
