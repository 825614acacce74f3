/* bundle.h : an open bundle, for the files that read its sections */
#ifndef CORE_BUNDLE_H
#define CORE_BUNDLE_H

#include "core/os.h"

struct specrt_bundle {
    specrt_env env;
    specrt__os_map map; /* of a bundle opened by path */
    const uint8_t *bytes;
    uint64_t n_bytes;
    const specrt_bundle_section *sections; /* [n_sections], in bytes */
    int32_t n_sections;
    const void *data[SPECRT_BUNDLE_MAX_SECTIONS]; /* in bytes or in decoded */
    uint8_t *decoded;                             /* all zstd sections, owned */
    char name[256];                               /* path, for messages */
};

/* --- section contents --- */

static inline specrt_status specrt__bundle_bad(const specrt_bundle *b, const char *tag,
                                               const char *wrong, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BUNDLE_CONTENT, "%s: section '%s': %s", b->name, tag,
                            wrong);
}

/* --- views --- */

/* The version of a section that it has. */
static inline uint32_t specrt__bundle_version(const specrt_bundle *bundle, const char *tag) {
    for (int32_t i = 0; i < bundle->n_sections; i++)
        if (strncmp(bundle->sections[i].tag, tag, 8) == 0) return bundle->sections[i].version;
    return 0;
}

SPECRT__INTERNAL specrt_status specrt__bundle_missing(const specrt_bundle *bundle, const char *tag,
                                                      specrt_error *err);

#endif
