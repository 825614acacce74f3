/* fuzz_hnsw.c : any bytes either fail to open as an index, or a search of them ends, with rows of the
 * head, none twice. */
#include "section_target.h"

enum { MAX_DIM = 64, MAX_K = 40 };

static void search(const specrt_hnsw *index, int32_t k, int32_t ef) {
    static const float zeros[MAX_DIM];
    int32_t ids[MAX_K], n_rows = index->header->n_rows;
    float scores[MAX_K];
    void *scratch = malloc(specrt_hnsw_scratch_bytes(index, ef));
    for (int i = 0; i < 3; i++) {
        const float *query = i == 2 ? zeros : section_weights() + i;
        int32_t n = specrt_hnsw_search(index, query, k, ef, ids, scores, scratch);
        if (n > k) abort();
        for (int32_t r = 0; r < n; r++) {
            if (ids[r] < 0 || ids[r] >= n_rows) abort();
            for (int32_t before = 0; before < r; before++)
                if (ids[before] == ids[r]) abort();
        }
    }
    free(scratch);
}

static void open_index(const specrt_bundle *bundle, const specrt_head *head) {
    specrt_hnsw index;
    if (specrt_bundle_hnsw(bundle, head, &index, NULL)) return;
    if (index.header->dim > MAX_DIM) return;
    search(&index, 1, 1);
    search(&index, 3, 12);
    search(&index, MAX_K, 64);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *memory;
    specrt_head *head;
    const specrt_head_desc desc = {.rows = section_weights(), .n_rows = 40, .n_cols = 16};
    specrt_bundle *bundle = section_open("hnsw", SPECRT_SECTION_DEPENDS_HEAD, data, size, &memory);
    if (bundle) {
        open_index(bundle, NULL);
        if (specrt_head_bind(NULL, &desc, NULL, &head, NULL)) abort();
        open_index(bundle, head);
        specrt_head_close(head);
    }
    specrt_bundle_close(bundle);
    free(memory);
    return 0;
}
