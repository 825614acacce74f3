/* own.c : our engine as a backend. The drafter is one behind the target (Li et al. 2024): its input at
 * position i is the pair of token i + 1 and the target's feature at i, so a feature waits for the token
 * that follows it. Of a prompt t0 t1 t2, the root t3 that the target drew behind it, and a draft a b of
 * which a is accepted and c is drawn in place of b:
 *
 *     the target reads             t0        t1        t2   |   t3       a      b
 *     its features                 f0        f1        f2   |   f3       fa
 *     the drafter reads        (t1,f0)   (t2,f1)
 *     level 0 of the draft                         (t3,f2)              its output drafts a
 *     emitted                                                   a        c
 *     level 0 of the next draft                              (a,f3)   (c,fa)    the last output drafts
 *
 * So `pairs` holds the features of the kept nodes, and `emitted` the tokens that go with them, node by
 * node; the pairs replace what the drafter had guessed in its cache by the target's true features. Cycles
 * without a draft add to them. An independent drafter reads the same tokens without features, and the first
 * token of the prompt too. A block drafter reads f0 f1 f2 with the prompt, drafts from t3 alone, and reads f3
 * fa once they are known. */
#include "engine/backend/own.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/measure.h"
#include "base/memory.h"

typedef struct own_backend {
    backend base;
    const engine_model *target;
    const engine_drafter *drafter; /* NULL: none */
    int32_t n_context;             /* of caches, as asked for */
    engine_model *opened_target;   /* NULL: borrowed, as the next */
    engine_drafter *opened_drafter;
} own_backend;

typedef struct own {
    sequence base;
    const engine_model *target;
    const engine_drafter *drafter; /* NULL: none */
    engine_cache *cache, *draft_cache;
    int32_t n_logits, d_model, width; /* width: of a target feature */
    int32_t d_draft;                  /* of the drafter's hidden states */
    int32_t tap_layers[ENGINE_MAX_TAPS], n_taps;
    float *logits;   /* [ENGINE_MAX_BATCH, n_logits] */
    float *final;    /* [ENGINE_MAX_BATCH, d_model] hidden states of the target's last batch */
    float *features; /* [ENGINE_MAX_BATCH, width] its taps; without any, `final` */
    float *pairs;    /* [ENGINE_MAX_BATCH, width] features that go with the emitted tokens */
    float *hidden[2],
        *head_input; /* [ENGINE_MAX_BATCH, d_draft] of the drafter, this level and what fed it */
    int32_t emitted[SPECRT_TREE_MAX_NODES], n_emitted; /* that the drafter has not read yet */
    int32_t *unread, n_unread; /* [n_context + tree] the same, before those, of a late reader */
    bool drafted;              /* it has read them, for the cycle at hand */
    int32_t before, n_open; /* nodes of the drafter's cache: where the last level began, how many */
    engine_controller *controller; /* NULL: the drafter stays as it is */
    const specrt_session *session; /* that it learns from */
    bool sampled;                  /* drafts are */
    engine_block block;            /* the drafter's; size 0: it drafts token by token */
    char fault[128];
} own;

/* ---- the two models -------------------------------------------------------------------------- */

static int fail(own *o, const char *model, specrt_status status) {
    if (status != SPECRT_STATUS_OK)
        snprintf(o->fault, sizeof o->fault, "%s: a pass failed: %s", model,
                 specrt_status_name(status));
    return (int)status;
}

/* Damaged matrices, which loading does not read through, show in what the models answer. */
static specrt_status check_finite(own *o, const char *model, const float *values, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (isnan(values[i]) || values[i] == INFINITY) {
            snprintf(o->fault, sizeof o->fault,
                     "%s: its answer to the prompt is not finite; its weights are damaged", model);
            return SPECRT_STATUS_BAD_INPUT;
        }
    return SPECRT_STATUS_OK;
}

/* A drafter that has learnt too fast proposes nothing; that is no fault of its file. */
static specrt_status check_drafter(own *o) {
    if (o->controller || engine_cache_length(o->draft_cache) == 0) return SPECRT_STATUS_OK;
    return check_finite(o, "drafter", o->hidden[0], o->d_draft);
}

static void keep_first(engine_cache *c, int32_t n) {
    int32_t nodes[ENGINE_MAX_BATCH];
    for (int32_t i = 0; i < n; i++) nodes[i] = i;
    engine_keep(c, nodes, n);
}

