/* tiny.h : small random models for the tests of the engine: as files, as plain doubles, and decoded. */
#ifndef TEST_TINY_H
#define TEST_TINY_H

#include "specrt_tools.h"
#include "base/io.h"
#include "over.h"
#include "opened.h"

#include <unistd.h>

/* ---- a tiny random model, as a GGUF in memory and as plain doubles --------------------------- */

typedef struct bytes {
    unsigned char *p;
    size_t n;
} bytes;

static inline void put(bytes *b, const void *data, size_t n) {
    b->p = (unsigned char *)realloc(b->p, b->n + n);
    REQUIRE(b->p != NULL);
    memcpy(b->p + b->n, data, n);
    b->n += n;
}
static inline void put_u32(bytes *b, uint32_t x) {
    put(b, &x, 4);
}
static inline void put_u64(bytes *b, uint64_t x) {
    put(b, &x, 8);
}
static inline void put_text(bytes *b, const char *s) {
    put_u64(b, strlen(s)), put(b, s, strlen(s));
}

typedef struct tiny {
    const char *arch;
    int layers, d, heads, kv_heads, d_head, ffn, vocab;
    bool tied, biased, normed, scaled;
    /* Gemma 3's; 0: the file does not say, or another architecture. */
    bool gemma;
    int window, period;
    double rope_scale, window_base, softcap;
    int tail; /* MTP modules, layers of the file behind the model's */
} tiny;

/* Names of a layer's tensors here, behind "blk.N.", and in a checkpoint, behind its own name of the layer. */
static const char *const layer_names[][2] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
};
enum { N_LAYER_NAMES = sizeof layer_names / sizeof layer_names[0] };

enum { MAX_TENSORS = 1024 };
typedef struct tensor {
    char name[64];
    int rows, cols;
    float *data;
    unsigned char *blocks; /* the same as q4_1; NULL: written as f32 */
    bool is_whole;         /* the file says that it holds whole numbers */
} tensor;

typedef struct tiny_model {
    tiny k;
    tensor tensors[MAX_TENSORS];
    int n_tensors;
    const char *odd_key; /* one more key, a text or a number */
    const char *odd_text;
    float odd_number;
} tiny_model;

static uint64_t random_state;
static inline double random_real(void) { /* uniform in (-1, 1), xorshift64* */
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (double)(random_state * UINT64_C(2685821657736338717) >> 11) / 4503599627370496.0 - 1.0;
}

static inline void add_tensor(tiny_model *m, const char *name, int rows, int cols, double mean,
                              double spread) {
    REQUIRE(m->n_tensors < MAX_TENSORS);
    tensor *t = &m->tensors[m->n_tensors++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->rows = rows;
    t->cols = cols;
    t->data = (float *)malloc(sizeof(float) * (size_t)rows * (size_t)cols);
    REQUIRE(t->data != NULL);
    for (int i = 0; i < rows * cols; i++) t->data[i] = (float)(mean + spread * random_real());
}

static inline void add_layer_tensor(tiny_model *m, int layer, const char *name, int rows, int cols,
                                    double mean, double spread) {
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    add_tensor(m, full, rows, cols, mean, spread);
}

static inline void make_tiny(tiny_model *m, tiny k, uint64_t seed) {
    int q = k.heads * k.d_head, kv = k.kv_heads * k.d_head;
    *m = (tiny_model){.k = k};
    random_state = seed;
    add_tensor(m, "token_embd.weight", k.vocab, k.d, 0, 1);
    add_tensor(m, "output_norm.weight", 1, k.d, 1, 0.3);
    if (!k.tied) add_tensor(m, "output.weight", k.vocab, k.d, 0, 0.5);
    if (k.scaled) add_tensor(m, "rope_freqs.weight", 1, k.d_head / 2, 3, 2);
    for (int i = 0; i < k.layers + k.tail; i++) {
        add_layer_tensor(m, i, "attn_norm.weight", 1, k.d, 1, 0.3);
        add_layer_tensor(m, i, "ffn_norm.weight", 1, k.d, 1, 0.3);
        add_layer_tensor(m, i, "attn_q.weight", q, k.d, 0, 0.4);
        add_layer_tensor(m, i, "attn_k.weight", kv, k.d, 0, 0.4);
        add_layer_tensor(m, i, "attn_v.weight", kv, k.d, 0, 0.4);
        add_layer_tensor(m, i, "attn_output.weight", k.d, q, 0, 0.4);
        add_layer_tensor(m, i, "ffn_gate.weight", k.ffn, k.d, 0, 0.4);
        add_layer_tensor(m, i, "ffn_up.weight", k.ffn, k.d, 0, 0.4);
        add_layer_tensor(m, i, "ffn_down.weight", k.d, k.ffn, 0, 0.4);
        if (k.biased) {
            add_layer_tensor(m, i, "attn_q.bias", 1, q, 0, 0.5);
            add_layer_tensor(m, i, "attn_k.bias", 1, kv, 0, 0.5);
            add_layer_tensor(m, i, "attn_v.bias", 1, kv, 0, 0.5);
        }
        if (k.gemma) {
            add_layer_tensor(m, i, "post_attention_norm.weight", 1, k.d, 0.5, 0.3);
            add_layer_tensor(m, i, "post_ffw_norm.weight", 1, k.d, 0.5, 0.3);
        }
        if (k.normed) {
            add_layer_tensor(m, i, "attn_q_norm.weight", 1, k.d_head, 1, 0.3);
            add_layer_tensor(m, i, "attn_k_norm.weight", 1, k.d_head, 1, 0.3);
        }
    }
}

static inline void free_tiny(tiny_model *m) {
    for (int i = 0; i < m->n_tensors; i++) free(m->tensors[i].data), free(m->tensors[i].blocks);
}

static inline const float *weights(const tiny_model *m, int layer, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    for (int i = 0; i < m->n_tensors; i++)
        if (strcmp(m->tensors[i].name, layer < 0 ? name : full) == 0) return m->tensors[i].data;
    return NULL;
}

static inline void put_int(bytes *b, const char *arch, const char *key, int value) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    put_text(b, full);
    put_u32(b, 4); /* GGUF u32 */
    put_u32(b, (uint32_t)value);
}

