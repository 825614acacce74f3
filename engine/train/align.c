/* align.c : what is trained of a drafter, the optimiser, and handing what is learnt to the drafts. */
#include "engine/train/align.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "engine/train/align_impl.h"

/* ---- what is trained ------------------------------------------------------------------------- */

static void add_block(engine_align *a, const char *name, bool of_layer, int64_t n_rows,
                      int64_t n_cols) {
    a->blocks[a->n_blocks++] =
        (align_block){name, of_layer, (int32_t)n_rows, (int32_t)n_cols, a->n_values};
    a->n_values += n_rows * n_cols;
}

static void list_lora(engine_align *a) {
    int32_t rank = a->params.rank;
    for (const engine_layer *w = a->m->layers; w < a->m->layers + a->n_layers; w++) {
        add_block(a, "self_attn.q_proj.lora_A", true, rank, w->q.n_cols);
        add_block(a, "self_attn.q_proj.lora_B", true, w->q.segment.n_rows, rank);
        add_block(a, "self_attn.v_proj.lora_A", true, rank, w->v.n_cols);
        add_block(a, "self_attn.v_proj.lora_B", true, w->v.segment.n_rows, rank);
    }
}

/* In the order of ALIGN_Q and on; matrices first, as matrix_of() counts them. */
static engine_matrix *matrix_of(engine_layer *layer, engine_matrix *fc, int block) {
    engine_matrix *all[] = {&layer->q,  &layer->k,    &layer->v, &layer->o, &layer->gate,
                            &layer->up, &layer->down, NULL,      fc};
    return block < (int)(sizeof all / sizeof all[0]) ? all[block] : NULL;
}

/* A vector as the drafter has it; NULL: a matrix, or one that this kind of head does not have. */
static const float *vector_of(const engine_align *a, int block) {
    if (block == ALIGN_NORM) return a->kept_layer.ffn_norm;
    if (block == ALIGN_BIAS) return a->kept_fc.segment.bias;
    return block >= ALIGN_NORMS ? a->kept_norms[block - ALIGN_NORMS] : NULL;
}

static void list_full(engine_align *a) {
    static const struct {
        const char *name;
        bool of_layer;
    } all[] = {{"self_attn.q_proj", true}, {"self_attn.k_proj", true},
               {"self_attn.v_proj", true}, {"self_attn.o_proj", true},
               {"mlp.gate_proj", true},    {"mlp.up_proj", true},
               {"mlp.down_proj", true},    {"post_attention_layernorm", true},
               {"fc.weight", false},       {"fc.bias", false},
               {"input_layernorm", true},  {"hidden_norm", true},
               {"norm.weight", false}};
    for (int i = 0; i < ALIGN_FULL_BLOCKS; i++) {
        const engine_matrix *w = matrix_of(&a->kept_layer, &a->kept_fc, i);
        add_block(a, all[i].name, all[i].of_layer, w ? w->segment.n_rows : vector_of(a, i) != NULL,
                  w ? w->n_cols : a->m->config.d_model);
    }
}

/* Kaiming's uniform distribution for LoRA's a, as PEFT's: within 1 / sqrt(n_cols); b begins as zeros. */
static void begin_lora(engine_align *a) {
    for (int block = 0; block < a->n_blocks; block += 2) {
        const align_block *b = &a->blocks[block];
        double width = 1 / sqrt((double)b->n_cols);
        for (int64_t i = 0; i < (int64_t)b->n_rows * b->n_cols; i++) {
            const int64_t key[2] = {block, i};
            uint64_t bits = specrt_hash64(key, sizeof key, a->params.seed);
            a->values[b->at + i] = (float)(width * ((double)(bits >> 11) / 4503599627370496.0 - 1));
        }
    }
}

static void begin_full(engine_align *a) {
    for (int i = 0; i < ALIGN_FULL_BLOCKS; i++) {
        const align_block *b = &a->blocks[i];
        const engine_matrix *w = matrix_of(&a->kept_layer, &a->kept_fc, i);
        for (int32_t row = 0; row < b->n_rows; row++) {
            float *out = align_part(a, a->values, i) + (int64_t)row * b->n_cols;
            if (w)
                specrt_row_decode(w->segment.dtype,
                                  (const char *)w->segment.rows +
                                      (size_t)row * w->segment.row_stride,
                                  b->n_cols, out);
            else
                memcpy(out, vector_of(a, i), (size_t)b->n_cols * sizeof *out);
        }
    }
}

