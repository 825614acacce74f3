/* specrt_llama.h : specrt inside llama.cpp, through its C API alone (llama.h, ggml.h, gguf.h).
 *
 * Two contexts of llama.cpp become a specrt_host. The target's is an ordinary one. The drafter's ends every
 * pass at the node "result_norm", before the LM head: specrt scores the rows that the policy names, straight
 * from the drafter's file. Chains and trees; a tree's paths are sequences that share cells of the cache.
 *
 *     llama_backend_init(), load both models as ever, then
 *     specrt_llama_head_open("draft.gguf", &rows, &err);
 *     specrt_llama_create(target, draft, &rows, &params, &pair, &err);      // checks the pair, see below
 *     specrt_head_bind(NULL, &rows.desc, NULL, &head, &err);
 *     specrt_llama_describe(pair, &policy_desc, &session_params);         // and set policy_desc.text
 *     specrt_policy_create(bundle, head, &policy_desc, &policy, &err);
 *     specrt_session_create(policy, &session_params, NULL, &session, &err);
 *     specrt_host host = specrt_llama_host(pair);
 *     for each prompt: specrt_llama_reset(pair); specrt_generate(session, &host, NULL, prompt, n, &answer);
 *
 * Compile specrt_llama*.c beside the file that defines SPECRT_IMPLEMENTATION and SPECRT_TOOLS, and link
 * llama and ggml; with SPECRT_LLAMA_STATES defined where llama.h has llama_batch_ext_set_embd_token(). Then a
 * drafter may be an EAGLE-3 head, MTP layers or a block drafter (DFlash, DSpark), too: they read states of
 * the target, at no call of yours. A block drafter whose file has no head takes the target's rows by
 * specrt_llama_head_share(), and its host has draft_block in place of draft_step.
 * Load models whose MTP layers draft with load_mtp, without which llama.cpp aborts. Where these layers are
 * the target's own, pass the target as the drafter, too.
 * tools/specrt-llama is a whole program. What a bundle holds for one head (sketch, cluster, centroid) must
 * have been built for the drafter's; ranks and successors follow from the tokenizer and serve any.
 *
 * REFUSES, in one line each: another vocabulary; encoders, diffusion and recurrent models; hybrid models
 * as drafters, as targets of trees, or of architectures without snapshots of their state (but qwen3next); a
 * drafter whose head has a bias or lies in a split file, or whose graph does not end in "result_norm", a
 * product and the scale and cap that its file names (a graph split over devices); EAGLE-3 heads of another
 * target, or whose rows are the target's (no output.weight); MTP layers of another target, or of
 * architectures that no test of ours ran; DFlash 2, block drafters of another target, of DeepSeek V4, or
 * that read more than 8 layers, or the target's last. */
#ifndef LLAMA_SPECRT_LLAMA_H
#define LLAMA_SPECRT_LLAMA_H

#include <stdbool.h>
#include <stddef.h>
#include "llama.h"
#include "specrt.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPECRT_LLAMA_TAPS 8 /* most layers of a target whose states a drafter reads */

/* The rows of a drafter's head: of an MTP layer its shared_head_head.weight, else output.weight of the
 * GGUF, or token_embd.weight where they are one; of tokens d2t where it has such a list. */
typedef struct specrt_llama_head {
    /* for specrt_head_bind(); rows [n_rows, n_cols] in the mapping, logit_scale and softcap by the file's
     * logit_scale and final_logit_softcapping */
    specrt_head_desc desc;
    /* of Gemma 4's drafter, rows [width of the target's states, n_cols]; else zero */
    specrt_head_desc projection;
    void *map; /* the file, owned */
    size_t n_map;
    int32_t *ids;  /* desc.ids, owned; NULL: none */
    int32_t n_mtp; /* MTP layers behind the model's own, which then draft; 0: none */
    /* eagle3.target_layers or dflash.target_layers: the first of them, and how many there are */
    int32_t target_layers[SPECRT_LLAMA_TAPS], n_target_layers;

    /* Of a block drafter. desc.markov and confidence are owned; NULL: none */
    float *confidence; /* f32 [n_cols + rank of the Markov head, if any] */
    float confidence_bias;
    void *map_of_target; /* specrt_llama_head_share()'s file, owned */
    size_t n_map_of_target;
} specrt_llama_head;

/* specrt_llama_head_open() : maps a GGUF file.
 * @return OK; IO; BAD_INPUT naming file, tensor or key; UNSUPPORTED for a type that specrt does not know, a
 * bias, a part of a split file, or a block drafter of another kind than DFlash and DSpark. */
specrt_status specrt_llama_head_open(const char *path, specrt_llama_head *out, specrt_error *err);
void specrt_llama_head_close(specrt_llama_head *head);