static inline void put_real(bytes *b, const char *arch, const char *key, double value) {
    char full[96];
    float x = (float)value;
    snprintf(full, sizeof full, "%s.%s", arch, key);
    put_text(b, full);
    put_u32(b, 6); /* GGUF f32 */
    put(b, &x, 4);
}

/* What the tiny says of Gemma 3. @return how many keys. */
static inline int put_gemma(bytes *b, const tiny *k) {
    int n = 0;
    if (k->window) put_int(b, k->arch, "attention.sliding_window", k->window), n++;
    if (k->period) put_int(b, k->arch, "attention.sliding_window_pattern", k->period), n++;
    if (k->window_base > 0) put_real(b, k->arch, "rope.freq_base_swa", k->window_base), n++;
    if (k->softcap > 0) put_real(b, k->arch, "final_logit_softcapping", k->softcap), n++;
    if (!(k->rope_scale > 0)) return n;
    put_text(b, "gemma3.rope.scaling.type");
    put_u32(b, 8);
    put_text(b, "linear");
    put_real(b, k->arch, "rope.scaling.factor", k->rope_scale);
    return n + 2;
}

static inline void put_odd(bytes *b, const tiny_model *m) {
    put_text(b, m->odd_key);
    put_u32(b, m->odd_text ? 8 : 6); /* GGUF string, f32 */
    if (m->odd_text)
        put_text(b, m->odd_text);
    else
        put(b, &m->odd_number, 4);
}

/* The model as a GGUF file; returns its path, to unlink. `skip` leaves a tensor out. */
static inline specrt_dtype stored_as(const tensor *t) {
    if (t->is_whole) return SPECRT_DTYPE_I32;
    return t->blocks ? SPECRT_DTYPE_Q4_1 : SPECRT_DTYPE_F32;
}

static inline size_t stored_bytes(const tensor *t) {
    return (size_t)t->rows * specrt_row_bytes(stored_as(t), t->cols);
}

/* Matrices of random q4_1 blocks: scale 1/32, offset -1/4. */
static inline void quantise_tiny(tiny_model *m) {
    for (int i = 0; i < m->n_tensors; i++) {
        tensor *t = &m->tensors[i];
        if (t->rows == 1) continue;
        size_t n = (size_t)t->rows * specrt_row_bytes(SPECRT_DTYPE_Q4_1, t->cols);
        t->blocks = (unsigned char *)malloc(n);
        REQUIRE(t->blocks != NULL);
        for (size_t j = 0; j < n; j++) {
            static const unsigned char scales[] = {0x00, 0x28, 0x00, 0xb4};
            t->blocks[j] = j % 20 < 4 ? scales[j % 20] : (unsigned char)(128 + 127 * random_real());
        }
        specrt_row_decode(SPECRT_DTYPE_Q4_1, t->blocks, (int64_t)t->rows * t->cols, t->data);
    }
}

