/* bundle_open.c : see bundle_open.h. */
#include "formats/bundle_open.h"

#include <string.h>
#include "base/error.h"
#include "specrt_tools.h"

specrt_status sl_bundle_open_for(const char *path, const uint8_t sha256[32], specrt_bundle **out,
                                 specrt_error *err) {
    static const uint8_t unknown[32] = {0};
    *out = NULL;
    if (!path) return SPECRT_STATUS_OK;
    TRY(specrt_bundle_open(path, NULL, out, err));
    if (memcmp(sha256, unknown, sizeof unknown) == 0) return SPECRT_STATUS_OK;
    return specrt_bundle_check_tokenizer(*out, sha256, err);
}

bool sl_bundle_ends(const specrt_bundle *bundle, int32_t token) {
    specrt_ranks ranks;
    if (!bundle || specrt_bundle_ranks(bundle, &ranks, NULL) != SPECRT_STATUS_OK) return false;
    for (int32_t i = 0; i < ranks.header->n_terminators; i++)
        if (ranks.ids[i] == token) return true;
    return false;
}
