/* specrt_llama_block.c : block drafters inside llama.cpp: DFlash (arXiv 2602.06036) and DSpark, which is
 * DFlash with a Markov head. Passes are those of llama.cpp's own types draft-dflash and draft-dspark: states
 * of the target become keys and values of the drafter's cache at their tokens' positions, and one pass over
 * the root and masks gives the states of a block. Here that pass ends before the LM head, and what follows it
 * (the Markov and the confidence head) is the session's to compute. */
#include "specrt_llama_impl.h"

#ifdef SPECRT_LLAMA_STATES

#include <stdlib.h>
#include <string.h>

struct specrt_llama_block {
    struct llama_batch_ext *batch; /* of states */
    specrt_llama_block_kind kind;
};

/* ---- passes -------------------------------------------------------------------------------------- */

/* Cells of a block, or of tokens that were rejected. */
static void forget_unread(specrt_llama *s) {
    llama_memory_seq_rm(llama_get_memory(s->draft), 0, s->n_read, -1);
}

/* The first n states that wait. Where positions have several numbers (M-RoPE), those of text are equal. */
static int inject(specrt_llama *s, int32_t n) {
    struct llama_batch_ext *batch = s->block->batch;
    size_t width = (size_t)s->taps.width;
    llama_batch_ext_clear(batch);
    for (int32_t i = 0; i < n; i++) {
        const llama_pos at = s->n_read + i, position[4] = {at, at, at, 0};
        struct llama_embd row = {s->taps.waiting + (size_t)i * width, 1, width};
        int32_t k = llama_batch_ext_add_embd(batch, 0, row);
        llama_batch_ext_set_pos(batch, k, position);
    }
    int64_t began = llama_time_us();
    int code = llama_process(s->draft, LLAMA_PROCESS_TYPE_DECODE, batch);
    return specrt_llama_passed(s, began, "llama_process", code);
}

static int read_states(specrt_llama *s, int32_t rest) {
    if (s->n_past - s->n_read <= rest) return 0;
    forget_unread(s);
    while (s->n_past > s->n_read) {
        int32_t left = s->n_past - s->n_read, n = left < s->n_batch ? left : s->n_batch;
        if (inject(s, n)) return 1;
        specrt_llama_taps_drop(s, n);
    }
    return 0;
}

/* As many positions as llama.cpp's own draft of n tokens has. */
static int draft_block(specrt_llama *s, int32_t root, int32_t n, specrt_block *out) {
    const specrt_llama_block_kind *b = &s->block->kind;
    int32_t most = specrt_llama_block_limit(s);
    if (n > most) n = most;
    if (read_states(s, 0)) return 1;
    forget_unread(s);
    s->to_draft.n_tokens = 0;
    for (int32_t i = 0; i < b->first + n; i++)
        specrt_llama_add(&s->to_draft, i > 0 ? b->mask : root, s->n_past + i, 0, s->uses_head);
    if (specrt_llama_run_draft(s, b->first + n)) return 1;
    out->n = n;
    out->hidden = s->hidden + (size_t)b->first * (size_t)s->d;
    out->by_position = s->by_position && *s->by_position;
    out->confidence = b->trusts ? s->head->confidence : NULL;
    out->confidence_bias = s->head->confidence_bias;
    return 0;
}

static void advance(specrt_llama *s) {
    (void)s; /* a block leaves nothing to keep */
}

int64_t specrt_llama_block_first(const specrt_llama *s) {
    return s->block ? s->block->kind.first : 0;
}

int32_t specrt_llama_block_limit(const specrt_llama *s) {
    if (!s->block) return 0;
    int32_t most = s->block->kind.size - s->block->kind.first;
    return most < s->tree.num_steps ? most : s->tree.num_steps;
}

/* ---- the check at the start ----------------------------------------------------------------------- */

static int32_t sample_root(const specrt_llama *s) {
    return s->n_vocab / 3;
}

static int sample(specrt_llama *s) {
    specrt_block block;
    for (int32_t i = 0; i < s->taps.width; i++)
        s->taps.waiting[i] = (float)(i * 37 % 101 - 50) / 25;
    s->n_past = 1;
    int bad = draft_block(s, sample_root(s), 1, &block);
    s->n_past = s->n_read = 0;
    if (!bad) memmove(s->hidden, block.hidden, (size_t)s->d * sizeof *s->hidden);
    return bad;
}

static const uint8_t *row_of(const specrt_head_desc *rows, int64_t i) {
    return (const uint8_t *)rows->rows + (size_t)i * specrt_row_bytes(rows->dtype, rows->n_cols);
}

/* By the definition. */
void specrt_llama_block_unbias(const specrt_llama_head *head, int32_t previous, float *logits,
                               int32_t n_vocab) {
    const specrt_markov_desc *markov = head->desc.markov;
    float from[SPECRT_LLAMA_MAX_RANK], to[SPECRT_LLAMA_MAX_RANK];
    if (!markov) return;
    int64_t rank = markov->from.n_cols;
    specrt_row_decode(markov->from.dtype, row_of(&markov->from, previous), rank, from);
    for (int64_t i = 0; i < markov->to.n_rows; i++) {
        int64_t id = head->desc.ids ? head->desc.ids[i] : i;
        double sum = 0;
        if (id >= n_vocab) continue;
        specrt_row_decode(markov->to.dtype, row_of(&markov->to, i), rank, to);
        for (int64_t j = 0; j < rank; j++) sum += (double)from[j] * (double)to[j];
        logits[id] -= (float)sum;
    }
}