static inline const char *write_tiny(const tiny_model *m, const char *skip) {
    static char path[64];
    const tiny *k = &m->k;
    bytes b = {0};
    int n = 0;
    for (int i = 0; i < m->n_tensors; i++) n += !skip || strcmp(m->tensors[i].name, skip) != 0;
    put(&b, "GGUF\3\0\0\0", 8);
    put_u64(&b, (uint64_t)n);
    bytes gemma = {0};
    int n_gemma = put_gemma(&gemma, k);
    put_u64(&b, (uint64_t)(n_gemma + (m->odd_key ? 9 : 8) + (k->tail > 0)));
    if (n_gemma) put(&b, gemma.p, gemma.n);
    free(gemma.p);
    if (m->odd_key) put_odd(&b, m);
    put_text(&b, "general.architecture");
    put_u32(&b, 8); /* GGUF string */
    put_text(&b, k->arch);
    put_int(&b, k->arch, "block_count", k->layers + k->tail);
    if (k->tail) put_int(&b, k->arch, "nextn_predict_layers", k->tail);
    put_int(&b, k->arch, "embedding_length", k->d);
    put_int(&b, k->arch, "feed_forward_length", k->ffn);
    put_int(&b, k->arch, "attention.head_count", k->heads);
    put_int(&b, k->arch, "attention.head_count_kv", k->kv_heads);
    put_int(&b, k->arch, "attention.key_length", k->d_head);
    put_int(&b, k->arch, "context_length", 256);
    uint64_t offset = 0;
    for (int i = 0; i < m->n_tensors; i++) {
        const tensor *t = &m->tensors[i];
        if (skip && strcmp(t->name, skip) == 0) continue;
        put_text(&b, t->name);
        put_u32(&b, t->rows == 1 ? 1 : 2);
        put_u64(&b, (uint64_t)t->cols);
        if (t->rows != 1) put_u64(&b, (uint64_t)t->rows);
        put_u32(&b, (uint32_t)stored_as(t));
        put_u64(&b, offset);
        offset += (stored_bytes(t) + 31) / 32 * 32;
    }
    static const char zeros[32];
    put(&b, zeros, (32 - b.n % 32) % 32);
    for (int i = 0; i < m->n_tensors; i++) {
        const tensor *t = &m->tensors[i];
        size_t size = stored_bytes(t);
        if (skip && strcmp(t->name, skip) == 0) continue;
        put(&b, t->blocks ? (const void *)t->blocks : t->data, size);
        put(&b, zeros, (32 - size % 32) % 32);
    }
    snprintf(path, sizeof path, "/tmp/specrt-engine-%d.gguf", (int)getpid());
    specrt_error err;
    REQUIRE(sl_out_bytes(path, true, b.p, b.n, &err) == SPECRT_STATUS_OK);
    free(b.p);
    return path;
}

static inline engine_model *open_tiny(const tiny_model *m, int threads) {
    engine_model *e;
    specrt_error err = {0};
    const char *path = write_tiny(m, NULL);
    specrt_status status = engine_open(path, threads, &e, &err);
    unlink(path);
    if (status != SPECRT_STATUS_OK) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(status == SPECRT_STATUS_OK);
    return e;
}

/* ---- the oracle: textbook attention over the whole sequence, in double ----------------------- */

static inline void mat_vec(const float *w, const double *x, int rows, int cols, const float *bias,
                           double *y) {
    for (int i = 0; i < rows; i++) {
        y[i] = bias ? (double)bias[i] : 0;
        for (int j = 0; j < cols; j++) y[i] += (double)w[i * cols + j] * x[j];
    }
}

static inline void norm(const double *x, const float *w, int n, double *y) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    for (int i = 0; i < n; i++) y[i] = x[i] / sqrt(sum / n + 1e-5) * (double)w[i];
}

/* Gemma 3: of six layers, or another number, the last is global. */
static inline bool sees_window(const tiny *k, int layer) {
    return k->window && (layer + 1) % (k->period ? k->period : 6) != 0;
}

