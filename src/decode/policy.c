/* policy.c */
#include "decode/policy.h"
#include "core/base.h"
#include "core/bundle.h"
#include "core/head.h"
#include "sources/source.h"
#include "sources/ranks.h"

/* --- what sessions share --- */

static specrt_status specrt__policy_resolve_vocab(specrt_policy *p, const specrt_bundle *bundle,
                                                  int32_t n_vocab, specrt_error *err) {
    const specrt_ident *ident = bundle ? specrt_bundle_ident(bundle) : NULL;
    specrt_ranks ranks;
    int32_t least = 1, most = p->head->row_of ? SPECRT_MAX_VOCAB : p->head->n_ids;
    p->n_vocab = n_vocab;
    if (bundle && specrt_bundle_ranks(bundle, &ranks, NULL) == SPECRT_STATUS_OK) {
        const specrt_ranks_header *h = ranks.header;
        p->frequent = ranks.ids + h->n_forced;
        p->n_frequent = h->n_valid - h->n_forced;
        p->invalid = ranks.ids + h->n_valid;
        p->n_invalid = h->n_ranked - h->n_valid;
        least = h->n_vocab;
    }
    if (p->n_vocab == 0 && ident) p->n_vocab = ident->n_vocab; /* 0 where no tokenizer was known */
    if (p->n_vocab == 0) p->n_vocab = least > 1 ? least : p->head->n_ids;
    if (n_vocab == 0 && p->n_vocab < least) p->n_vocab = least;
    if (!p->frequent) p->n_frequent = p->n_vocab;
    if (least > most)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: expected a head with rows for its %d tokens, found %d rows; "
                                "use the bundle made for this model",
                                bundle->name, (int)least, (int)most);
    if (p->n_vocab < least || p->n_vocab > most)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG, "n_vocab: expected %d%s to %s%d%s, found %d", (int)least,
            least > 1 ? " (the bundle's)" : "", p->head->row_of ? "" : "the head's ", (int)most,
            p->head->row_of ? "" : " rows", (int)p->n_vocab);
    if (p->head->row_of && p->n_vocab < p->head->n_ids)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "head: expected rows of tokens below %d, found one of %d",
                                (int)p->n_vocab, (int)p->head->n_ids - 1);
    return SPECRT_STATUS_OK;
}

/* Ids of rows that are their numbers. */
static specrt_status specrt__policy_number_rows(specrt_policy *p, specrt_error *err) {
    p->full_ids = (int32_t *)specrt__base_alloc(&p->env, (size_t)p->n_vocab * sizeof(int32_t));
    if (!p->full_ids) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "out of memory");
    for (int32_t i = 0; i < p->n_vocab; i++) p->full_ids[i] = i;
    return SPECRT_STATUS_OK;
}

/* All tokens that have rows: the head itself, or its rows decoded. */
static specrt_status specrt__policy_make_full(specrt_policy *p, specrt_error *err) {
    const specrt_head_desc *head = &p->head->desc;
    if (!head->ids) SPECRT__TRY(specrt__policy_number_rows(p, err));
    p->fixed.rows = head->rows;
    p->fixed.row_stride = head->row_stride;
    p->fixed.ids = head->ids ? head->ids : p->full_ids;
    p->fixed.bias = head->bias;
    p->fixed.dtype = head->dtype;
    p->fixed.n_rows = head->ids ? (int32_t)head->n_rows : p->n_vocab;
    if (specrt__head_packed_dtype(p->head) == head->dtype) return SPECRT_STATUS_OK;
    p->list = specrt__ranks_pack(p->head, p->fixed.ids, p->fixed.n_rows);
    if (!p->list)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "full: out of memory for %d rows",
                                (int)p->fixed.n_rows);
    p->fixed = p->list->segment;
    return SPECRT_STATUS_OK;
}

/* Only what every level holds stays fixed; the list goes to the source that routes the rest. */
static void specrt__policy_make_levels(specrt_policy *p, const specrt__policy_source *source,
                                       const int32_t *ids) {
    specrt__ranks_set_levels(p->list, p->head, ids, source->levels, source->n_levels);
    p->routed_bound += p->fixed.n_rows - p->list->n_always;
    p->fixed.n_rows = p->list->n_always;
    p->sources[p->n_sources].kind = SPECRT__POLICY_STATIC;
    p->sources[p->n_sources].source = &specrt__ranks_levels;
    p->sources[p->n_sources++].shared.data = p->list;
    p->list = NULL;
}