static void unbias(const specrt_llama *s, float *logits) {
    specrt_llama_block_unbias(s->head, sample_root(s), logits, s->n_vocab);
}

/* ---- opening ------------------------------------------------------------------------------------- */

static bool start(specrt_llama *s) {
    llama_set_causal_attn(s->draft, s->block->kind.is_causal);
    s->block->batch = llama_batch_ext_init(s->draft);
    return s->block->batch != NULL;
}

static void close_reader(specrt_llama *s) {
    if (!s->block) return;
    if (s->block->batch) llama_batch_ext_free(s->block->batch);
    free(s->block);
}

static const specrt_llama_reader reader = {.start = start,
                                           .close = close_reader,
                                           .forget = forget_unread,
                                           .read = read_states,
                                           .advance = advance,
                                           .block = draft_block,
                                           .sample = sample,
                                           .unbias = unbias};

/* A key's value as llama.cpp writes it. */
static bool says(const struct llama_model *draft, const char *key, bool otherwise) {
    char text[32];
    if (llama_model_meta_val_str(draft, key, text, sizeof text) < 0) return otherwise;
    return strcmp(text, "true") == 0;
}

static int32_t number(const struct llama_model *draft, const char *key, int32_t otherwise) {
    char text[32];
    if (llama_model_meta_val_str(draft, key, text, sizeof text) < 0) return otherwise;
    return atoi(text);
}

static specrt_status bad(const char *key, const char *expected, int32_t found, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "drafter: %s: expected %s, found %d: is it this target's drafter?", key,
                            expected, (int)found);
}

bool specrt_llama_is_block(const struct llama_model *draft) {
    char arch[64] = "";
    llama_model_meta_val_str(draft, "general.architecture", arch, sizeof arch);
    return strcmp(arch, "dflash") == 0;
}

static specrt_status check_kind(const specrt_llama_block_kind *b, const struct llama_model *target,
                                const struct llama_model *draft, specrt_error *err) {
    int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(target));
    int32_t n_own = llama_vocab_n_tokens(llama_model_get_vocab(draft));
    if (number(draft, "dflash.hyper_connection.count", 0) > 0)
        return specrt_error_set(
            err, SPECRT_STATUS_UNSUPPORTED,
            "drafter: dflash.hyper_connection.count: expected none; drafters of "
            "DeepSeek V4 are not supported");
    if (b->size < 2 || b->size > SPECRT_TREE_MAX_NODES)
        return bad("dflash.block_size", "2 to 64 positions", b->size, err);
    if (n_own != n_vocab) /* it often has the target's embedding and head */
        return bad("tokenizer.ggml.tokens", "as many as the target's", n_own, err);
    if (b->mask < 0 || b->mask >= n_vocab)
        return bad("tokenizer.ggml.mask_token_id", "a token of the vocabulary", b->mask, err);
    if (llama_model_n_embd(draft) != llama_model_n_embd(target))
        return bad("dflash.embedding_length", "the target's width", llama_model_n_embd(draft), err);
    return SPECRT_STATUS_OK;
}

specrt_status specrt_llama_block_read(const specrt_llama_head *head,
                                      const struct llama_model *target,
                                      const struct llama_model *draft, specrt_llama_block_kind *out,
                                      specrt_error *err) {
    bool markov = head->desc.markov != NULL;
    out->size = number(draft, "dflash.block_size", markov ? 0 : 16);
    out->first = markov && says(draft, "dflash.sample_from_anchor", true) ? 0 : 1;
    out->mask = llama_vocab_mask(llama_model_get_vocab(draft));
    out->is_causal = says(draft, "dflash.attention.causal", false);
    out->trusts = head->confidence && says(draft, "dflash.has_confidence_head", true);
    TRY(check_kind(out, target, draft, err));
    return specrt_llama_check_taps(head, target, "dflash.target_layers", err);
}

specrt_status specrt_llama_block_open(specrt_llama *s, const struct llama_model *target,
                                      const struct llama_model *draft, specrt_error *err) {
    s->block = (struct specrt_llama_block *)calloc(1, sizeof *s->block);
    if (!s->block) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for a drafter");
    s->reader = &reader;
    TRY(specrt_llama_block_read(s->head, target, draft, &s->block->kind, err));
    s->taps.d_target = llama_model_n_embd(target);
    for (int k = 0; k < s->head->n_target_layers; k++)
        specrt_llama_taps_layer(&s->taps, k, s->head->target_layers[k]);
    return SPECRT_STATUS_OK;
}

#else

int32_t specrt_llama_block_limit(const specrt_llama *s) {
    (void)s;
    return 0;
}

int64_t specrt_llama_block_first(const specrt_llama *s) {
    (void)s;
    return 0;
}

#endif