/* A head whose weights are these values. */
static void wire(engine_align *a, float *values, engine_layer *layer, engine_matrix *fc,
                 const float *norms[3]) {
    for (int i = 0; i < ALIGN_FULL_BLOCKS; i++) {
        engine_matrix *w = matrix_of(layer, fc, i);
        const align_block *b = &a->blocks[i];
        const float *bias = i == ALIGN_FC && a->blocks[ALIGN_BIAS].n_rows
                                ? align_part(a, values, ALIGN_BIAS)
                                : NULL;
        if (!w) continue;
        *w = align_matrix(align_part(a, values, i), b->n_rows, b->n_cols);
        w->segment.bias = bias;
    }
    layer->ffn_norm = align_part(a, values, ALIGN_NORM);
    for (int i = 0; i < 3; i++)
        norms[i] =
            a->blocks[ALIGN_NORMS + i].n_rows ? align_part(a, values, ALIGN_NORMS + i) : NULL;
}

static void set_norms(engine_drafter *d, const float *const norms[3]) {
    d->embedding_norm = norms[0];
    d->feature_norm = norms[1];
    d->final_norm = norms[2];
}

/* ---- life ------------------------------------------------------------------------------------ */

static specrt_status check(const engine_drafter *d, const engine_align_params *p,
                           specrt_error *err) {
    const engine_config *k = engine_drafter_is_model(d) ? &d->own->config : &d->body.config;
    if (d->mtp || d->block.size > 0 || k->gelu)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "alignment: expected an EAGLE head, or a drafter with layers as "
                                "Llama's or Qwen's, found %s",
                                d->mtp              ? "an MTP module"
                                : d->block.size > 0 ? "a block drafter"
                                                    : "Gemma's");
    if (p->mode == ENGINE_ALIGN_FULL && d->own)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "alignment of all parameters: expected an EAGLE head, found an "
                                "independent drafter; use LoRA");
    int32_t most = k->d_ffn < ENGINE_MAX_RANK ? k->d_ffn : ENGINE_MAX_RANK;
    if (p->mode == ENGINE_ALIGN_LORA && (p->rank < 1 || p->rank > most))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "alignment: rank: expected 1 to %d, found %d", (int)most,
                                (int)p->rank);
    if (!(p->rate >= 0 && p->rate < INFINITY) || !(p->clip >= 0) || !isfinite(p->alpha))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "alignment: expected a finite rate, clip of at least 0 and a "
                                "finite alpha, found %g, %g and %g",
                                (double)p->rate, (double)p->clip, (double)p->alpha);
    return SPECRT_STATUS_OK;
}

static specrt_status open_compute(engine_align *a, specrt_error *err) {
    specrt_head_desc head;
    specrt_env env = {.user = a->pool, .parallel_for = sl_parallel_pool_for};
    engine_head(a->m, &head);
    return specrt_head_bind(NULL, &head, &env, &a->compute, err);
}

/* Moments of plain descent are none. */
static size_t n_moments(const engine_align *a) {
    return a->params.optimiser == ENGINE_ADAMW ? (size_t)a->n_values : 1;
}

static specrt_status create(engine_align *a, specrt_error *err) {
    bool full = a->params.mode == ENGINE_ALIGN_FULL;
    size_t n_layers = (size_t)a->n_layers;
    size_t n_blocks = full ? ALIGN_FULL_BLOCKS : ALIGN_LORA_BLOCKS * n_layers;
    TRY(open_compute(a, err));
    TRY(sl_new(&a->blocks, n_blocks, sizeof *a->blocks, ALIGNMENT, err));
    TRY(sl_new(&a->lora, n_layers, 2 * sizeof *a->lora, ALIGNMENT, err));
    if (full)
        list_full(a);
    else
        list_lora(a);
    size_t n = (size_t)a->n_values;
    TRY(sl_new(&a->values, n, sizeof(float), ALIGNMENT, err));
    TRY(sl_new(&a->gradients, n, sizeof(float), ALIGNMENT, err));
    TRY(sl_new(&a->drafting, n, sizeof(float), ALIGNMENT, err));
    TRY(sl_new(&a->first, n_moments(a), sizeof(float), ALIGNMENT, err));
    TRY(sl_new(&a->second, n_moments(a), sizeof(float), ALIGNMENT, err));
    if (full)
        begin_full(a);
    else
        begin_lora(a);
    return SPECRT_STATUS_OK;
}

