/* bundle_file.h : an open bundle together with its file, for sections that the runtime skips: optional
 * ones of a later version. They can be taken apart and moved like any other. */
#ifndef SPECRT_BUNDLE_BUNDLE_FILE_H
#define SPECRT_BUNDLE_BUNDLE_FILE_H

#include "base/io.h"
#include "specrt_tools.h"

typedef struct bundle_file {
    const char *path; /* borrowed */
    file_view file;
    specrt_bundle *bundle;
} bundle_file;

specrt_status bundle_file_open(const char *path, bundle_file *out, specrt_error *err);
void bundle_file_close(bundle_file *b);

/* bundle_file_section() : the decompressed bytes of a section; *owned is NULL, or holds them and must be
 * freed. */
specrt_status bundle_file_section(const bundle_file *b, const specrt_bundle_section *section,
                                  const void **data, void **owned, specrt_error *err);

#endif
