/* eval.h : what the verbs of specrt-eval share: their flags, the models, prompts and templates. */
#ifndef SPECRT_EVAL_SHARED_EVAL_H
#define SPECRT_EVAL_SHARED_EVAL_H

#include <stdio.h>
#include <string.h>
#include "base/cli.h"
#include "base/json.h"
#include "engine/backend/decoder.h"
#include "engine/infer/auto.h"
#include "engine/infer/engine.h"
#include "corpus/prompts.h"
#include "tokenizer/tokenizer.h"

/* eval_main() : the whole program over eval_engines. Where the arguments name the engine `llama` and the
 * table lacks it, specrt-llama in the program's folder takes over. */
int eval_main(int argc, char **argv);

cli_verb_main decode_main, generate_main, compare_main, plan_main, record_main, replay_main;

/* ---- engines --------------------------------------------------------------------------------- */

typedef specrt_status backend_opener(const backend_desc *desc, backend **out, specrt_error *err);
typedef struct eval_engine {
    const char *name; /* for --engine */
    backend_opener *open;
} eval_engine;

/* The program's, the first by default; NULL as a name ends them. Those of engines.c, unless a program's own
 * object defines them. */
extern const eval_engine eval_engines[];

/* ---- options --------------------------------------------------------------------------------- */

typedef struct eval_options {
    cli_common common;
    const char *engine; /* NULL: the first of eval_engines */
    const char *target, *draft, *bundle, *template_name;
    const char *system;   /* message of prompts that have none of their own; NULL: the template's */
    cli_list texts;       /* of --prompt */
    cli_list prompts;     /* files */
    cli_list policies;    /* as given; each may hold a comma list */
    bool takes_auto;      /* as a policy */
    bool takes_heads;     /* policies may end in @head=TYPE */
    prompt_choice choice; /* of each file's prompts */
    int64_t max_tokens, n_context;
    int64_t num_steps, topk, num_draft_tokens; /* 0: not given, until eval_choose_tree() */
    bool tree;                                 /* --tree */
    specrt_tree_params
        auto_tree;     /* of eval_choose_tree(): the largest of auto; zeros: not called */
    bool keeps_states; /* cycles are recorded, with the target's states */
    bool sampled_drafts;
    bool by_position, no_markov; /* of block drafters */
    double draft_temperature;
    double p_min; /* a draft ends where its best path is less probable */
    double temperature, top_p, min_p;
    int64_t top_k;
} eval_options;

/* Rows of a verb's option table. */
/* clang-format off */
#define EVAL_TARGET(o) \
    sl_cli_heading("Model"), \
    sl_cli_string("engine", "NAME", &(o).engine, "specrt, or llama where specrt-llama is built (specrt)"), \
    sl_cli_string("target", "FILE", &(o).target, "GGUF of the target"), \
    sl_cli_int("context", "N", &(o).n_context, ENGINE_LEAST_CONTEXT, ENGINE_MOST_CONTEXT, \
     "positions of a sequence (default: the model's)")
#define EVAL_DRAFT(o) \
    sl_cli_string("draft", "FILE", &(o).draft, \
     "EAGLE head, MTP module, DFlash or DSpark (safetensors, config.json beside it), or a GGUF: an MTP " \
     "module, or a small model"), \
    sl_cli_string("bundle", "FILE", &(o).bundle, "bundle with the sections that the policies need"), \
    sl_cli_flag("by-position", &(o).by_position, \
     "of DFlash and DSpark: a list for each position of a block instead of one for all"), \
    sl_cli_flag("no-markov", &(o).no_markov, "of DSpark: score without the Markov head")
/* The shape of a verb's drafts; what the numbers mean is the verb's. */
#define EVAL_SHAPE(o, steps, topk_help, nodes) \
    sl_cli_int("num-steps", "N", &(o).num_steps, 1, SPECRT_TREE_MAX_STEPS, steps), \
    sl_cli_int("topk", "N", &(o).topk, 1, SPECRT_TREE_MAX_TOPK, topk_help), \
    sl_cli_int("num-draft-tokens", "N", &(o).num_draft_tokens, 2, SPECRT_TREE_MAX_NODES, nodes), \
    sl_cli_flag("sampled-drafts", &(o).sampled_drafts, \
     "sample a chain from the drafter's distribution; needs a temperature"), \
    sl_cli_real("draft-temperature", "X", &(o).draft_temperature, 0, 100, \
     "temperature of sampled drafts (the target's)")
