/* llama_block.c : small block drafters (DFlash, DFlash 2, DSpark) with drawn weights for a target, and what
 * llama.cpp makes of one whose heads are cut: logits are the whole drafter's at the ids kept and -inf
 * elsewhere, with the Markov bias of the tokens that the cut drafter chose; a selector's candidates are ids
 * kept.
 *
 *     llama_block make dflash|dflash2|dspark[,bare][,low][,many] TARGET.gguf OUT.gguf
 *         bare: no head of its own; low: of a target with two layers; many: reads nine layers
 *     llama_block check TARGET.gguf WHOLE.gguf CUT.gguf                    exit code 0: all is well */
#include "drawn.h"
#include "ggml.h"
#include "gguf.h"
#include "inside.h"

enum { HEAD = 32, FF = 96, RANK = 8, TOP_K = 5, BLOCK = 5, ANCHOR = 7, MASK = 1 };

/* ---- make -------------------------------------------------------------------------------------------- */

typedef struct plan {
    struct gguf_context *gguf;
    struct ggml_context *data;
    int64_t d, n_vocab;
    bool markov, selector, bare;
    int32_t inputs[9], n_inputs; /* of the target's layers */
} plan;

/* A norm near 1, or weights of scale / sqrt(columns), drawn for the name. */
static void add(plan *p, const char *name, int64_t ne0, int64_t ne1, int64_t ne2, double scale) {
    const int64_t shape[3] = {ne0, ne1, ne2};
    struct ggml_tensor *t = ggml_new_tensor(p->data, GGML_TYPE_F32, ne2 ? 3 : ne1 ? 2 : 1, shape);
    float *x = (float *)t->data;
    uint64_t state = 88172645463325252u;
    for (const char *c = name; *c; c++) state = state * 31 + (uint64_t)*c;
    for (int64_t i = 0; i < ggml_nelements(t); i++)
        x[i] = (float)(ne1 ? scale * drawn(&state) / sqrt((double)ne0) : 1 + 0.1 * drawn(&state));
    ggml_set_name(t, name);
    gguf_add_tensor(p->gguf, t);
}

static void add_layer(plan *p) {
    add(p, "blk.0.attn_norm.weight", p->d, 0, 0, 0);
    add(p, "blk.0.attn_q.weight", p->d, 2 * HEAD, 0, 2);
    add(p, "blk.0.attn_k.weight", p->d, HEAD, 0, 2);
    add(p, "blk.0.attn_v.weight", p->d, HEAD, 0, 2);
    add(p, "blk.0.attn_output.weight", 2 * HEAD, p->d, 0, 1);
    add(p, "blk.0.attn_q_norm.weight", HEAD, 0, 0, 0);
    add(p, "blk.0.attn_k_norm.weight", HEAD, 0, 0, 0);
    add(p, "blk.0.ffn_norm.weight", p->d, 0, 0, 0);
    add(p, "blk.0.ffn_gate.weight", p->d, FF, 0, 2);
    add(p, "blk.0.ffn_up.weight", p->d, FF, 0, 2);
    add(p, "blk.0.ffn_down.weight", FF, p->d, 0, 1);
}

static void add_weights(plan *p) {
    add(p, "fc.weight", p->n_inputs * p->d, p->d, 0, 1);
    add(p, "enc.output_norm.weight", p->d, 0, 0, 0);
    add(p, "output_norm.weight", p->d, 0, 0, 0);
    if (!p->bare) add(p, "token_embd.weight", p->d, p->n_vocab, 0, 32);
    if (!p->bare) add(p, "output.weight", p->d, p->n_vocab, 0, 3);
    add_layer(p);
    if (p->markov) {
        add(p, "markov_w1.weight", RANK, p->n_vocab, 0, 3);
        add(p, "markov_w2.weight", RANK, p->n_vocab, 0, 3);
        add(p, "conf_proj.weight", p->d + RANK, 1, 0, 1);
    }
    if (!p->selector) return;
    add(p, "selector_predecessor.weight", RANK, p->n_vocab, 0, 1);
    add(p, "selector_successor.weight", RANK, p->n_vocab, 0, 1);
    add(p, "selector_hidden.weight", p->d, RANK, 0, 1);
    add(p, "blk.0.attn_conv_base", p->d, 2, 2, 1);
    add(p, "blk.0.attn_conv_proj.weight", p->d, 2 * 2 * p->d / 16, 0, 1);
    add(p, "blk.0.ffn_conv_base", p->d, 2, 2, 1);
    add(p, "blk.0.ffn_conv_proj.weight", p->d, 2 * 2 * p->d / 16, 0, 1);
}