/* The drafter reads the copies that draft; passes read the masters. */
static void attach(engine_align *a) {
    if (a->params.mode == ENGINE_ALIGN_FULL) {
        const float *norms[3];
        wire(a, a->values, &a->layer, &a->fc, a->norms);
        wire(a, a->drafting, a->m->layers, &a->d->fc, norms);
        set_norms(a->d, norms);
        return;
    }
    for (int i = 0; i < 2 * a->n_layers; i++) {
        const align_block *down = &a->blocks[2 * i], *up = &a->blocks[2 * i + 1];
        a->lora[i] = (engine_lora){
            align_matrix(align_part(a, a->drafting, 2 * i), down->n_rows, down->n_cols),
            align_matrix(align_part(a, a->drafting, 2 * i + 1), up->n_rows, up->n_cols), a->scale};
    }
    for (int32_t i = 0; i < a->n_layers; i++)
        a->m->layers[i].q_lora = &a->lora[2 * i], a->m->layers[i].v_lora = &a->lora[2 * i + 1];
}

specrt_status engine_align_create(engine_drafter *drafter, const engine_align_params *params,
                                  parallel_pool *pool, engine_align **out, specrt_error *err) {
    *out = NULL;
    TRY(check(drafter, params, err));
    engine_align *a;
    TRY(sl_new(&a, 1, sizeof *a, ALIGNMENT, err));
    a->d = drafter;
    a->params = *params;
    a->m = drafter->own ? drafter->own : &drafter->body;
    a->n_layers = drafter->own ? drafter->own->config.n_layers : 1;
    a->pool = pool ? pool : a->m->pool;
    a->scale = params->mode == ENGINE_ALIGN_LORA ? params->alpha / (float)params->rank : 0;
    a->kept_layer = a->layer = *a->m->layers;
    a->kept_fc = a->fc = drafter->fc;
    a->kept_norms[0] = a->norms[0] = drafter->embedding_norm;
    a->kept_norms[1] = a->norms[1] = drafter->feature_norm;
    a->kept_norms[2] = a->norms[2] = drafter->final_norm;
    specrt_status status = create(a, err);
    if (status != SPECRT_STATUS_OK) {
        engine_align_free(a);
        return status;
    }
    attach(a);
    engine_align_swap(a);
    *out = a;
    return SPECRT_STATUS_OK;
}

void engine_align_free(engine_align *a) {
    if (!a) return;
    *a->m->layers = a->kept_layer;
    for (int32_t i = 0; i < a->n_layers; i++)
        a->m->layers[i].q_lora = a->m->layers[i].v_lora = NULL;
    a->d->fc = a->kept_fc;
    set_norms(a->d, a->kept_norms);
    specrt_head_close(a->compute);
    free(a->values);
    free(a->gradients);
    free(a->drafting);
    free(a->first);
    free(a->second);
    free(a->rows.block);
    free(a->blocks);
    free(a->lora);
    free(a);
}

int32_t engine_align_width(const engine_align *a) {
    int32_t d = a->m->config.d_model;
    if (engine_align_pairs(a)) return a->d->eagle3 ? 4 * d : 2 * d;
    return a->d->eagle3 ? 3 * d : d;
}
bool engine_align_needs_all(const engine_align *a) {
    return a->n_layers > 1;
}
bool engine_align_pairs(const engine_align *a) {
    return a->params.mode == ENGINE_ALIGN_FULL;
}
float *engine_align_masters(engine_align *a, int64_t *n) {
    *n = a->n_values;
    return a->values;
}
const float *engine_align_gradients(const engine_align *a) {
    return a->gradients;
}