/* Extend the drafter's past by pairs (token, feature of the position before). */
static specrt_status feed_pairs(own *o, const int32_t *tokens, const float *features, int32_t n) {
    engine_cache_truncate(o->draft_cache,
                          engine_cache_length(o->draft_cache)); /* drop the old tree */
    TRY(engine_draft(o->drafter, o->draft_cache, tokens, features, o->width, n, NULL, o->hidden[0],
                     o->head_input));
    keep_first(o->draft_cache, n);
    if (o->controller) engine_controller_draft_input(o->controller, n);
    return SPECRT_STATUS_OK;
}

static void leave_unread(own *o, const int32_t *tokens, int32_t n) {
    memcpy(o->unread + o->n_unread, tokens, (size_t)n * sizeof *tokens);
    o->n_unread += n;
}

/* An independent drafter has no use for features. */
static specrt_status read_late(own *o) {
    if (o->n_unread == 0) return SPECRT_STATUS_OK;
    for (int32_t done = 0, n; done < o->n_unread; done += n) {
        n = o->n_unread - done < ENGINE_MAX_BATCH ? o->n_unread - done : ENGINE_MAX_BATCH;
        TRY(feed_pairs(o, o->unread + done, o->pairs, n));
    }
    o->n_unread = 0;
    return check_drafter(o);
}

/* The hidden states of the rows' parents feed the pass. Rows follow nodes [before, ...) of the drafter's
 * cache, or its past. */
static specrt_status draft_level(own *o, const specrt_beam *beam) {
    int32_t parents[ENGINE_MAX_BATCH];
    size_t width = (size_t)o->d_draft;
    for (int32_t i = 0; i < beam->n; i++) {
        memcpy(o->hidden[1] + (size_t)i * width, o->hidden[0] + (size_t)beam->parents[i] * width,
               width * sizeof(float));
        parents[i] = o->before < 0 ? -1 : o->before + beam->parents[i];
    }
    o->before = o->n_open;
    o->n_open += beam->n;
    return engine_draft(o->drafter, o->draft_cache, beam->tokens, o->hidden[1], o->d_draft, beam->n,
                        parents, o->hidden[0], o->head_input);
}

/* What was emitted since the last draft, after a prompt the root alone, extends the drafter's past;
 * its last row drafts. */
static specrt_status draft_root(own *o, int32_t root) {
    TRY(read_late(o));
    if (o->n_emitted == 0) o->emitted[o->n_emitted++] = root;
    int32_t n = o->n_emitted;
    size_t last = (size_t)(n - 1) * (size_t)o->d_draft, bytes = (size_t)o->d_draft * sizeof(float);
    TRY(feed_pairs(o, o->emitted, o->pairs, n));
    memmove(o->hidden[0], o->hidden[0] + last, bytes);
    memmove(o->head_input, o->head_input + last, bytes);
    o->before = -1;
    o->n_open = 0;
    o->drafted = true;
    return SPECRT_STATUS_OK;
}

/* ---- block drafters -------------------------------------------------------------------------- */

static int draft_block(void *user, int32_t root, int32_t n, specrt_block *block) {
    own *o = (own *)user;
    const engine_block *b = &o->block;
    int32_t size = (int32_t)o->base.host.n_context - engine_cache_length(o->draft_cache);
    if (size > b->size) size = b->size;
    if (n > size - b->first) n = size - b->first;
    specrt_status status = engine_block_draft(o->drafter, o->draft_cache, root, n, o->head_input);
    if (status != SPECRT_STATUS_OK) return fail(o, "drafter", status);
    block->n = n;
    block->hidden = o->head_input;
    block->by_position = o->base.by_position;
    block->confidence = b->confidence;
    block->confidence_bias = b->confidence_bias;
    return (int)check_finite(o, "drafter", o->head_input, n * o->d_draft);
}

/* Of the kept nodes. */
static specrt_status read_kept(own *o, const specrt_verdict *verdict) {
    size_t width = (size_t)o->width;
    for (int32_t i = 0; i < verdict->n; i++)
        memcpy(o->pairs + (size_t)i * width, o->features + (size_t)verdict->nodes[i] * width,
               width * sizeof(float));
    return engine_block_read(o->drafter, o->draft_cache, o->pairs, verdict->n);
}

/* ---- callbacks ------------------------------------------------------------------------------- */