static void add_keys(plan *p) {
    const struct {
        const char *key;
        uint32_t value;
    } keys[] = {{"dflash.block_count", 1},
                {"dflash.context_length", 256},
                {"dflash.embedding_length", (uint32_t)p->d},
                {"dflash.feed_forward_length", FF},
                {"dflash.attention.head_count", 2},
                {"dflash.attention.head_count_kv", 1},
                {"dflash.attention.key_length", HEAD},
                {"dflash.attention.value_length", HEAD},
                {"dflash.rope.dimension_count", HEAD},
                {"dflash.block_size", BLOCK},
                {"tokenizer.ggml.mask_token_id", MASK},
                {"dflash.conv_kernel_size", 2}, /* the last four of a selector */
                {"dflash.conv_group_size", 16},
                {"dflash.selector_rank", RANK},
                {"dflash.selector_top_k", TOP_K}};
    const size_t n = sizeof keys / sizeof *keys;
    gguf_set_val_str(p->gguf, "general.architecture", "dflash");
    for (size_t i = 0; i < (p->selector ? n : n - 4); i++)
        gguf_set_val_u32(p->gguf, keys[i].key, keys[i].value);
    gguf_set_val_f32(p->gguf, "dflash.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_set_arr_data(p->gguf, "dflash.target_layers", GGUF_TYPE_INT32, p->inputs,
                      (size_t)p->n_inputs);
}

static int make(const char *kind, const char *target, const char *out) {
    struct gguf_init_params how = {.no_alloc = true};
    struct gguf_context *from = gguf_init_from_file(target, how);
    struct ggml_init_params memory = {.mem_size = (size_t)256 << 20};
    plan p = {.gguf = gguf_init_empty(), .data = ggml_init(memory)};
    char key[96];
    if (!from || !p.data) return fail(target, "no GGUF, or no memory");
    p.markov = strncmp(kind, "dspark", 6) == 0;
    p.selector = strncmp(kind, "dflash2", 7) == 0;
    p.bare = strstr(kind, ",bare") != NULL;
    p.n_inputs = strstr(kind, ",many") ? 9 : 2;
    for (int i = 0; i < 9; i++) p.inputs[i] = i == 1 && !strstr(kind, ",low") ? 2 : 1;
    snprintf(key, sizeof key, "%s.embedding_length",
             gguf_get_val_str(from, gguf_find_key(from, "general.architecture")));
    p.d = gguf_get_val_u32(from, gguf_find_key(from, key));
    p.n_vocab = (int64_t)gguf_get_arr_n(from, gguf_find_key(from, "tokenizer.ggml.tokens"));
    gguf_set_kv(p.gguf, from);
    add_keys(&p);
    add_weights(&p);
    bool written = gguf_write_to_file(p.gguf, out, false);
    gguf_free(p.gguf), gguf_free(from), ggml_free(p.data);
    return written ? 0 : fail(out, "cannot write");
}

/* ---- check ------------------------------------------------------------------------------------------- */

typedef struct drafter {
    struct llama_model *model;
    struct llama_context *ctx;
    struct gguf_context *gguf;
    struct ggml_context *data; /* its tensors */
    float *logits;             /* [BLOCK, n_vocab] */
    int32_t n_vocab;
} drafter;

/* One block over an empty cache. */
static int draft(drafter *t, bool selects) {
    struct llama_batch batch = llama_batch_init(BLOCK, 0, 1);
    batch.n_tokens = BLOCK;
    for (int32_t i = 0; i < BLOCK; i++) {
        batch.token[i] = i ? MASK : ANCHOR;
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    set_nextn(t->ctx, true, !selects);
    llama_set_causal_attn(t->ctx, false);
    int code = llama_decode(t->ctx, batch);
    llama_batch_free(batch);
    size_t n = (size_t)t->n_vocab;
    t->logits = malloc(BLOCK * n * sizeof *t->logits);
    for (int32_t i = 0; !code && t->logits && i < BLOCK; i++)
        memcpy(t->logits + (size_t)i * n, llama_get_logits_ith(t->ctx, i), n * sizeof(float));
    return code || !t->logits;
}

static int open_drafter(const char *path, struct llama_context *target, drafter *out) {
    struct gguf_init_params how = {.ctx = &out->data};
    out->model = llama_model_load_from_file(path, llama_model_default_params());
    if (!out->model) return fail(path, "llama.cpp does not load it");
    out->ctx = open_context(out->model, target);
    out->gguf = gguf_init_from_file(path, how);
    out->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(out->model));
    if (!out->ctx || !out->gguf) return fail(path, "no context");
    bool selects = ggml_get_tensor(out->data, "selector_hidden.weight");
    return draft(out, selects) ? fail(path, "llama.cpp does not draft with it") : 0;
}

