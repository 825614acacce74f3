/* bundle_open.c : see bundle_open.h. */
#include "formats/bundle_open.h"

#include <string.h>
#include "base/io.h"

specrt_status sl_bundle_open_for(const char *path, const uint8_t sha256[32], specrt_bundle **out,
                                 specrt_error *err) {
    static const uint8_t unknown[32] = {0};
    *out = NULL;
    if (!path) return SPECRT_STATUS_OK;
    TRY(specrt_bundle_open(path, NULL, out, err));
    if (memcmp(sha256, unknown, sizeof unknown) == 0) return SPECRT_STATUS_OK;
    return specrt_bundle_check_tokenizer(*out, sha256, err);
}