/* Pairs of a chunk: its last feature waits for the token that follows. */
static specrt_status prefill_drafter(own *o, const int32_t *tokens, int32_t n) {
    size_t width = (size_t)o->width, bytes = width * sizeof(float), before = (size_t)(n - 1);
    bool first = engine_cache_length(o->cache) == n;
    specrt_status status = SPECRT_STATUS_OK;
    if (o->block.size) return engine_block_read(o->drafter, o->draft_cache, o->features, n);
    if (engine_drafter_is_model(o->drafter)) return feed_pairs(o, tokens, o->features, n);
    if (!first) {
        memcpy(o->pairs + width, o->features, before * bytes);
        status = feed_pairs(o, tokens, o->pairs, n);
    } else if (n > 1) {
        status = feed_pairs(o, tokens + 1, o->features, n - 1);
    }
    memcpy(o->pairs, o->features + before * width, bytes);
    return status;
}

static int target_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                          const float **logits) {
    own *o = (own *)user;
    const float *last = o->logits + (all ? (size_t)(n - 1) * (size_t)o->n_logits : 0);
    specrt_status status =
        engine_forward(o->cache, tokens, n, NULL, o->final, all ? o->logits : NULL);
    if (status != SPECRT_STATUS_OK) return fail(o, "target", status);
    if (!all)
        engine_score(o->target, o->final + (size_t)(n - 1) * (size_t)o->d_model, 1, o->logits);
    keep_first(o->cache, n);
    *logits = o->logits;
    status = check_finite(o, "target", last, o->n_logits);
    if (status != SPECRT_STATUS_OK || !o->drafter || o->base.is_plain) return (int)status;
    if (o->base.reads_late && engine_drafter_is_model(o->drafter))
        return leave_unread(o, tokens, n), 0;
    if (o->controller) engine_controller_prompt(o->controller);
    status = prefill_drafter(o, tokens, n);
    if (o->block.size) return fail(o, "drafter", status);
    return status == SPECRT_STATUS_OK ? (int)check_drafter(o) : fail(o, "drafter", status);
}

static int draft_step(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                      const float **draft_input) {
    own *o = (own *)user;
    specrt_status status = level == 0 ? draft_root(o, beam->tokens[0]) : draft_level(o, beam);
    if (status != SPECRT_STATUS_OK) return o->fault[0] ? (int)status : fail(o, "drafter", status);
    *hidden = o->head_input;
    if (o->controller) engine_controller_drafted(o->controller, level, beam, o->head_input);
    if (level > 0)
        *draft_input = o->hidden[1];
    else if (o->width == o->d_draft) /* EAGLE-3 fuses three features into what it reads */
        *draft_input = o->pairs + (size_t)(o->n_emitted - 1) * (size_t)o->width;
    return 0;
}

static int target_verify(void *user, const specrt_draft *draft, const float **logits) {
    own *o = (own *)user;
    *logits = o->logits;
    return fail(
        o, "target",
        engine_forward(o->cache, draft->tokens, draft->n, draft->parents, o->final, o->logits));
}

/* What waits for a drafter that was not asked goes on; where there is no more room, it reads. */
static specrt_status make_room(own *o, int32_t n) {
    specrt_status status = SPECRT_STATUS_OK;
    if (!o->drafted && o->n_emitted + n <= SPECRT_TREE_MAX_NODES) return status;
    if (!o->drafted && o->n_unread > 0)
        leave_unread(o, o->emitted, o->n_emitted);
    else if (!o->drafted)
        status = feed_pairs(o, o->emitted, o->pairs, o->n_emitted);
    o->n_emitted = 0;
    o->drafted = false;
    return status;
}

/* Features of the kept nodes wait for the tokens that follow them. */
static specrt_status add_emitted(own *o, int32_t root, const specrt_verdict *verdict) {
    size_t width = (size_t)o->width;
    if (o->n_emitted == 0 && !o->drafted) o->emitted[o->n_emitted++] = root;
    TRY(make_room(o, verdict->n));
    memcpy(o->emitted + o->n_emitted, verdict->tokens, (size_t)verdict->n * sizeof *o->emitted);
    for (int32_t i = 0; i < verdict->n; i++)
        memcpy(o->pairs + (size_t)(o->n_emitted + i) * width,
               o->features + (size_t)verdict->nodes[i] * width, width * sizeof(float));
    o->n_emitted += verdict->n;
    return SPECRT_STATUS_OK;
}