/* specrt_llama_head_share() : takes the target's rows for a block drafter whose file has no head: desc.rows
 * is NULL. llama.cpp takes them by itself.
 *   target : the target's GGUF
 * @return as specrt_llama_head_open(). */
specrt_status specrt_llama_head_share(specrt_llama_head *head, const char *target,
                                      specrt_error *err);

/* specrt_llama_head_number() : Gives the rows their tokens' ids where the target has more tokens than the
 * head has rows: the others are emitted like any token, but never drafted. specrt_llama_create() calls it;
 * loops of your own call it before specrt_head_bind().
 *   n_vocab : tokens of the target
 * @return OK, NO_MEMORY. */
specrt_status specrt_llama_head_number(specrt_llama_head *head, int32_t n_vocab, specrt_error *err);

/* specrt_llama_mtp_node() : for loops of your own, before llama.cpp makes a context of MTP layers: whether
 * they may draft for a target. llama.cpp aborts where they are not as it expects.
 *   n_mtp : layers that the draft has
 *   node : the node of their graph that the head multiplies, borrowed for good
 * @return OK; UNSUPPORTED or BAD_INPUT naming what is not as expected. */
specrt_status specrt_llama_mtp_node(const struct llama_model *target,
                                    const struct llama_model *draft, int32_t n_mtp,
                                    const char **node, specrt_error *err);

/* How a block drafter's passes are made, for loops of your own. */
typedef struct specrt_llama_block_kind {
    int32_t size;   /* positions that it was trained for, the root's among them */
    int32_t first;  /* the first position that proposes a token */
    int32_t mask;   /* the token of all positions but the root's */
    bool is_causal; /* for llama_set_causal_attn() */
    bool trusts;    /* its confidence head may end a draft */
} specrt_llama_block_kind;

/* specrt_llama_is_block() : whether a model is a block drafter, of a kind that is supported or not. */
bool specrt_llama_is_block(const struct llama_model *draft);

/* specrt_llama_block_read() : whether a block drafter may draft for a target, and how. To be called before
 * llama.cpp makes a context of it.
 *   head : of the drafter's file
 *   out : written
 * @return OK; UNSUPPORTED or BAD_INPUT naming what is not as expected. */
specrt_status specrt_llama_block_read(const specrt_llama_head *head,
                                      const struct llama_model *target,
                                      const struct llama_model *draft, specrt_llama_block_kind *out,
                                      specrt_error *err);

/* specrt_llama_block_unbias() : takes what the Markov head adds behind a token out of llama.cpp's logits, for
 * specrt_head_check_states(). Without a Markov head nothing changes.
 *   previous : the token; logits : f32 [n_vocab], changed */
void specrt_llama_block_unbias(const specrt_llama_head *head, int32_t previous, float *logits,
                               int32_t n_vocab);

/* specrt_llama_fingerprint() : the tokenizer's digest, equal to that of every other form of it. */
void specrt_llama_fingerprint(const struct llama_vocab *vocab, uint8_t sha256[32]);

/* Zero-initialise it. */
typedef struct specrt_llama_params {
    specrt_tree_params tree; /* the greatest that sessions will draft; topk = 1 is a chain */
    int32_t n_context;       /* positions; 0: what the target was trained with, at most 4096 */
    int32_t n_batch;         /* prompt tokens of one pass, 64 or more; 0: 128 */
    int32_t n_threads;       /* of llama.cpp; 0: its default */
    bool keeps_states;       /* the host has target_hidden, for traces and for policies that ask */
    /* Borrowed for the pair's life, and read in every pass; to be set between reset and prompt. NULL: false.
     * reads_late: a drafter that is a model of its own reads the prompt when it first drafts, not beside the
     * target. is_plain: no drafter reads the text, which is not to be drafted for */
    const bool *reads_late, *is_plain;
    const bool *by_position; /* the same, of a block drafter: as in specrt_block */
} specrt_llama_params;

/* Passes of both models since the last reset. */
typedef struct specrt_llama_times {
    double draft_seconds, target_seconds; /* prompts included */
    int64_t n_draft_passes, n_target_passes;
} specrt_llama_times;

/* A target and its drafter: one sequence. One thread at a time. */
typedef struct specrt_llama specrt_llama;

/* specrt_llama_create() : makes both contexts and checks the pair: its vocabulary, that head rows times a
 * state of the drafter are llama.cpp's logits (specrt_head_check_states()), and that a pass ends before the
 * head.
 *   target, draft : borrowed. draft NULL: a target alone, for plain decoding; its draft_step fails, and
 *       what concerns drafts (keys and meters of costs, use_head) is not to be called
 *   head : of draft's file, borrowed; its rows are numbered (specrt_llama_head_number()); NULL without draft
 *   params : NULL: all defaults
 * @return OK; BAD_ARG naming the parameter, UNSUPPORTED or BAD_INPUT naming the model and why, NO_MEMORY. */
