/* specrt_llama_check.c : whether two models can be a pair, by their vocabularies and architectures. */
#include <stdio.h>
#include <string.h>
#include "specrt_llama_impl.h"

/* ---- vocabularies -------------------------------------------------------------------------------- */

/* llama.cpp marks some tokens as control beside what the file says; those count by their text. */
void specrt_llama_fingerprint(const struct llama_vocab *vocab, uint8_t sha256[32]) {
    const int counted = LLAMA_TOKEN_ATTR_NORMAL | LLAMA_TOKEN_ATTR_BYTE;
    specrt_sha256 sha;
    char piece[1024];
    specrt_sha256_init(&sha);
    for (int32_t id = 0; id < llama_vocab_n_tokens(vocab); id++) {
        if (!((int)llama_vocab_get_attr(vocab, id) & counted)) continue;
        int32_t n = llama_token_to_piece(vocab, id, piece, sizeof piece, 0, true);
        if (n > 0) specrt_tokenizer_hash_token(&sha, id, piece, (size_t)n);
    }
    specrt_sha256_final(&sha, sha256);
}

/* Lists of one family may differ at their ends. Tokens that only the target has are not drafted. */
enum { MOST_PADDING = 128 }; /* as llama.cpp's own drafts allow */

static specrt_status check_vocabularies(specrt_llama *s, const struct llama_vocab *target,
                                        const struct llama_vocab *draft, specrt_error *err) {
    int32_t a = llama_vocab_n_tokens(target), b = llama_vocab_n_tokens(draft);
    s->n_logits = a;
    s->n_vocab = a < b ? a : b;
    if (a - b > MOST_PADDING || b - a > MOST_PADDING)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "drafter: its vocabulary is another: expected the target's %d "
                                "tokens, found %d",
                                (int)a, (int)b);
    for (int32_t id = 0; id < s->n_vocab; id++)
        if (strcmp(llama_vocab_get_text(target, id), llama_vocab_get_text(draft, id)) != 0)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "drafter: its vocabulary is another: token %d is not the "
                                    "target's; a drafter must have its tokens",
                                    (int)id);
    for (int32_t id = 0; id < a && s->n_terminators < SPECRT_MAX_TERMINATORS; id++)
        if (llama_vocab_is_eog(target, id)) s->terminators[s->n_terminators++] = id;
    return SPECRT_STATUS_OK;
}

/* ---- which models -------------------------------------------------------------------------------- */

/* The value of "<architecture>.<key>", or an empty text. */
static void meta_value(const struct llama_model *model, const char *key, char *out, size_t n) {
    char arch[64] = "", name[128];
    out[0] = '\0';
    if (llama_model_meta_val_str(model, "general.architecture", arch, sizeof arch) < 0) return;
    snprintf(name, sizeof name, "%s.%s", arch, key);
    if (llama_model_meta_val_str(model, name, out, n) < 0) out[0] = '\0';
}

/* What a cache of rows cannot take back, or has no next token. */
static const char *unfit(const struct llama_model *model) {
    char causal[16];
    meta_value(model, "attention.causal", causal, sizeof causal);
    if (llama_model_has_encoder(model) || !llama_model_has_decoder(model) ||
        strcmp(causal, "false") == 0)
        return "an encoder, which has no next token";
    if (llama_model_is_diffusion(model)) return "a diffusion model, which has no next token";
    if (llama_model_is_recurrent(model))
        return "recurrent: its state cannot give back what was drafted in vain";
    return NULL;
}

static specrt_status check_model(const struct llama_model *model, const char *role,
                                 specrt_error *err) {
    const char *why = unfit(model);
    if (!why) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED, "%s: %s; expected a decoder", role,
                            why);
}

static specrt_status refuse_hybrid(const struct llama_model *model, const char *role,
                                   const char *why, specrt_error *err) {
    if (!llama_model_is_hybrid(model)) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED, "%s: partly recurrent: %s", role, why);
}

#define GIVES_NOTHING_BACK "its state cannot give back what was drafted in vain"

