/* ranks.c : owns the static source: a prefix of a ranking, packed once and shared by all sessions. The
 * ranking is the bundle's, which was checked when the bundle was opened, or the application's, which is
 * checked here. Refuses sizes outside the ranking's limits and ids beyond the head. */
#include "sources/ranks.h"
#include "core/base.h"
#include "core/os.h"
#include "core/bundle.h"
#include "core/head.h"
#include "core/pool.h"
#include "sources/source.h"

/* Where the arrays of a list of n rows lie in its block; rows at the next multiple of 64 in memory. */
typedef struct specrt__ranks_layout {
    size_t row_stride, ids, bias, rows, end;
} specrt__ranks_layout;

static bool specrt__ranks_lay_out(const specrt_head *head, int32_t n, specrt__ranks_layout *out) {
    size_t stride = specrt_row_bytes(specrt__head_packed_dtype(head), head->desc.n_cols);
    uint64_t bytes = (uint64_t)n * (stride + sizeof(int32_t) + sizeof(float)) + 4096;
    if (bytes > PTRDIFF_MAX) return false; /* of an address of 32 bits */
    out->row_stride = stride;
    out->ids = sizeof(specrt__ranks_list);
    out->bias = out->ids + (size_t)n * sizeof(int32_t);
    out->rows = out->bias + (size_t)n * sizeof(float);
    out->end = out->rows + 63 + stride * (size_t)n;
    return true;
}

/* --- rankings --- */

SPECRT__INTERNAL specrt_status specrt__ranks_of_bundle(const specrt_bundle *bundle,
                                                       specrt__ranks_order *out,
                                                       specrt_error *err) {
    specrt_ranks ranks;
    if (!bundle)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                                "static: needs a bundle with section 'ranks' (in C and Python, a "
                                "list in `ids` will do); vocabtrim-calibrate builds it");
    SPECRT__TRY(specrt_bundle_ranks(bundle, &ranks, err));
    out->name = bundle->name;
    out->ids = ranks.ids;
    out->n = ranks.header->n_valid;
    out->n_forced = ranks.header->n_forced;
    out->n_default = ranks.header->n_default;
    out->n_vocab = ranks.header->n_vocab;
    out->mismatch = SPECRT_STATUS_BUNDLE_MISMATCH;
    return SPECRT_STATUS_OK;
}

/* seen : u8 [n_vocab / 8 + 1] zeros */
static specrt_status specrt__ranks_check_ids(const specrt_policy_desc *desc, int32_t n_vocab,
                                             uint8_t *seen, specrt_error *err) {
    const int32_t *ids = desc->ids;
    for (int32_t i = 0; i < desc->n_ids; i++) {
        int32_t before = 0;
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "ids: entry %d: expected a token from 0 to %d (n_vocab - 1), "
                                    "found %d",
                                    (int)i, (int)n_vocab - 1, (int)ids[i]);
        bool twice = seen[ids[i] / 8] >> (ids[i] % 8) & 1;
        while (twice && ids[before] != ids[i]) before++;
        if (twice)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "ids: expected distinct tokens, found %d at entries %d and %d",
                                    (int)ids[i], (int)before, (int)i);
        seen[ids[i] / 8] = (uint8_t)(seen[ids[i] / 8] | 1u << (ids[i] % 8));
    }
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_status specrt__ranks_of_ids(const specrt_policy_desc *desc, int32_t n_vocab,
                                                    const specrt_env *env, specrt__ranks_order *out,
                                                    specrt_error *err) {
    size_t n = (size_t)n_vocab / 8 + 1;
    uint8_t *seen = (uint8_t *)specrt__base_alloc(env, n);
    if (!seen) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "ids: out of memory");
    memset(seen, 0, n);
    specrt_status status = specrt__ranks_check_ids(desc, n_vocab, seen, err);
    specrt__base_free(env, seen);
    out->name = "ids";
    out->ids = desc->ids;
    out->n = out->n_default = desc->n_ids;
    out->n_forced = 0;
    out->n_vocab = n_vocab;
    out->mismatch = SPECRT_STATUS_BAD_ARG;
    return status;
}

SPECRT__INTERNAL specrt_status specrt__ranks_size(const specrt__ranks_order *order, int32_t size,
                                                  int32_t *out, specrt_error *err) {
    int32_t least = order->n_forced > 1 ? order->n_forced : 1;
    *out = size == 0 ? order->n_default : size;
    if (*out >= least && *out <= order->n) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "%s: static: size: expected %d (%d forced tokens) to %d, or none for "
                            "the default %d, found %d",
                            order->name, (int)least, (int)order->n_forced, (int)order->n,
                            (int)order->n_default, (int)size);
}

/* --- lists --- */

/* A list keeps the tokens that have a row. @return how many of ids [n], which `out` takes if not NULL. */
static int32_t specrt__ranks_keep(const specrt_head *head, const int32_t *ids, int32_t n,
                                  int32_t *out) {
    int32_t n_kept = 0;
    for (int32_t i = 0; i < n; i++) {
        if (specrt__head_row_of(head, ids[i]) < 0) continue;
        if (out) out[n_kept] = ids[i];
        n_kept++;
    }
    return n_kept;
}