static inline void rotate(const tiny *k, int layer, const float *factors, double *head,
                          int position) {
    bool adjacent = strcmp(k->arch, "llama") == 0, local = sees_window(k, layer);
    double base = local && k->window_base > 0 ? k->window_base : 10000;
    double scale = !local && k->rope_scale > 0 ? k->rope_scale : 1;
    for (int i = 0; i < k->d_head / 2; i++) {
        double angle =
            position / scale * pow(base, -2.0 * i / k->d_head) / (factors ? (double)factors[i] : 1);
        double *a = adjacent ? head + 2 * i : head + i;
        double *b = adjacent ? head + 2 * i + 1 : head + i + k->d_head / 2;
        double x = *a, y = *b;
        *a = x * cos(angle) - y * sin(angle);
        *b = x * sin(angle) + y * cos(angle);
    }
}

enum { MAX_N = 48, MAX_WIDTH = 256 };

/* x += attention over in [n][width], what queries, keys and values are made of. */
static inline void oracle_attention(const tiny_model *m, int layer, int n,
                                    double in[MAX_N][MAX_WIDTH], int width,
                                    double x[MAX_N][MAX_WIDTH]) {
    static double q[MAX_N][MAX_WIDTH], key[MAX_N][MAX_WIDTH], value[MAX_N][MAX_WIDTH];
    const tiny *k = &m->k;
    const float *factors = weights(m, -1, "rope_freqs.weight");
    const float *qn = weights(m, layer, "attn_q_norm.weight");
    const float *kn = weights(m, layer, "attn_k_norm.weight");
    for (int t = 0; t < n; t++) {
        mat_vec(weights(m, layer, "attn_q.weight"), in[t], k->heads * k->d_head, width,
                weights(m, layer, "attn_q.bias"), q[t]);
        mat_vec(weights(m, layer, "attn_k.weight"), in[t], k->kv_heads * k->d_head, width,
                weights(m, layer, "attn_k.bias"), key[t]);
        mat_vec(weights(m, layer, "attn_v.weight"), in[t], k->kv_heads * k->d_head, width,
                weights(m, layer, "attn_v.bias"), value[t]);
        for (int i = 0; i < k->heads; i++) {
            if (qn) norm(q[t] + i * k->d_head, qn, k->d_head, q[t] + i * k->d_head);
            rotate(k, layer, factors, q[t] + i * k->d_head, t);
        }
        for (int i = 0; i < k->kv_heads; i++) {
            if (kn) norm(key[t] + i * k->d_head, kn, k->d_head, key[t] + i * k->d_head);
            rotate(k, layer, factors, key[t] + i * k->d_head, t);
        }
    }
    const float *post = weights(m, layer, "post_attention_norm.weight");
    int per = k->layers == 62 ? k->d / k->heads : k->d_head; /* 62: Gemma 3 27B */
    for (int t = 0; t < n; t++) {
        double mixed[MAX_WIDTH] = {0}, out[MAX_WIDTH];
        int first = sees_window(k, layer) && t >= k->window ? t - k->window + 1 : 0;
        for (int h = 0; h < k->heads; h++) {
            int kv = h / (k->heads / k->kv_heads) * k->d_head;
            double weight[MAX_N], sum = 0;
            for (int j = first; j <= t; j++) {
                double s = 0;
                for (int i = 0; i < k->d_head; i++) s += q[t][h * k->d_head + i] * key[j][kv + i];
                sum += weight[j] = exp(s / sqrt(per));
            }
            for (int j = first; j <= t; j++)
                for (int i = 0; i < k->d_head; i++)
                    mixed[h * k->d_head + i] += weight[j] / sum * value[j][kv + i];
        }
        mat_vec(weights(m, layer, "attn_output.weight"), mixed, k->d, k->heads * k->d_head, NULL,
                out);
        if (post) norm(out, post, k->d, out);
        for (int i = 0; i < k->d; i++) x[t][i] += out[i];
    }
}

