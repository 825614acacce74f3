/* fuzz_cluster.c : any bytes either fail to open as clusters, or route. */
#include "section_target.h"

#include <stdio.h>

static void route(const char *tag, const uint8_t *data, size_t size) {
    uint8_t *memory;
    specrt_clusters c;
    char text[64];
    static const char *const formats[] = {
        "%s@always=0", "%s:2@schedule=harmonic@beam=per_row@cap=9", "%s:1@beam=per_row@cap=30"};
    specrt_bundle *bundle = section_open(tag, SPECRT_SECTION_DEPENDS_HEAD, data, size, &memory);
    if (bundle && specrt_bundle_clusters(bundle, tag, &c, NULL) == SPECRT_STATUS_OK)
        for (int i = 0; i < 3; i++) {
            snprintf(text, sizeof text, formats[i], tag);
            section_serve(bundle, text, c.header->n_rows, c.header->n_cols, c.header->n_embed);
        }
    specrt_bundle_close(bundle);
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const tags[] = {"cluster", "group", "centroid"};
    for (int i = 0; i < 3; i++) route(tags[i], data, size);
    return 0;
}