static int commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    own *o = (own *)user;
    engine_keep(o->cache, verdict->nodes, verdict->n);
    if (!o->drafter || o->base.is_plain) return 0;
    specrt_status status =
        o->block.size ? read_kept(o, verdict) : add_emitted(o, draft->tokens[0], verdict);
    if (status != SPECRT_STATUS_OK || !o->controller) return fail(o, "drafter", status);
    double began = sl_measure_seconds();
    engine_controller_verified(o->controller, o->session, o->sampled, draft, verdict, o->final,
                               o->logits);
    o->base.learning += sl_measure_seconds() - began;
    return 0;
}

static int target_hidden(void *user, const float **hidden, int32_t *width) {
    const own *o = (const own *)user;
    *hidden = o->final;
    *width = o->d_model;
    return 0;
}

/* ---- sequences ------------------------------------------------------------------------------- */

static const char A_SEQUENCE[] = "a sequence";

static specrt_status new_rows(float **rows, int32_t width, specrt_error *err) {
    return sl_new(rows, ENGINE_MAX_BATCH * (size_t)width, sizeof(float), A_SEQUENCE, err);
}

static void free_sequence(sequence *s) {
    own *o = (own *)s;
    free(o->logits);
    if (o->features != o->final) free(o->features);
    free(o->final);
    free(o->pairs);
    free(o->hidden[0]);
    free(o->hidden[1]);
    free(o->head_input);
    free(o->unread);
    engine_cache_close(o->cache);
    engine_cache_close(o->draft_cache);
    free(o);
}

static specrt_status create_drafting(own *o, int32_t n_context, specrt_error *err) {
    specrt_head_desc head;
    engine_drafter_head(o->drafter, &head);
    o->d_draft = (int32_t)head.n_cols;
    o->block = engine_drafter_block(o->drafter);
    if (o->block.size) o->base.host.draft_block = draft_block;
    o->n_taps = engine_drafter_features(o->drafter, o->tap_layers);
    if (o->n_taps) o->width = o->n_taps * o->d_model;
    TRY(engine_drafter_cache(o->drafter, n_context, &o->draft_cache, err));
    TRY(new_rows(&o->pairs, o->width, err));
    TRY(new_rows(&o->hidden[0], o->d_draft, err));
    TRY(new_rows(&o->hidden[1], o->d_draft, err));
    TRY(sl_new(&o->unread, (size_t)o->base.host.n_context + SPECRT_TREE_MAX_NODES,
               sizeof *o->unread, A_SEQUENCE, err));
    return new_rows(&o->head_input, o->d_draft, err);
}

static specrt_status create(own *o, int32_t n_context, specrt_error *err) {
    TRY(engine_cache_create(o->target, n_context, &o->cache, err));
    if (o->drafter) TRY(create_drafting(o, n_context, err));
    TRY(new_rows(&o->logits, o->n_logits, err));
    TRY(new_rows(&o->final, o->d_model, err));
    o->features = o->final;
    if (o->n_taps == 0) return SPECRT_STATUS_OK;
    TRY(new_rows(&o->features, o->width, err));
    engine_tap(o->cache, o->tap_layers, o->n_taps, o->features);
    return SPECRT_STATUS_OK;
}

specrt_status own_sequence(backend *b, const engine_drafter *drafter, sequence **out,
                           specrt_error *err) {
    const own_backend *of = (const own_backend *)b;
    own *o;
    *out = NULL;
    TRY(sl_new(&o, 1, sizeof *o, A_SEQUENCE, err));
    o->base.of = b;
    o->base.host = (specrt_host){.user = o,
                                 .n_context = b->info.n_context,
                                 .max_batch = ENGINE_MAX_BATCH,
                                 .target_prefill = target_prefill,
                                 .draft_step = draft_step,
                                 .target_verify = target_verify,
                                 .commit = commit,
                                 .target_hidden = target_hidden};
    o->target = of->target;
    o->drafter = drafter ? drafter : of->drafter;
    o->n_logits = b->info.n_logits;
    o->d_model = o->width = b->info.d_target;
    specrt_status status = create(o, of->n_context, err);
    if (status == SPECRT_STATUS_OK)
        *out = &o->base;
    else
        free_sequence(&o->base);
    return status;
}

static specrt_status create_sequence(backend *b, sequence **out, specrt_error *err) {
    return own_sequence(b, NULL, out, err);
}

