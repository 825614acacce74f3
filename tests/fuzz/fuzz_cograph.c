/* fuzz_cograph.c : any bytes either fail to open as a successor graph, or can be walked. */
#include "section_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *memory;
    specrt_cograph graph;
    specrt_bundle *bundle =
        section_open("cograph", SPECRT_SECTION_DEPENDS_TOKENIZER, data, size, &memory);
    if (bundle && specrt_bundle_cograph(bundle, &graph, NULL) == SPECRT_STATUS_OK) {
        int32_t n_vocab = graph.header->n_vocab;
        for (int32_t token = -1; token <= n_vocab; token++) {
            const int32_t *ids;
            const float *counts;
            int32_t n = specrt_cograph_successors(&graph, token, &ids, &counts);
            for (int32_t i = 0; i < n; i++)
                if (ids[i] < 0 || ids[i] >= n_vocab || !(counts[i] > 0)) abort();
        }
        section_serve(bundle, "successor:5", n_vocab, 8, 0);
        section_serve(bundle, "window:4@min=1+retrieve:3", n_vocab, 8, 0);
    }
    specrt_bundle_close(bundle);
    free(memory);
    return 0;
}