#define EVAL_CHAIN(o, steps) \
    sl_cli_flag("tree", &(o).tree, \
     "draft EAGLE-2's tree, 6 levels of 10 with 60 nodes, instead of a chain; slow on a CPU"), \
    EVAL_SHAPE(o, steps, "branches per node; above 1 a tree (1; with --tree 10)", \
     "nodes that the target verifies, with the root (num-steps + 1; a tree 60)")
#define EVAL_PROMPTS(o) \
    sl_cli_heading("Prompts"), \
    sl_cli_strings("prompts", "FILE", &(o).prompts, \
     "JSON Lines (.gz, .zst): prompt, question, turns, instruction or prompt_ids"), \
    sl_cli_strings("prompt", "TEXT", &(o).texts, "a prompt; repeats"), \
    sl_cli_string("system", "TEXT", &(o).system, \
     "system message of prompts without one of their own (default: the template's)"), \
    sl_cli_int("limit", "N", &(o).choice.limit, 1, 1e9, \
     "take N prompts of each file, evenly spread"), \
    sl_cli_int("every", "N", &(o).choice.every, 1, 1e9, \
     "before that, every Nth prompt of each file alone, the first included"), \
    sl_cli_int("skip-every", "N", &(o).choice.skip_every, 2, 1e9, \
     "all but every Nth, so that others can be compared on --every N"), \
    sl_cli_string("chat-template", "NAME", &(o).template_name, \
     "llama3, chatml, vicuna, gemma, none or a JSON file (default: the model's own)"), \
    sl_cli_int("max-tokens", "N", &(o).max_tokens, 1, 1e9, "tokens decoded per turn at most (128)")
#define EVAL_SAMPLING(o) \
    sl_cli_heading("Sampling"), \
    sl_cli_real("temperature", "X", &(o).temperature, 0, 100, "temperature; 0 is greedy (0)"), \
    sl_cli_int("top-k", "N", &(o).top_k, 0, 1 << 24, "sample from the N best tokens"), \
    sl_cli_real("top-p", "X", &(o).top_p, 0, 1, "sample from the best tokens with probability X in all"), \
    sl_cli_real("min-p", "X", &(o).min_p, 0, 0.999, \
     "sample from tokens with at least X times the best one's probability")
/* clang-format on */

void eval_options_free(eval_options *o);

/* ---- heads in other types -------------------------------------------------------------------- */

/* What engines do that do not cut rows: a copy of the whole head in 8 or 4 bits drafts. */
enum { EVAL_POLICY_TEXT = 512, EVAL_HEADS = 4, EVAL_HEAD_STORED = -1 };
typedef struct eval_head {
    int type; /* specrt_dtype of the copy, or EVAL_HEAD_STORED: none */
    uint8_t *rows;
    specrt_head *head;
} eval_head;

/* eval_head_suffix() : "@head=TYPE" of a policy's text; its end: it has none. */
const char *eval_head_suffix(const char *text);

/* eval_split_head() : a policy's text without it, and the type or EVAL_HEAD_STORED.
 * @return OK; BAD_ARG: another type, or one of auto */
specrt_status eval_split_head(const char *text, char policy[EVAL_POLICY_TEXT], int *type,
                              specrt_error *err);

/* eval_policy_text() : a policy in canonical form, with the suffix of the text it was made from.
 * @return out */
enum { EVAL_CANONICAL = 1100 };
const char *eval_policy_text(const specrt_policy *policy, const char *text,
                             char out[EVAL_CANONICAL]);

/* eval_same_policy() : whether two policies, made from these texts, score the same rows alike. */
bool eval_same_policy(const specrt_policy *a, const char *text_a, const specrt_policy *b,
                      const char *text_b);

/* eval_put_head() : how to get such a head outside of these tools, a line; of other policies nothing. */
void eval_put_head(FILE *f, const char *text);

/* eval_head_bind() : a copy in that type; the stored rows are not read again.
 * @return as sl_head_quantise() and specrt_head_bind() */
specrt_status eval_head_bind(const specrt_bundle *bundle, const specrt_head_desc *desc, int type,
                             const specrt_env *env, eval_head *out, specrt_error *err);
void eval_head_close(eval_head *h);

/* ---- models ---------------------------------------------------------------------------------- */

/* Target, drafter and what they share; zero-initialise. */
typedef struct eval_models {
    backend *engine;
    const backend_info *info; /* the engine's */
    sequence **sequences;     /* [n_sequences] that may run at the same time */
    int n_sequences;
    tokenizer *tok;
    specrt_bundle *bundle; /* NULL: none */
    specrt_head *head;     /* the drafter's; NULL: plain decoding only */
    specrt_head_desc head_desc;
    eval_head *heads; /* [EVAL_HEADS] copies that policies asked for */
    specrt_head *target_head;
    specrt_worker *worker; /* of policies that work beside the cycles */
} eval_models;