/* A list that no source takes would be ignored. */
static specrt_status specrt__policy_check_arrays(const specrt_policy_desc *desc, bool taken,
                                                 specrt_error *err) {
    if (desc->n_terminators < 0 || (desc->n_terminators > 0 && !desc->terminators))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "terminators: expected n_terminators tokens, found %s and %d",
                                desc->terminators ? "a list" : "NULL", (int)desc->n_terminators);
    if (desc->n_ids < 0 || (desc->n_ids > 0) != (desc->ids != NULL))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "ids: expected n_ids tokens, or NULL and 0, found %s and %d",
                                desc->ids ? "a list" : "NULL", (int)desc->n_ids);
    if (!desc->ids || taken) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "ids: expected source static, which takes them, found a policy "
                            "without it; add it or pass no ids");
}

static specrt_status specrt__policy_make_static(specrt_policy *p, const specrt_bundle *bundle,
                                                const specrt_policy_desc *desc,
                                                specrt__policy_source *source, specrt_error *err) {
    specrt__ranks_order order;
    SPECRT__TRY(desc->ids ? specrt__ranks_of_ids(desc, p->n_vocab, &p->env, &order, err)
                          : specrt__ranks_of_bundle(bundle, &order, err));
    if (source->size < 0) source->size = -source->size < order.n ? -source->size : order.n;
    SPECRT__TRY(specrt__ranks_size(&order, source->size, &source->size, err));
    int32_t most = source->size;
    for (int32_t i = 1; i < source->n_levels; i++) {
        int32_t *size = &source->levels[i];
        SPECRT__TRY(specrt__ranks_size(&order, *size, size, err));
        if (*size > most) most = *size;
    }
    SPECRT__TRY(specrt__ranks_create(&order, p->head, most, &p->list, err));
    p->fixed = p->list->segment;
    if (source->n_levels > 0) specrt__policy_make_levels(p, source, order.ids);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__policy_share(specrt_policy *p, int kind,
                                          const specrt__source_request *request,
                                          specrt_error *err) {
    const specrt__source *source = specrt__policy_kinds[kind].source;
    specrt__source_shared *shared = &p->sources[p->n_sources].shared;
    if (request->bundle && specrt__policy_kinds[kind].of_head)
        SPECRT__TRY(specrt__head_check(request->bundle, &p->head->desc, err));
    SPECRT__TRY(source->share(request, shared, err));
    p->sources[p->n_sources].kind = kind;
    p->sources[p->n_sources++].source = source;
    *(source->route ? &p->routed_bound : &p->packed_bound) += shared->bound;
    if (shared->in_head) p->in_head = true;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__policy_make_sources(specrt_policy *p, const specrt_bundle *bundle,
                                                 const specrt_policy_desc *desc,
                                                 const specrt__policy_spec *spec,
                                                 specrt_error *err) {
    specrt__source_request request = {bundle, p->head, desc, p->frequent, p->n_frequent, 0, NULL};
    for (int kind = 0; kind < (int)SPECRT__POLICY_KINDS; kind++) {
        request.size = spec->sources[kind].size;
        request.options = spec->sources[kind].options;
        if (spec->sources[kind].present && specrt__policy_kinds[kind].source)
            SPECRT__TRY(specrt__policy_share(p, kind, &request, err));
    }
    return SPECRT_STATUS_OK;
}

static bool specrt__policy_holds(const int32_t *ids, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

static specrt_status specrt__policy_add_terminators(specrt_policy *p, const int32_t *ids, int32_t n,
                                                    specrt_error *err) {
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= p->n_vocab)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "terminator: expected a token from 0 to %d, found %d",
                                    (int)p->n_vocab - 1, (int)ids[i]);
        if (specrt__policy_holds(p->ends, p->n_ends, ids[i])) continue;
        if (p->n_ends == SPECRT_MAX_TERMINATORS)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "terminators: expected at most %d, found more",
                                    SPECRT_MAX_TERMINATORS);
        p->ends[p->n_ends++] = ids[i];
        if (specrt__head_row_of(p->head, ids[i]) >= 0 &&
            !specrt__policy_holds(p->fixed.ids, p->fixed.n_rows, ids[i]))
            p->terminators[p->n_terminators++] = ids[i];
    }
    return SPECRT_STATUS_OK;
}

static void specrt__policy_tell_source(specrt_policy_info *info, int kind,
                                       const specrt__source *source,
                                       const specrt__source_shared *shared) {
    if (source->observe) info->learns = 1;
    if (source->route) info->by_level = 1;
    if (source->route && kind != SPECRT__POLICY_STATIC) info->by_path = 1;
    if (shared->reads_states) info->by_states = 1;
    if (shared->keeps) info->keeps = 1;
    if (shared->reads_prompt) info->needs_prompt_logits = 1;
    if (shared->reads_tree) info->needs_tree_rows = 1;
    if (shared->reads_input) info->needs_draft_input = 1;
    if (shared->submits) info->needs_submit = 1;
    if (shared->hidden_width > 0) info->hidden_width = shared->hidden_width;
}