specrt_status specrt_llama_create(struct llama_model *target, struct llama_model *draft,
                                  specrt_llama_head *head, const specrt_llama_params *params,
                                  specrt_llama **out, specrt_error *err);
void specrt_llama_free(specrt_llama *pair);

/* specrt_llama_describe() : what policy and session must know of the pair: n_vocab and n_logits, which are
 * both the tokens of the target's vocabulary, terminators (borrowed from the pair), the tree, and n_block.
 * Other fields are left as they are. */
void specrt_llama_describe(const specrt_llama *pair, specrt_policy_desc *policy,
                           specrt_session_params *session);

/* specrt_llama_host() : the pair as callbacks, valid for its life. Where it keeps states, target_hidden gives
 * those of the target's last pass, f32 [n, its width] after the final norm, a row for each row of logits;
 * else there is none. */
specrt_host specrt_llama_host(specrt_llama *pair);

/* specrt_llama_reset() : forget the sequence: before every specrt_host_begin() and
 * specrt_generate(), which run the whole prompt. */
void specrt_llama_reset(specrt_llama *pair);

/* What both models hold of a sequence, copied out of their caches: an application that goes on from one
 * prompt several times has it read once. Zero-initialise it. */
typedef struct specrt_llama_state {
    void *target, *draft; /* llama_state_seq_get_data() of sequence 0, owned */
    size_t n_target, n_draft;
    int32_t *tokens; /* [n_past], owned */
    int32_t n_past, n_read;
    float *waiting; /* states that an EAGLE-3 head or an MTP layer has not read, owned */
} specrt_llama_state;

/* specrt_llama_keep() : a copy of the sequence, as it is between two cycles or after a prompt.
 *   out : empty, or kept before: then it is freed first
 * @return OK; NO_MEMORY naming the bytes; UNSUPPORTED for a model whose cache llama.cpp does not copy. */
specrt_status specrt_llama_keep(specrt_llama *pair, specrt_llama_state *out, specrt_error *err);

/* specrt_llama_resume() : in place of reset and the prompt: the sequence is what was kept, and passes of both
 * models give what they gave after it, bit for bit. What the target said at the last token is the
 * application's to keep.
 * @return OK; BAD_ARG for what another pair, or none, kept: then the sequence is empty. */
specrt_status specrt_llama_resume(specrt_llama *pair, const specrt_llama_state *state,
                                  specrt_error *err);
void specrt_llama_state_free(specrt_llama_state *state);

/* specrt_llama_fault() : why a callback failed, when a call of specrt returned SPECRT_STATUS_HOST; else
 * empty. Borrowed. */
const char *specrt_llama_fault(const specrt_llama *pair);

/* specrt_llama_relative_rms() : of head rows times a state beside llama.cpp's logits, at the start. */
double specrt_llama_relative_rms(const specrt_llama *pair);
specrt_llama_times specrt_llama_get_times(const specrt_llama *pair);

/* specrt_llama_keeps_chains() : whether the drafter need not read again what was accepted of a chain that it
 * drafted. EAGLE-3 heads and MTP layers read it once more, with the target's states. */
bool specrt_llama_keeps_chains(const specrt_llama *pair);

/* ---- costs, for `auto` (specrt_adapt.h) ---- */

/* What costs depend on. */
typedef struct specrt_llama_setting {
    const struct llama_model *target, *draft;
    int32_t n_threads, n_context, n_slots;
    specrt_tree_params tree;
} specrt_llama_setting;

/* specrt_llama_key() : key of specrt_costs_path(); specrt_llama_pair_key() : that of a pair. */
void specrt_llama_key(const specrt_llama_setting *setting, char out[SPECRT_COSTS_KEY]);
void specrt_llama_pair_key(const specrt_llama *pair, char out[SPECRT_COSTS_KEY]);

/* specrt_llama_use_head() : whether draft_step or draft_block runs llama.cpp's LM head (to compare with it)
 * instead of ending before it. Then there are no states, and specrt_llama_draft_logits() has f32 [beam->n,
 * n_vocab] of the last step, or [block->n, n_vocab] of the last block with the Markov head behind the greedy
 * tokens, borrowed until the next. */
void specrt_llama_use_head(specrt_llama *pair, bool use);
const float *specrt_llama_draft_logits(const specrt_llama *pair);

#ifdef __cplusplus
}
#endif

#endif