static void reset(sequence *s) {
    own *o = (own *)s;
    engine_cache_truncate(o->cache, 0);
    if (o->drafter) engine_cache_truncate(o->draft_cache, 0);
    if (o->controller) engine_controller_begin(o->controller, o->draft_cache);
    o->n_emitted = o->n_unread = 0;
    o->drafted = false;
    o->fault[0] = '\0';
}

static const char *fault(const sequence *s) {
    return ((const own *)s)->fault;
}

void own_align(sequence *s, engine_controller *controller, const specrt_session *session,
               bool sampled) {
    own *o = (own *)s;
    o->controller = controller;
    o->session = session;
    o->sampled = sampled;
}

/* ---- the backend ----------------------------------------------------------------------------- */

static void close_backend(backend *b) {
    own_backend *o = (own_backend *)b;
    engine_drafter_close(o->opened_drafter);
    engine_close(o->opened_target);
    free(o);
}

static const backend_ops ops = {.close = close_backend,
                                .sequence_create = create_sequence,
                                .sequence_free = free_sequence,
                                .reset = reset,
                                .fault = fault};

const engine_model *own_target(const backend *b) {
    return b->ops == &ops ? ((const own_backend *)b)->target : NULL;
}

static void describe(own_backend *o) {
    const engine_config *k = engine_get_config(o->target);
    backend_info *info = &o->base.info;
    *info = (backend_info){.engine = "specrt",
                           .n_logits = k->n_vocab,
                           .n_context = o->n_context ? o->n_context : k->n_context,
                           .d_target = k->d_model,
                           .n_threads = 1,
                           .is_exact = true};
    engine_head(o->target, &info->target_head);
    engine_embedding(o->target, &info->embedding);
    engine_lend(o->target, &info->env);
    if (!o->drafter) return;
    engine_drafter_head(o->drafter, &info->head);
    info->is_model = info->can_wait = engine_drafter_is_model(o->drafter);
    info->has_vocab = engine_drafter_is_gguf(o->drafter);
    engine_block block = engine_drafter_block(o->drafter);
    info->n_block = block.size - block.first;
    info->feeds_state = engine_drafter_features(o->drafter, (int32_t[ENGINE_MAX_TAPS]){0}) == 0;
}

specrt_status own_over(const engine_model *target, const engine_drafter *drafter, int32_t n_context,
                       backend **out, specrt_error *err) {
    own_backend *o;
    *out = NULL;
    TRY(sl_new(&o, 1, sizeof *o, "an engine", err));
    o->base.ops = &ops;
    o->target = target;
    o->drafter = drafter;
    o->n_context = n_context;
    describe(o);
    *out = &o->base;
    return SPECRT_STATUS_OK;
}

static specrt_status check_tree(const specrt_tree_params *tree, specrt_error *err) {
    int32_t topk = tree->topk ? tree->topk : 10, num_steps = tree->num_steps ? tree->num_steps : 6;
    if (topk <= ENGINE_MAX_BATCH && topk * (num_steps - 1) <= ENGINE_MAX_OPEN)
        return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "tree: expected topk * (num_steps - 1) of at most %d, found %d",
                            ENGINE_MAX_OPEN, (int)(topk * (num_steps - 1)));
}

static specrt_status open_models(const backend_desc *desc, engine_model **target,
                                 engine_drafter **drafter, specrt_error *err) {
    TRY(engine_open(desc->target, desc->n_sequences > 1 ? 1 : desc->threads, target, err));
    if (!desc->draft || strcmp(desc->draft, "none") == 0) return SPECRT_STATUS_OK;
    TRY(engine_drafter_open(desc->draft, *target, drafter, err));
    return check_tree(&desc->tree, err);
}

specrt_status own_open(const backend_desc *desc, backend **out, specrt_error *err) {
    engine_model *target = NULL;
    engine_drafter *drafter = NULL;
    *out = NULL;
    specrt_status status = open_models(desc, &target, &drafter, err);
    if (status == SPECRT_STATUS_OK) {
        bool fits = desc->n_context <= engine_get_config(target)->n_context;
        status = own_over(target, drafter, fits ? (int32_t)desc->n_context : 0, out, err);
    }
    if (status != SPECRT_STATUS_OK) {
        engine_drafter_close(drafter);
        engine_close(target);
        return status;
    }
    own_backend *o = (own_backend *)*out;
    o->opened_target = target;
    o->opened_drafter = drafter;
    if (desc->n_sequences > 1) o->base.info.n_threads = desc->n_sequences;
    return SPECRT_STATUS_OK;
}