/* models_open() : all that the options name, checked against each other.
 *   n_sequences : wanted, 1 or more; an engine may have fewer */
specrt_status models_open(const eval_options *o, int n_sequences, eval_models *out,
                          specrt_error *err);
void models_close(eval_models *m);

/* each_policy() : takes the texts of --policy one by one; an argument may be a list, "a,b".
 * @return the first that is not OK. */
typedef specrt_status policy_taker(void *user, const char *text, specrt_error *err);
specrt_status each_policy(const cli_list *lists, policy_taker *take, void *user, specrt_error *err);

/* eval_fixed_policy() : @return OK; BAD_ARG: the text is of auto */
specrt_status eval_fixed_policy(const char *text, specrt_error *err);

/* models_describe() : what policies are created from, but for their text; borrowed.
 * models_policy() : a policy for its drafter (of auto: auto_policy()), over its head or, with @head=TYPE,
 * over a copy, which is made once; terminators are the tokenizer's. */
void models_describe(const eval_models *m, specrt_policy_desc *out);
specrt_status models_policy(const eval_models *m, const char *text, specrt_policy **out,
                            specrt_error *err);

/* models_row_bytes() : bytes of a row of the head that a policy's text names. */
size_t models_row_bytes(const eval_models *m, const char *text);

/* models_ends() : whether a token is a terminator, of the tokenizer or, as for policies, of the bundle. */
bool models_ends(const eval_models *m, int32_t token);

/* eval_tree() : a tree with the runtime's defaults for 0; on failure as it was asked for. */
specrt_status eval_tree(const specrt_tree_params *asked, specrt_tree_params *out,
                        specrt_error *err);

/* eval_choose_tree() : fill in the three numbers of the drafts' shape that were not given: a chain of 3
 * drafted tokens; with --tree, or --topk above 1, EAGLE-2's tree. auto_tree is that shape too, but its chain
 * has up to 6 tokens: `auto` drafts only as many as are worth their cost.
 *   tree_by_default : as with --tree; where the options ask for a chain, it is as long as the tree is deep
 * @return BAD_ARG for options that contradict each other, or a tree beyond the runtime's limits */
specrt_status eval_choose_tree(eval_options *o, bool tree_by_default, specrt_error *err);

/* eval_sampling() : the sampling that the options ask for, keyed by the number of a prompt, from 0, and of a
 * turn of its conversation. Equal prompts are answered differently, and all verbs answer a prompt alike. */
specrt_sampling eval_sampling(const eval_options *o, int number, int turn);

/* models_session() : what trees and sampling the options ask for; its draws are those of a prompt's turns,
 * one after the other. A tree that is refused stays as asked for, so that its session says why. */
specrt_session_params models_session(const eval_models *m, const eval_options *o, int number);

/* models_decoder() : a decoder over a sequence, with the tokenizer's vocabulary.
 *   policy : NULL: plain decoding
 * @return as decoder_create() */
specrt_status models_decoder(const eval_models *m, sequence *over, const specrt_policy *policy,
                             const specrt_session_params *params, decoder **out, specrt_error *err);

/* What sessions of auto decide by. Zero-initialise it, but for the file. */
typedef struct eval_costs {
    const char *file;             /* of --costs; NULL: measured when first asked for */
    specrt_costs costs;           /* target.n 0: not yet */
    bool by_clock;                /* autos follow the clock */
    char kept[SPECRT_COSTS_PATH]; /* the file of the clock's costs; empty: none */
} eval_costs;

/* What a policy's sessions are created from, owned. */
typedef struct eval_drafts {
    specrt_policy *policy;
    specrt_auto *auto_draft; /* of auto; NULL: drafts are whole */
    specrt_clock clock;      /* for decoders, of a session by the clock */
    bool by_clock;
} eval_drafts;

/* eval_measure() : what calls cost in the engine at hand: head, drafter and target by rows, tokens and nodes
 * of auto's tree, with their key. Where the machine is too busy to tell, a warning says so.
 *   seconds : no round begins later
 *   n_before : tokens in the caches; 0: 64
 * @return as specrt_costs_measure() */
specrt_status eval_measure(const eval_models *m, const eval_options *o, double seconds,
                           int32_t n_before, specrt_costs *out, specrt_error *err);

