/* fuzz_sketch.c : any bytes either fail to open as a sketch, or name rows. */
#include "section_target.h"

static void open_as(uint32_t version, const uint8_t *data, size_t size) {
    static const char *const texts[] = {"sketch:5", "sketch:3@signs=32@scan=9", "sketch:4@keep=9",
                                        "sketch:4@clusters=2"};
    uint8_t *memory;
    specrt_sketch s;
    specrt_bundle *bundle =
        section_open_version("sketch", version, SPECRT_SECTION_DEPENDS_HEAD, data, size, &memory);
    if (bundle && specrt_bundle_sketch(bundle, &s, NULL) == SPECRT_STATUS_OK)
        for (int i = 0; i < 4; i++)
            section_serve(bundle, texts[i], s.header->n_rows, s.header->n_cols, 0);
    specrt_bundle_close(bundle);
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    open_as(4, data, size); /* of version 3, too, which has no clusters */
    return 0;
}