/* What applications ask of it. */
static void specrt__policy_tell(specrt_policy *p, bool is_full) {
    specrt_policy_info *info = &p->info;
    info->text = p->text;
    info->bound = p->bound + p->routed_bound;
    info->n_packed = p->bound - p->fixed.n_rows;
    info->is_full = is_full;
    for (int i = 0; i < p->n_sources; i++)
        specrt__policy_tell_source(info, p->sources[i].kind, p->sources[i].source,
                                   &p->sources[i].shared);
    if (p->list && !is_full) {
        info->n_static = p->fixed.n_rows;
        info->static_ids = p->fixed.ids;
    }
    if (p->n_sources > 0 || p->n_terminators > 0) return;
    p->shortlist.compute = &p->head->compute;
    p->shortlist.segments = &p->fixed;
    p->shortlist.n_segments = 1;
    p->shortlist.n_rows = p->fixed.n_rows;
    p->shortlist.n_cols = p->head->desc.n_cols;
    p->shortlist.head = p->head;
    info->shortlist = &p->shortlist;
}

static specrt_status specrt__policy_make(specrt_policy *p, const specrt_bundle *bundle,
                                         const specrt_policy_desc *desc, specrt__policy_spec *spec,
                                         specrt_error *err) {
    specrt_ranks ranks;
    specrt__policy_source *list = &spec->sources[SPECRT__POLICY_STATIC];
    SPECRT__TRY(specrt__policy_resolve_vocab(p, bundle, desc->n_vocab, err));
    SPECRT__TRY(specrt__policy_check_arrays(desc, list->present, err));
    if (spec->sources[SPECRT__POLICY_FULL].present) SPECRT__TRY(specrt__policy_make_full(p, err));
    if (list->present) SPECRT__TRY(specrt__policy_make_static(p, bundle, desc, list, err));
    SPECRT__TRY(specrt__policy_make_sources(p, bundle, desc, spec, err));
    if (p->frequent && specrt_bundle_ranks(bundle, &ranks, err) == SPECRT_STATUS_OK)
        SPECRT__TRY(specrt__policy_add_terminators(p, ranks.ids, ranks.header->n_terminators, err));
    SPECRT__TRY(specrt__policy_add_terminators(p, desc->terminators, desc->n_terminators, err));
    int64_t bound = (int64_t)p->fixed.n_rows + p->packed_bound + p->n_terminators;
    int32_t most = p->head->row_of ? (int32_t)p->head->desc.n_rows : p->n_vocab;
    p->bound = bound < most ? (int32_t)bound : most;
    specrt__policy_print(spec, p->text);
    specrt__policy_tell(p, spec->sources[SPECRT__POLICY_FULL].present);
    return SPECRT_STATUS_OK;
}

/* Of several policies an application knows which could not be made. */
static void specrt__policy_blame(const char *text, specrt_error *err) {
    specrt_error why;
    if (!err) return;
    why = *err;
    specrt_error_set(err, why.status, "policy '%.100s': %s", text, why.msg);
}

SPECRT_API specrt_status specrt_policy_create(const specrt_bundle *bundle, const specrt_head *head,
                                              const specrt_policy_desc *desc, specrt_policy **out,
                                              specrt_error *err) {
    specrt__policy_spec spec;
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(head);
    SPECRT__NEED(desc);
    SPECRT__NEED(desc->text);
    const char *text = desc->text;
    SPECRT__TRY(specrt__policy_parse(text, &spec, err));
    specrt_policy *p =
        (specrt_policy *)specrt__base_alloc(&head->compute.env, sizeof(specrt_policy));
    if (!p)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "policy '%.100s': out of memory",
                                text);
    memset(p, 0, sizeof *p);
    p->env = head->compute.env;
    p->head = head;
    specrt_status status = specrt__policy_make(p, bundle, desc, &spec, err);
    if (status == SPECRT_STATUS_OK)
        *out = p;
    else
        specrt__policy_blame(text, err), specrt_policy_close(p);
    return status;
}

SPECRT_API void specrt_policy_close(specrt_policy *policy) {
    if (!policy) return;
    specrt_env env = policy->env;
    for (int i = 0; i < policy->n_sources; i++)
        if (policy->sources[i].source->unshare)
            policy->sources[i].source->unshare(policy->sources[i].shared.data);
    specrt__ranks_free(policy->list);
    specrt__base_free(&env, policy->full_ids);
    specrt__base_free(&env, policy);
}

SPECRT_API const specrt_policy_info *specrt_policy_get_info(const specrt_policy *policy) {
    return policy ? &policy->info : NULL;
}

SPECRT_API int specrt_policy_ends(const specrt_policy *policy, int32_t token) {
    return policy && specrt__policy_holds(policy->ends, policy->n_ends, token);
}