/* A head with ids of its own leaves tokens out on purpose, but not all. */
static specrt_status specrt__ranks_check_rows(const specrt__ranks_order *order,
                                              const specrt_head *head, int32_t n,
                                              specrt_error *err) {
    const int32_t *ids = order->ids;
    for (int32_t i = 0; i < n && !head->row_of; i++)
        if (ids[i] >= head->n_ids)
            return specrt_error_set(err, order->mismatch,
                                    "%s: static: token %d: expected an id below the head's %d "
                                    "rows; use the list made for this model",
                                    order->name, (int)ids[i], (int)head->n_ids);
    if (specrt__ranks_keep(head, ids, n, NULL) > 0) return SPECRT_STATUS_OK;
    return specrt_error_set(err, order->mismatch,
                            "%s: static: expected the head to have rows for some of its %d tokens, "
                            "found none",
                            order->name, (int)n);
}

static void specrt__ranks_fill(specrt__ranks_list *list, const specrt_head *head,
                               const int32_t *ids, int32_t n_ids, int32_t n,
                               const specrt__ranks_layout *at) {
    uint8_t *block = (uint8_t *)list;
    int32_t *own_ids = (int32_t *)(void *)(block + at->ids);
    float *bias = head->desc.bias ? (float *)(void *)(block + at->bias) : NULL;
    memset(list, 0, sizeof *list);
    specrt__ranks_keep(head, ids, n_ids, own_ids);
    uint8_t *rows = (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)(block + at->rows), 64);
    specrt__pool_packing packing = {head, own_ids, n, rows, at->row_stride, bias, NULL};
    specrt__pool_pack(&packing);
    list->env = head->compute.env;
    list->segment.rows = packing.rows;
    list->segment.row_stride = at->row_stride;
    list->segment.ids = own_ids;
    list->segment.bias = bias;
    list->segment.dtype = specrt__head_packed_dtype(head);
    list->segment.n_rows = n;
    list->shortlist.compute = &head->compute;
    list->shortlist.segments = &list->segment;
    list->shortlist.n_segments = 1;
    list->shortlist.n_rows = n;
    list->shortlist.n_cols = head->desc.n_cols;
    list->shortlist.head = head;
}

/* The tokens of ids [n_ids] that have rows.
 * @return NULL when memory or the address space do not hold them. */
SPECRT__INTERNAL specrt__ranks_list *specrt__ranks_pack(const specrt_head *head, const int32_t *ids,
                                                        int32_t n_ids) {
    specrt__ranks_layout at;
    int32_t n = specrt__ranks_keep(head, ids, n_ids, NULL);
    if (!specrt__ranks_lay_out(head, n, &at)) return NULL;
    specrt__ranks_list *list = (specrt__ranks_list *)specrt__base_alloc(&head->compute.env, at.end);
    if (!list) return NULL;
    specrt__os_advise_huge(list, at.end);
    specrt__ranks_fill(list, head, ids, n_ids, n, &at);
    return list;
}

SPECRT__INTERNAL specrt_status specrt__ranks_create(const specrt__ranks_order *order,
                                                    const specrt_head *head, int32_t size,
                                                    specrt__ranks_list **out, specrt_error *err) {
    int32_t n;
    *out = NULL;
    SPECRT__TRY(specrt__ranks_size(order, size, &n, err));
    SPECRT__TRY(specrt__ranks_check_rows(order, head, n, err));
    *out = specrt__ranks_pack(head, order->ids, n);
    if (!*out)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "%s: static: out of memory for %d rows", order->name, (int)n);
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL void specrt__ranks_free(specrt__ranks_list *list) {
    if (!list) return;
    specrt_env env = list->env;
    specrt__base_free(&env, list);
}

/* --- a size for every level: the rows of all are fixed, the others are routed --- */

/* sizes [n] count ranks; a head with ids of its own has rows for some of them. */
SPECRT__INTERNAL void specrt__ranks_set_levels(specrt__ranks_list *list, const specrt_head *head,
                                               const int32_t *ids, const int32_t *sizes,
                                               int32_t n) {
    list->n_levels = n;
    list->n_always = list->segment.n_rows;
    for (int32_t i = 0; i < n; i++) {
        list->levels[i] = specrt__ranks_keep(head, ids, sizes[i], NULL);
        if (list->levels[i] < list->n_always) list->n_always = list->levels[i];
    }
}

static void specrt__ranks_unshare(void *shared) {
    specrt__ranks_free((specrt__ranks_list *)shared);
}

static void specrt__ranks_route(void *state, const specrt__source_level *level,
                                specrt__source_routed *out) {
    const specrt__ranks_list *list = (const specrt__ranks_list *)state;
    int32_t i = level->level < list->n_levels ? level->level : list->n_levels - 1;
    specrt_segment rest = list->segment;
    rest.rows = (const uint8_t *)rest.rows + (size_t)list->n_always * rest.row_stride;
    rest.ids += list->n_always;
    if (rest.bias) rest.bias += list->n_always;
    rest.n_rows = list->levels[i] - list->n_always;
    (void)specrt__source_route(out, &rest); /* fits: the policy's bound has room for the largest */
}

/* Its list is made with its sizes, by >>policy. */
SPECRT__INTERNAL const specrt__source specrt__ranks_levels = {
    SPECRT__SOURCE_HAS_NO_OPTIONS,
    /* share = */ NULL,
    /* unshare = */ specrt__ranks_unshare,
    /* open = */ NULL,
    /* close = */ NULL,
    /* route = */ specrt__ranks_route,
    SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING,
};
