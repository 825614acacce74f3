/* fuzz_bundle.c : bundles from hostile bytes, as they come and again with their checksums made right. */
#include "specrt_tools.h"
#include "sources/ranks.h"

#include "fixture.h"

/* Reads every byte a bundle offers and scores a list of its tokens. */
static void use(const specrt_bundle *bundle) {
    static const float zeros[1000][32];
    static volatile unsigned sink;
    const char *const clustered[] = {"cluster", "group", "centroid"};
    uint8_t digest[32] = {1};
    specrt_clusters clusters;
    float logits[1000], logprobs[4];
    int32_t n = 0, ids[4];
    const specrt_bundle_section *s = specrt_bundle_sections(bundle, &n);
    for (int32_t i = 0; i < n; i++) {
        char tag[9] = {0};
        size_t n_bytes;
        memcpy(tag, s[i].tag, 8);
        const uint8_t *p = (const uint8_t *)specrt_bundle_data(bundle, tag, &n_bytes);
        for (size_t k = 0; k < n_bytes; k++) sink += p[k];
    }
    specrt_bundle_check_tokenizer(bundle, digest, NULL);
    for (int i = 0; i < 3; i++) specrt_bundle_clusters(bundle, clustered[i], &clusters, NULL);
    specrt_head_desc desc = {
        .rows = zeros, .dtype = SPECRT_DTYPE_F32, .n_rows = 1000, .n_cols = 32};
    specrt_head *head;
    specrt__ranks_order order;
    specrt__ranks_list *list;
    specrt_head_bind(bundle, &desc, NULL, &head, NULL);
    if (!head) specrt_head_bind(NULL, &desc, NULL, &head, NULL);
    if (specrt__ranks_of_bundle(bundle, &order, NULL) == SPECRT_STATUS_OK &&
        specrt__ranks_create(&order, head, 0, &list, NULL) == SPECRT_STATUS_OK) {
        const specrt_shortlist *shortlist = &list->shortlist;
        specrt_shortlist_logits(shortlist, zeros[0], 1, logits);
        specrt_shortlist_topk(shortlist, logits, 1, shortlist->n_rows < 4 ? shortlist->n_rows : 4,
                              ids, logprobs);
        specrt__ranks_free(list);
    }
    specrt_head_close(head);
}

static void open_and_use(const uint8_t *bytes, size_t n) {
    specrt_bundle *bundle;
    specrt_error err;
    if (specrt_bundle_open_memory(bytes, n, "fuzz", NULL, &bundle, &err) == SPECRT_STATUS_OK)
        use(bundle);
    specrt_bundle_close(bundle);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = (uint8_t *)malloc(size ? size : 1);
    if (size > 0) memcpy(copy, data, size);
    open_and_use(copy, size);
    if (size >= sizeof(specrt_bundle_header)) {
        uint64_t file_bytes = size;
        memcpy(copy + offsetof(specrt_bundle_header, file_bytes), &file_bytes, 8);
        fixture_seal(copy, size);
        open_and_use(copy, size);
    }
    free(copy);
    return 0;
}