static int32_t best_of(const float *x, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* w2 . w1[previous] of the whole drafter, for a token; 0 without a Markov head. */
static double bias(const drafter *whole, int32_t previous, int64_t token) {
    const struct ggml_tensor *w1 = ggml_get_tensor(whole->data, "markov_w1.weight"),
                             *w2 = ggml_get_tensor(whole->data, "markov_w2.weight");
    double sum = 0;
    for (int64_t i = 0; w1 && i < RANK; i++)
        sum += (double)((const float *)w1->data)[previous * RANK + i] *
               (double)((const float *)w2->data)[token * RANK + i];
    return sum;
}

static int compare(const drafter *whole, const drafter *cut) {
    const struct ggml_tensor *d2t = ggml_get_tensor(cut->data, "d2t");
    int64_t n_kept = d2t->ne[0], n_finite = 0;
    const int64_t *ids = (const int64_t *)d2t->data;
    int32_t before_whole = ANCHOR, before_cut = ANCHOR;
    double most = 0, size = 0;
    for (int32_t i = 0; i < BLOCK; i++) {
        const float *of_whole = whole->logits + (size_t)i * (size_t)whole->n_vocab,
                    *of_cut = cut->logits + (size_t)i * (size_t)whole->n_vocab;
        for (int32_t id = 0; id < whole->n_vocab; id++) n_finite += of_cut[id] != -INFINITY;
        for (int64_t k = 0; k < n_kept; k++) {
            double expected = (double)of_whole[ids[k]] - bias(whole, before_whole, ids[k]) +
                              bias(whole, before_cut, ids[k]);
            most = fmax(most, fabs(expected - (double)of_cut[ids[k]]));
            size = fmax(size, fabs(expected));
        }
        before_whole = best_of(of_whole, whole->n_vocab);
        before_cut = best_of(of_cut, whole->n_vocab);
    }
    printf("%lld logits at most %.2g of the greatest apart\n", (long long)n_finite, most / size);
    if (n_finite != BLOCK * n_kept) return fail("logits", "of other tokens than d2t lists");
    return size > 0 && most <= 1e-4 * size ? 0 : fail("logits", "not the whole drafter's");
}

/* A selector's candidates, from the second position on. */
static int check_candidates(const drafter *cut) {
    const struct ggml_tensor *d2t = ggml_get_tensor(cut->data, "d2t");
    const float *rows = get_all_nextn(cut->ctx);
    int32_t d = llama_model_n_embd(cut->model), n_kept = 0;
    if (!ggml_get_tensor(cut->data, "selector_hidden.weight")) return 0;
    for (int32_t i = 1; i < BLOCK; i++)
        for (int32_t k = 0; k < TOP_K; k++)
            for (int64_t j = 0; j < d2t->ne[0]; j++)
                n_kept += ((const int64_t *)d2t->data)[j] == (int64_t)rows[i * d + k];
    printf("%d candidates of the selector\n", n_kept);
    return n_kept == (BLOCK - 1) * TOP_K ? 0 : fail("selector", "candidates that were cut");
}

static void close_drafter(drafter *t) {
    llama_free(t->ctx), llama_model_free(t->model);
    gguf_free(t->gguf), ggml_free(t->data), free(t->logits);
}

static int check(char **paths) {
    drafter whole = {0}, cut = {0};
    struct llama_model *model = llama_model_load_from_file(paths[0], llama_model_default_params());
    struct llama_context *target = open_context(model, NULL);
    if (!target) return fail(paths[0], "llama.cpp does not load it");
    int bad = open_drafter(paths[1], target, &whole) || open_drafter(paths[2], target, &cut) ||
              compare(&whole, &cut) || check_candidates(&cut);
    close_drafter(&whole), close_drafter(&cut);
    llama_free(target), llama_model_free(model);
    return bad;
}

int main(int argc, char **argv) {
    if (argc != 5) return fail("usage", "expected make KIND TARGET OUT, or check TARGET WHOLE CUT");
    llama_log_set(quiet, NULL);
    llama_backend_init();
    return strcmp(argv[1], "make") == 0 ? make(argv[2], argv[3], argv[4]) : check(argv + 2);
}