static inline double activation(const tiny *k, double x) {
    if (!k->gemma) return x / (1 + exp(-x));
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static inline void oracle_ffn(const tiny_model *m, int layer, int n, double x[MAX_N][MAX_WIDTH]) {
    const tiny *k = &m->k;
    const float *post = weights(m, layer, "post_ffw_norm.weight");
    for (int t = 0; t < n; t++) {
        double h[MAX_WIDTH], gate[MAX_WIDTH], up[MAX_WIDTH], out[MAX_WIDTH];
        norm(x[t], weights(m, layer, "ffn_norm.weight"), k->d, h);
        mat_vec(weights(m, layer, "ffn_gate.weight"), h, k->ffn, k->d, NULL, gate);
        mat_vec(weights(m, layer, "ffn_up.weight"), h, k->ffn, k->d, NULL, up);
        for (int i = 0; i < k->ffn; i++) gate[i] = activation(k, gate[i]) * up[i];
        mat_vec(weights(m, layer, "ffn_down.weight"), gate, k->d, k->ffn, NULL, out);
        if (post) norm(out, post, k->d, out);
        for (int i = 0; i < k->d; i++) x[t][i] += out[i];
    }
}

/* Logits [n, vocab] of a chain from position 0. */
static inline void oracle(const tiny_model *m, const int32_t *tokens, int n, double *logits) {
    static double x[MAX_N][MAX_WIDTH];
    const tiny *k = &m->k;
    const float *embedding = weights(m, -1, "token_embd.weight");
    const float *head = weights(m, -1, k->tied ? "token_embd.weight" : "output.weight");
    double scale = k->gemma ? sqrt(k->d) : 1;
    for (int t = 0; t < n; t++)
        for (int i = 0; i < k->d; i++) x[t][i] = scale * (double)embedding[tokens[t] * k->d + i];
    for (int layer = 0; layer < k->layers; layer++) {
        static double in[MAX_N][MAX_WIDTH];
        for (int t = 0; t < n; t++) norm(x[t], weights(m, layer, "attn_norm.weight"), k->d, in[t]);
        oracle_attention(m, layer, n, in, k->d, x);
        oracle_ffn(m, layer, n, x);
    }
    for (int t = 0; t < n; t++) {
        double h[MAX_WIDTH];
        norm(x[t], weights(m, -1, "output_norm.weight"), k->d, h);
        mat_vec(head, h, k->vocab, k->d, NULL, logits + t * k->vocab);
        for (int i = t * k->vocab; k->softcap > 0 && i < (t + 1) * k->vocab; i++)
            logits[i] = k->softcap * tanh(logits[i] / k->softcap);
    }
}
/* ---- decoding ------------------------------------------------------------------------------ */

/* `length` tokens after a prompt; a policy text of NULL decodes plainly. @return proposals made. */
static inline int64_t decode_tokens(const engine_model *e, const engine_drafter *drafter,
                                    const char *text, int32_t *out, int32_t length) {
    static const int32_t prompt[] = {3, 1, 4, 1, 5, 9, 2, 6};
    specrt_head_desc desc;
    specrt_head *head = NULL;
    specrt_policy *policy = NULL;
    specrt_session_params params = {.tree = {.num_steps = 3, .topk = 3, .num_draft_tokens = 9}};
    specrt_session_stats stats = {0};
    specrt_error err = {0};
    const specrt_verdict *v;
    if (text) {
        engine_drafter_head(drafter, &desc);
        head = bind_head(NULL, &desc);
        specrt_policy_desc p = {.text = text, .n_vocab = engine_get_config(e)->n_vocab};
        policy = create_policy(NULL, head, &p);
    }
    over o = over_models(e, text ? drafter : NULL, policy, &params, 0, 0);
    decoder *d = o.decoder;
    const specrt_request request = {.max_tokens = length};
    REQUIRE(decoder_begin(d, &request, prompt, 8, &err) == SPECRT_STATUS_OK);
    do {
        REQUIRE(decoder_next(d, &v, &err) == SPECRT_STATUS_OK && v->n > 0);
        memcpy(out, v->tokens, (size_t)v->n * sizeof *out);
        out += v->n;
    } while (v->end == SPECRT_END_NONE);
    CHECK_INT(v->end, SPECRT_END_LENGTH);
    if (text) specrt_session_get_stats(decoder_session(d), &stats);
    over_free(&o);
    specrt_policy_close(policy);
    specrt_head_close(head);
    return stats.n_drafted;
}

/* The drafter drafts under each policy, and changes nothing of what is emitted. */
static inline void check_lossless(engine_model *e, engine_drafter *d) {
    enum { LENGTH = 60 };
    static const char *const policies[] = {"full", "window:6@min=3", "microspec"};
    int32_t plain[LENGTH], found[LENGTH];
    decode_tokens(e, NULL, NULL, plain, LENGTH);
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        CHECK(decode_tokens(e, d, policies[i], found, LENGTH) > LENGTH);
        CHECK(memcmp(plain, found, sizeof plain) == 0);
    }
}

#endif