engine_align_bytes engine_align_get_bytes(const engine_align *a) {
    size_t n = (size_t)a->n_values * sizeof(float);
    return (engine_align_bytes){n, n, a->params.optimiser == ENGINE_ADAMW ? 2 * n : 0, n,
                                a->rows.bytes};
}

void engine_align_draft(engine_align *a, const float *values) {
    memcpy(a->drafting, values, (size_t)a->n_values * sizeof(float));
}
void engine_align_swap(engine_align *a) {
    engine_align_draft(a, a->values);
}

void engine_align_exchange(engine_align *a, engine_align_state *state) {
    engine_align_state was = {a->values, a->first, a->second, a->n_steps};
    a->values = state->values;
    a->first = state->first;
    a->second = state->second;
    a->n_steps = state->n_steps;
    *state = was;
    if (a->params.mode == ENGINE_ALIGN_FULL) wire(a, a->values, &a->layer, &a->fc, a->norms);
}

void engine_align_restart(engine_align *a, const float *values) {
    memmove(a->values, values, (size_t)a->n_values * sizeof(float));
    memset(a->first, 0, n_moments(a) * sizeof(float));
    memset(a->second, 0, n_moments(a) * sizeof(float));
    a->n_steps = 0;
}

specrt_status engine_align_state_create(const engine_align *a, const float *values,
                                        engine_align_state *out, specrt_error *err) {
    size_t n = (size_t)a->n_values;
    *out = (engine_align_state){0};
    specrt_status status = sl_new(&out->values, n, sizeof(float), ALIGNMENT, err);
    if (status == SPECRT_STATUS_OK)
        status = sl_new(&out->first, n_moments(a), sizeof(float), ALIGNMENT, err);
    if (status == SPECRT_STATUS_OK)
        status = sl_new(&out->second, n_moments(a), sizeof(float), ALIGNMENT, err);
    if (status == SPECRT_STATUS_OK)
        memcpy(out->values, values, n * sizeof(float));
    else
        engine_align_state_free(out);
    return status;
}

void engine_align_state_free(engine_align_state *state) {
    free(state->values);
    free(state->first);
    free(state->second);
    *state = (engine_align_state){0};
}

/* ---- the optimiser --------------------------------------------------------------------------- */

typedef struct optimiser_step {
    engine_align *a;
    double scale, rate, first, second; /* of the gradient; bias corrections with it */
} optimiser_step;

enum { STEP_BLOCK = 1 << 16 };

/* AdamW (Loshchilov and Hutter 2019) without decay. */
static void step_task(void *arg, int64_t task) {
    const optimiser_step *s = (const optimiser_step *)arg;
    engine_align *a = s->a;
    int64_t from = task * STEP_BLOCK;
    int64_t to = from + STEP_BLOCK < a->n_values ? from + STEP_BLOCK : a->n_values;
    for (int64_t i = from; i < to; i++) {
        double g = s->scale * (double)a->gradients[i];
        if (a->params.optimiser == ENGINE_SGD) {
            a->values[i] = (float)((double)a->values[i] - s->rate * g);
            continue;
        }
        double m = 0.9 * (double)a->first[i] + 0.1 * g;
        double v = 0.999 * (double)a->second[i] + 0.001 * g * g;
        a->first[i] = (float)m;
        a->second[i] = (float)v;
        a->values[i] =
            (float)((double)a->values[i] - s->rate * (m * s->first) / (sqrt(v * s->second) + 1e-8));
    }
}

bool engine_align_step(engine_align *a, float scale) {
    double length = 0;
    for (int64_t i = 0; i < a->n_values; i++)
        length += (double)a->gradients[i] * (double)a->gradients[i];
    length = sqrt(length) * (double)scale;
    bool made = isfinite(length);
    if (made) {
        double t = (double)++a->n_steps, clip = (double)a->params.clip;
        optimiser_step s = {a, (double)scale, (double)a->params.rate, 1 / (1 - pow(0.9, t)),
                            1 / (1 - pow(0.999, t))};
        if (clip > 0 && length > clip) s.scale *= clip / length;
        sl_parallel_pool_for(a->pool, (a->n_values + STEP_BLOCK - 1) / STEP_BLOCK, step_task, &s);
    }
    memset(a->gradients, 0, (size_t)a->n_values * sizeof(float));
    return made;
}