specrt_status specrt_llama_check_branches(const specrt_llama *s, const struct llama_model *target,
                                          specrt_error *err) {
#ifdef SPECRT_LLAMA_STATES
    if (s->tree.topk == 1) return SPECRT_STATUS_OK;
    return refuse_hybrid(target, "target", "its state does not branch; expected chains: topk 1",
                         err);
#else
    (void)s;
    return refuse_hybrid(target, "target", GIVES_NOTHING_BACK, err);
#endif
}

/* Of a model that is recurrent in part llama.cpp keeps snapshots, one for each token of the last pass: of the
 * target that is a cycle, of a drafter one step. Where it keeps none, accepted tokens are read again. */
specrt_status specrt_llama_check_rollback(specrt_llama *s, const struct llama_model *target,
                                          specrt_error *err) {
#ifdef SPECRT_LLAMA_STATES
    char arch[64] = "";
    llama_model_meta_val_str(target, "general.architecture", arch, sizeof arch);
    if (llama_n_rs_seq(s->target) + 1 >= (uint32_t)s->tree.num_draft_tokens)
        return SPECRT_STATUS_OK;
    s->replays = strcmp(arch, "qwen3next") == 0;
    if (s->replays) return SPECRT_STATUS_OK;
#endif
    return refuse_hybrid(target, "target",
                         "llama.cpp keeps no snapshots of its architecture's state", err);
}

static specrt_status check_columns(const struct llama_model *model, const specrt_llama_head *head,
                                   specrt_error *err) {
    if (head->desc.n_cols == llama_model_n_embd(model)) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "drafter: its head has %lld columns; expected the %d of its states: "
                            "is it of another file?",
                            (long long)head->desc.n_cols, (int)llama_model_n_embd(model));
}

/* A model that drafts by itself, an EAGLE-3 head, MTP layers, or a block drafter. */
static specrt_status check_drafter(specrt_llama *s, const struct llama_model *target,
                                   const struct llama_model *model, specrt_error *err) {
    char arch[64] = "";
    llama_model_meta_val_str(model, "general.architecture", arch, sizeof arch);
    if (!s->head->desc.rows)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "drafter: its file has no head; expected the target's, by "
                                "specrt_llama_head_share()");
    TRY(check_columns(model, s->head, err));
    if (s->head->n_mtp == 0 && strncmp(arch, "eagle", 5) != 0 && strcmp(arch, "dflash") != 0) {
        TRY(check_model(model, "drafter", err));
        return refuse_hybrid(model, "drafter", GIVES_NOTHING_BACK, err);
    }
#ifdef SPECRT_LLAMA_STATES
    if (s->head->n_mtp > 0) return specrt_llama_mtp_open(s, target, model, err);
    if (strcmp(arch, "eagle3") == 0) return specrt_llama_eagle3_open(s, target, model, err);
    if (strcmp(arch, "dflash") == 0) return specrt_llama_block_open(s, target, model, err);
#endif
    (void)target;
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                            "drafter: architecture %s: expected a model that drafts by itself, or "
                            "eagle3, dflash or MTP layers where SPECRT_LLAMA_STATES was defined "
                            "for the adapter",
                            arch);
}

specrt_status specrt_llama_check_pair(specrt_llama *s, const struct llama_model *target,
                                      const struct llama_model *draft, specrt_error *err) {
    TRY(check_model(target, "target", err));
    if (!draft) {
        const struct llama_vocab *vocab = llama_model_get_vocab(target);
        return check_vocabularies(s, vocab, vocab, err);
    }
    TRY(check_drafter(s, target, draft, err));
    TRY(check_vocabularies(s, llama_model_get_vocab(target), llama_model_get_vocab(draft), err));
    if (!s->head->desc.ids && s->head->desc.n_rows < s->n_vocab)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "drafter: its head has %lld rows; expected one for each of its %d "
                                "tokens",
                                (long long)s->head->desc.n_rows, (int)s->n_vocab);
    return SPECRT_STATUS_OK;
}