/* eval_open_drafts() : a policy by its text. Of `auto` and auto+POLICY the controller too, by costs that are
 * read or measured the first time.
 *   params : of auto the tree and the controller are set */
specrt_status eval_open_drafts(const eval_models *m, const eval_options *o, eval_costs *c,
                               const char *text, specrt_session_params *params, eval_drafts *out,
                               specrt_error *err);
void eval_close_drafts(eval_drafts *d);

/* eval_decoder() : a decoder of these drafts, over a sequence.
 *   drafts : with a policy; NULL: plain decoding, or the engine's own drafts */
specrt_status eval_decoder(const eval_models *m, sequence *over, const eval_drafts *drafts,
                           bool own, const specrt_session_params *params, decoder **out,
                           specrt_error *err);

/* ---- prompts --------------------------------------------------------------------------------- */

/* prompts_of() : --prompt and every --prompts file. prompts_given() : the same, at least one. */
specrt_status prompts_of(const eval_options *o, prompt_list *out, specrt_error *err);
specrt_status prompts_given(const eval_options *o, prompt_list *out, specrt_error *err);

/* ---- chat templates -------------------------------------------------------------------------- */

typedef struct chat chat;

/* chat_create() : the form that --chat-template names, or a JSON file {"begin": S, "system": [S, S], "user":
 * [S, S], "assistant": [S, S]} of texts before and after a message; without it what the target's own template
 * says, and where it is of no form that is known, what the tokenizer's special tokens tell. Special tokens in
 * these texts become their ids; in messages they stay text. */
specrt_status chat_create(const eval_options *o, const tokenizer *tok, chat **out,
                          specrt_error *err);
void chat_free(chat *c);
/* chat_announce() : on stderr which form, and who says so; once, when a first prompt has been decoded. */
void chat_announce(chat *c);
void chat_put_json(const chat *c, json_object *to);

/* chat_begin() : start a conversation's ids.
 *   system : its own system message; kept up to the first chat_user(). NULL: the template's */
specrt_status chat_begin(chat *c, const char *system, id_list *ids);
/* chat_user() : append a message and the opening of the answer. */
specrt_status chat_user(chat *c, const char *text, id_list *ids);
/* chat_answered() : close the answer whose tokens (terminator included or not) end `ids`. */
specrt_status chat_answered(chat *c, id_list *ids);

/* chat_prompt() : the ids of a prompt's first turn, or those given as ids. */
specrt_status chat_prompt(chat *c, const prompt *p, id_list *ids);

/* ---- running --------------------------------------------------------------------------------- */

typedef struct run_result {
    id_list tokens; /* what was written; a terminator, if any, is the last */
    double seconds; /* after the prompt */
    decoder_times times;
    specrt_session_stats stats; /* of this turn alone; zero when plain */
} run_result;

/* run_prompt() : decodes one turn, until a terminator, max_tokens or the context's end.
 *   request : as for decoder_begin(). max_tokens cuts the answer, but statistics count the last cycle
 *       whole, so that the accept length does not depend on the limit
 *   each : called with new tokens as they come; may be NULL
 * @return BAD_INPUT for a prompt that is empty, too long or has other tokens. */
specrt_status run_prompt(const eval_models *m, decoder *d, const specrt_request *request,
                         const id_list *input,
                         void (*each)(void *user, const int32_t *tokens, int32_t n), void *user,
                         run_result *out, specrt_error *err);

/* run_add_stats(), run_add_times() : sums over turns.
 *   times : 1, or -1 to subtract */
void run_add_stats(specrt_session_stats *to, const specrt_session_stats *s, int times);
void run_add_times(decoder_times *to, const decoder_times *t);

enum { LOOP_LONGEST = 64 };
/* loop_tokens() : how many of the tokens repeat. A token does when, for some period p of 1 to 64, it
 * ends a stretch of at least max(2 p, 8) tokens each equal to the one p before. */
int64_t loop_tokens(const int32_t *tokens, size_t n);

specrt_status ids_append(id_list *ids, const int32_t *tokens, int32_t n);

/* Text from tokens as they come: whole characters only, ill-formed bytes as U+FFFD. Special tokens
 * are left out. */
typedef struct text_stream {
    const tokenizer *tok;
    FILE *f;
    char held[8]; /* bytes of an unfinished character */
    size_t n_held;
} text_stream;

void text_stream_put(text_stream *s, const int32_t *tokens, int32_t n);
void text_stream_end(text_stream *s); /* what is still held */

/* text_of() : of all tokens. @return owned; NULL: no memory */
char *text_of(const tokenizer *tok, const id_list *tokens);

#endif
