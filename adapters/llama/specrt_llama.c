/* specrt_llama.c : the callbacks of a specrt_host over two contexts of llama.cpp. */
#include "specrt_llama.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ggml.h"
#include "ggml-backend.h"
#include "specrt_llama_impl.h"

int specrt_llama_fail(specrt_llama *s, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(s->fault, sizeof s->fault, format, args);
    va_end(args);
    return 1;
}

/* ---- passes -------------------------------------------------------------------------------------- */

void specrt_llama_add(struct llama_batch *b, int32_t token, int32_t pos, int32_t seq, bool output) {
    int32_t i = b->n_tokens++;
    b->token[i] = token;
    b->pos[i] = pos;
    b->n_seq_id[i] = 1;
    b->seq_id[i][0] = seq;
    b->logits[i] = output;
}

/* The scheduler asks about every node of the drafter's graph. At result_norm it hands over the tensor
 * and, told false, leaves what follows uncomputed: the LM head. */
static bool at_node(struct ggml_tensor *t, bool ask, void *user) {
    specrt_llama *s = (specrt_llama *)user;
    if (s->uses_head) return false;
    if (ask) {
        if (strcmp(t->name, "result_output") == 0) s->reached_head = true;
        return strcmp(t->name, "result_norm") == 0;
    }
    if (t->type != GGML_TYPE_F32 || t->ne[0] != s->d || t->ne[1] > s->n_batch) return false;
    s->n_hidden = t->ne[1];
    ggml_backend_tensor_get(t, s->hidden, 0, ggml_nbytes(t));
    return false;
}

/* Who reads states of the text at hand; NULL: nobody. */
static const specrt_llama_reader *reader_of(const specrt_llama *s) {
    return s->is_plain && *s->is_plain ? NULL : s->reader;
}

/* The target's graph goes on behind what is read of it. */
static bool at_target_node(struct ggml_tensor *t, bool ask, void *user) {
    specrt_llama *s = (specrt_llama *)user;
    bool is_read = reader_of(s) && specrt_llama_taps_want(s, t);
    bool is_kept = s->states && strcmp(t->name, "result_norm") == 0;
    if (ask) return is_read || is_kept;
    if (is_read) specrt_llama_taps_take(s, t);
    if (!is_kept) return true;
    if (t->type != GGML_TYPE_F32 || t->ne[0] != s->d_target || t->ne[1] > s->n_batch) return true;
    s->n_states = t->ne[1];
    ggml_backend_tensor_get(t, s->states, 0, ggml_nbytes(t));
    return true;
}

/* n_outputs : rows whose state, or logits, are wanted */
int specrt_llama_passed(specrt_llama *s, int64_t began, const char *call, int code) {
    llama_synchronize(s->draft);
    s->times.draft_seconds += 1e-6 * (double)(llama_time_us() - began);
    s->times.n_draft_passes++;
    return code == 0 ? 0 : specrt_llama_fail(s, "drafter: %s returned %d", call, code);
}

int specrt_llama_headless(specrt_llama *s) {
    if (s->uses_head || !s->reached_head) return 0;
    return specrt_llama_fail(s, "drafter: its LM head was computed: its graph is split over "
                                "devices; keep it on one");
}

int specrt_llama_run_draft(specrt_llama *s, int32_t n_outputs) {
    int64_t began = llama_time_us();
    s->n_hidden = 0;
    s->reached_head = false;
    if (specrt_llama_passed(s, began, "llama_decode", llama_decode(s->draft, s->to_draft)))
        return 1;
    if (s->uses_head || n_outputs == 0) return 0;
    if (specrt_llama_headless(s)) return 1;
    if (s->n_hidden == n_outputs) return 0;
    return specrt_llama_fail(s, "drafter: its graph has no result_norm of %d rows, found %lld",
                             (int)n_outputs, (long long)s->n_hidden);
}

static int run_target(specrt_llama *s, const float **logits) {
    int64_t began = llama_time_us();
    s->n_states = 0;
    int code = llama_decode(s->target, s->to_target);
    *logits = code == 0 ? llama_get_logits(s->target) : NULL;
    s->times.target_seconds += 1e-6 * (double)(llama_time_us() - began);
    s->times.n_target_passes++;
    if (!*logits) return specrt_llama_fail(s, "target: llama_decode returned %d", code);
    return reader_of(s) ? specrt_llama_taps_saw(s, s->to_target.n_tokens) : 0;
}

/* The drafter's cells behind what it has read of the sequence. */
static void forget_unread(specrt_llama *s) {
    if (s->reader)
        s->reader->forget(s);
    else if (s->draft)
        llama_memory_seq_rm(llama_get_memory(s->draft), 0, s->n_read, -1);
}

static void put_pending(specrt_llama *s, int32_t n) {
    s->to_draft.n_tokens = 0;
    for (int32_t i = 0; i < n; i++, s->n_read++)
        specrt_llama_add(&s->to_draft, s->tokens[s->n_read], s->n_read, 0, false);
}

/* The drafter reads what the target has, but for at most `rest` tokens. Nothing is asked of these. */
static int read_pending(specrt_llama *s, int32_t rest) {
    while (s->draft && !(s->is_plain && *s->is_plain) && s->n_past - s->n_read > rest) {
        int32_t n = s->n_past - s->n_read < s->n_batch ? s->n_past - s->n_read : s->n_batch;
        put_pending(s, n);
        if (specrt_llama_run_draft(s, 0)) return 1;
    }
    return 0;
}

static int target_hidden(void *user, const float **hidden, int32_t *width) {
    specrt_llama *s = (specrt_llama *)user;
    if (s->n_states == 0) return specrt_llama_fail(s, "target: its graph has no result_norm");
    *hidden = s->states;
    *width = s->d_target;
    return 0;
}

static int target_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                          const float **logits) {
    specrt_llama *s = (specrt_llama *)user;
    const specrt_llama_reader *reader = reader_of(s);
    const bool each = all || (reader && s->outputs_all);
    if (n > s->n_batch || s->n_past + n > s->n_context)
        return specrt_llama_fail(
            s, "prompt: %d tokens at %d; expected at most %d a pass, and %d in all", (int)n,
            (int)s->n_past, (int)s->n_batch, (int)s->n_context);
    if (specrt_llama_settle(s)) return 1;
    if (reader && reader->read(s, 1)) return 1; /* makes room */
    s->to_target.n_tokens = 0;
    for (int32_t i = 0; i < n; i++) {
        specrt_llama_add(&s->to_target, tokens[i], s->n_past + i, 0, each || i == n - 1);
        s->tokens[s->n_past + i] = tokens[i];
    }
    if (run_target(s, logits)) return 1;
    if (each && !all) *logits += (size_t)(n - 1) * (size_t)s->n_logits;
    if (reader) specrt_llama_taps_keep(s, NULL, n);
    s->n_past += n;
    if (reader) return reader->read(s, 1);
    return s->reads_late && *s->reads_late ? 0 : read_pending(s, 0);
}

/* ---- drafts -------------------------------------------------------------------------------------- */

/* What the drafter has not read of the sequence, and the root. */
static int draft_root(specrt_llama *s, int32_t root) {
    forget_unread(s);
    if (read_pending(s, s->n_batch - 1)) return 1;
    put_pending(s, s->n_past - s->n_read);
    specrt_llama_add(&s->to_draft, root, s->n_past, 0, true);
    return specrt_llama_run_draft(s, 1);
}

int32_t specrt_llama_sequence(const specrt_llama *s, int32_t level, int32_t row) {
    return level == 0 || s->tree.topk == 1 ? 0 : 1 + (level % 2) * s->tree.topk + row;
}

static int draft_level(specrt_llama *s, int32_t level, const specrt_beam *beam) {
    llama_memory_t memory = llama_get_memory(s->draft);
    if (beam->n > s->tree.topk || level >= s->tree.num_steps)
        return specrt_llama_fail(
            s, "draft: level %d of %d rows; expected below %d, at most %d rows", (int)level,
            (int)beam->n, (int)s->tree.num_steps, (int)s->tree.topk);
    for (int32_t i = 0; i < beam->n; i++) {
        int32_t from = specrt_llama_sequence(s, level - 1, beam->parents[i]),
                to = specrt_llama_sequence(s, level, i);
        if (from != to) {
            llama_memory_seq_rm(memory, to, -1, -1);
            llama_memory_seq_cp(memory, from, to, -1, -1);
        }
    }
    if (s->reader) return s->reader->level(s, level, beam);
    s->to_draft.n_tokens = 0;
    for (int32_t i = 0; i < beam->n; i++)
        specrt_llama_add(&s->to_draft, beam->tokens[i], s->n_past + level,
                         specrt_llama_sequence(s, level, i), true);
    return specrt_llama_run_draft(s, beam->n);
}

static int draft_step(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                      const float **draft_input) {
    specrt_llama *s = (specrt_llama *)user;
    *hidden = s->hidden;
    if (!s->draft) return specrt_llama_fail(s, "draft: expected a drafter, found none");
    if (s->reader)
        *draft_input = s->reader->draft_input(s); /* a model of its own is fed tokens alone */
    if (s->reader && level == 0) return s->reader->root(s, beam->tokens[0]);
    return level == 0 ? draft_root(s, beam->tokens[0]) : draft_level(s, level, beam);
}

static int draft_block(void *user, int32_t root, int32_t n, specrt_block *block) {
    specrt_llama *s = (specrt_llama *)user;
    if (s->n_past == 0) return specrt_llama_fail(s, "draft: expected a prompt before it");
    return s->reader->block(s, root, n, block);
}

/* ---- verification -------------------------------------------------------------------------------- */

static void find_leaves(specrt_llama *s, const specrt_draft *draft) {
    bool inner[SPECRT_TREE_MAX_NODES] = {false};
    for (int32_t i = 1; i < draft->n; i++) inner[draft->parents[i]] = true;
    s->n_leaves = 0;
    for (int32_t i = 0; i < draft->n; i++)
        if (!inner[i]) s->leaves[s->n_leaves++] = i;
}

static bool on_path(const specrt_llama *s, const specrt_draft *draft, int32_t leaf, int32_t node) {
    return draft->masks[s->leaves[leaf]] >> node & 1;
}

/* A sequence for every leaf, which shares the cells of what came before; a node is in those of the
 * leaves below it, so that it sees its ancestors and no other node. */
static void branch(specrt_llama *s, const specrt_draft *draft) {
    llama_memory_t memory = llama_get_memory(s->target);
    for (int32_t leaf = 0; leaf < s->n_leaves; leaf++)
        llama_memory_seq_cp(memory, 0, 1 + leaf, -1, -1);
    for (int32_t i = 0; i < draft->n; i++) {
        int32_t n = 0;
        for (int32_t leaf = 0; leaf < s->n_leaves; leaf++)
            if (on_path(s, draft, leaf, i)) s->to_target.seq_id[i][n++] = 1 + leaf;
        s->to_target.n_seq_id[i] = n;
    }
}

static int target_verify(void *user, const specrt_draft *draft, const float **logits) {
    specrt_llama *s = (specrt_llama *)user;
    find_leaves(s, draft);
    if (draft->n > s->tree.num_draft_tokens || (s->n_leaves > 1 && s->tree.topk == 1))
        return specrt_llama_fail(
            s, "draft: %d nodes with %d leaves; expected at most %d of a tree of topk %d",
            (int)draft->n, (int)s->n_leaves, (int)s->tree.num_draft_tokens, (int)s->tree.topk);
    if (specrt_llama_settle(s)) return 1;
    if (s->replays && draft->n > 1 && specrt_llama_remember(s)) return 1;
    s->to_target.n_tokens = 0;
    for (int32_t i = 0; i < draft->n; i++)
        specrt_llama_add(&s->to_target, draft->tokens[i], s->n_past + draft->depths[i], 0, true);
    if (s->n_leaves > 1) branch(s, draft);
    return run_target(s, logits);
}

/* The target keeps the path: of a chain a beginning, of a tree what one leaf's sequence shares. */
static int keep_path(specrt_llama *s, const specrt_draft *draft, const specrt_verdict *verdict) {
    llama_memory_t memory = llama_get_memory(s->target);
    int32_t last = verdict->nodes[verdict->n - 1], keep = 0, end = s->n_past + verdict->n;
    if (s->replays) {
        s->n_owed = verdict->n < draft->n ? verdict->n : 0;
        return 0;
    }
    if (s->n_leaves == 1)
        return llama_memory_seq_rm(memory, 0, end, -1)
                   ? 0
                   : specrt_llama_fail(
                         s, "target: its cache does not give back what was drafted in vain");
    while (!on_path(s, draft, keep, last)) keep++;
    llama_memory_seq_cp(memory, 1 + keep, 0, s->n_past, end);
    for (int32_t leaf = 0; leaf < s->n_leaves; leaf++)
        llama_memory_seq_rm(memory, 1 + leaf, -1, -1);
    return 0;
}

/* Of a chain the drafter keeps what it has read, of a tree the root: other nodes' cells are of sequences
 * that end here. A reader keeps the root's pair alone. */
static void keep_drafted(specrt_llama *s, const specrt_draft *draft,
                         const specrt_verdict *verdict) {
    int32_t n = 0, most = s->tree.topk == 1 ? verdict->n : 1;
    while (n < most && draft->beam_rows && draft->beam_rows[verdict->nodes[n]] >= 0) n++;
    if (s->reader && n > 0) s->reader->advance(s);
    if (!s->reader && n > 0) s->n_read = s->n_past + n;
    for (int32_t seq = 1; s->draft && !s->block && s->tree.topk > 1 && seq <= 2 * s->tree.topk;
         seq++)
        llama_memory_seq_rm(llama_get_memory(s->draft), seq, -1, -1);
}

static int commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    specrt_llama *s = (specrt_llama *)user;
    if (keep_path(s, draft, verdict)) return 1;
    keep_drafted(s, draft, verdict);
    const specrt_llama_reader *reader = reader_of(s);
    if (reader) specrt_llama_taps_keep(s, verdict->nodes, verdict->n);
    for (int32_t i = 0; i < verdict->n; i++)
        s->tokens[s->n_past + i] = draft->tokens[verdict->nodes[i]];
    s->n_past += verdict->n;
    /* Where nobody drafts, states must not heap up. */
    return reader ? reader->read(s, s->n_batch - SPECRT_TREE_MAX_NODES + 1) : 0;
}

/* ---- the check at the start ----------------------------------------------------------------------- */

/* A pass of the drafter over a few tokens. */
static int sample_tokens(specrt_llama *s) {
    static const char text[] = "The quick brown fox jumps over the lazy dog, and";
    int32_t tokens[32];
    const struct llama_vocab *vocab = llama_model_get_vocab(llama_get_model(s->draft));
    int32_t n = llama_tokenize(vocab, text, sizeof text - 1, tokens, 32, true, false);
    if (n <= 0) n = 1, tokens[0] = 0; /* a vocabulary without letters: any token will do */
    s->to_draft.n_tokens = 0;
    for (int32_t i = 0; i < n; i++) specrt_llama_add(&s->to_draft, tokens[i], i, 0, i == n - 1);
    return specrt_llama_run_draft(s, 1);
}

/* A state and logits of the drafter: one pass with its head, one without. */
static int sample_pass(specrt_llama *s, float *logits) {
    for (int pass = 0; pass < 2; pass++) {
        s->uses_head = pass == 0;
        if (s->reader ? s->reader->sample(s) : sample_tokens(s)) return 1;
        const float *found = pass == 0 ? specrt_llama_draft_logits(s) : NULL;
        if (pass == 0 && !found) return specrt_llama_fail(s, "drafter: llama.cpp gave no logits");
        if (found) memcpy(logits, found, (size_t)s->n_vocab * sizeof *logits);
        if (found && s->reader && s->reader->unbias) s->reader->unbias(s, logits);
        llama_memory_clear(llama_get_memory(s->draft), false);
    }
    return 0;
}

static specrt_status self_check(specrt_llama *s, specrt_error *err) {
    float *logits = (float *)malloc((size_t)s->n_vocab * sizeof *logits);
    specrt_error why;
    specrt_status status = SPECRT_STATUS_OK;
    if (!logits)
        status = specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for %d logits",
                                  (int)s->n_vocab);
    else if (sample_pass(s, logits))
        status = specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED, "%s", s->fault);
    else if (specrt_head_check_states(&s->head->desc, s->hidden, 1, logits, s->n_vocab,
                                      &s->relative_rms, &why) != SPECRT_STATUS_OK)
        status = specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                  "drafter: %s; its graph ends otherwise", why.msg);
    free(logits);
    return status;
}

/* ---- the pair ------------------------------------------------------------------------------------- */

static specrt_status take_params(specrt_llama *s, const struct llama_model *target,
                                 const specrt_llama_params *p, specrt_error *err) {
    specrt_tree *tree;
    int32_t trained = llama_model_n_ctx_train(target);
    TRY(specrt_tree_create(&p->tree, NULL, &tree, err));
    s->tree = *specrt_tree_get_params(tree);
    specrt_tree_close(tree);
    s->n_context = p->n_context ? p->n_context : trained < 4096 ? trained : 4096;
    s->n_batch = p->n_batch ? p->n_batch : 128;
    if (s->n_batch < SPECRT_TREE_MAX_NODES)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "n_batch: expected %d or more, found %d", SPECRT_TREE_MAX_NODES,
                                (int)s->n_batch);
    if (s->n_context >= 2) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "n_context: expected 2 or more, found %d",
                            (int)s->n_context);
}

/* Cells for the sequence and, beside it, one cycle's nodes. */
static struct llama_context *make_context(const specrt_llama *s, struct llama_model *model,
                                          int32_t n_nodes, int32_t n_sequences, int32_t n_threads,
                                          ggml_backend_sched_eval_callback at) {
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = (uint32_t)(s->n_context + n_nodes);
    p.n_batch = p.n_ubatch = (uint32_t)s->n_batch;
    p.n_seq_max = (uint32_t)n_sequences;
    p.kv_unified = true;
    p.no_perf = true;
    if (n_threads > 0) p.n_threads = p.n_threads_batch = n_threads;
    p.cb_eval = at;
    p.cb_eval_user_data = (void *)(size_t)s;
#ifdef SPECRT_LLAMA_STATES
    if (s->reader) p.ctx_other = s->target; /* whose embedding it may share; NULL for the target */
    if (s->target && s->is_mtp) p.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
    if (!s->target && llama_model_is_hybrid(model))
        p.n_rs_seq = (uint32_t)s->tree.num_draft_tokens - 1;
#endif
    return llama_init_from_model(model, p);
}

static specrt_status make_contexts(specrt_llama *s, struct llama_model *target,
                                   struct llama_model *draft, const specrt_llama_params *p,
                                   specrt_error *err) {
    bool chain = s->tree.topk == 1;
    int32_t drafted = s->tree.num_steps * s->tree.topk + SPECRT_TREE_MAX_NODES;
    int32_t n_drafts = chain || s->block ? 1 : 1 + 2 * s->tree.topk;
    s->target =
        make_context(s, target, SPECRT_TREE_MAX_NODES, chain ? 1 : 1 + s->tree.num_draft_tokens,
                     p->n_threads, p->keeps_states || s->reader ? at_target_node : NULL);
    if (draft)
        s->draft = make_context(s, draft, drafted, n_drafts, p->n_threads,
                                s->reader && s->reader->at_node ? s->reader->at_node : at_node);
    if (!s->target || !llama_get_memory(s->target) ||
        (draft && (!s->draft || !llama_get_memory(s->draft))))
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "%s: llama.cpp made no context of %d positions",
                                s->target ? "drafter" : "target", (int)s->n_context);
    s->to_target = llama_batch_init(s->n_batch, 0, SPECRT_TREE_MAX_NODES);
    s->to_draft = llama_batch_init(s->n_batch, 0, 1);
    s->d = llama_model_n_embd(draft ? draft : target);
    s->d_target = llama_model_n_embd(target);
    s->hidden = (float *)malloc((size_t)s->n_batch * (size_t)s->d * sizeof *s->hidden);
    if (p->keeps_states)
        s->states = (float *)malloc((size_t)s->n_batch * (size_t)s->d_target * sizeof *s->states);
    s->tokens = (int32_t *)malloc((size_t)(s->n_context + SPECRT_TREE_MAX_NODES) * sizeof(int32_t));
    if (s->hidden && s->tokens && s->to_target.token && s->to_draft.token &&
        (s->states || !p->keeps_states) &&
        (!s->reader || (specrt_llama_taps_start(s) && s->reader->start(s))))
        return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for %d positions",
                            (int)s->n_context);
}

static specrt_status open_pair(specrt_llama *s, struct llama_model *target,
                               struct llama_model *draft, const specrt_llama_params *p,
                               specrt_error *err) {
    TRY(specrt_llama_check_pair(s, target, draft, err));
    TRY(take_params(s, target, p, err));
    TRY(specrt_llama_check_branches(s, target, err));
    TRY(make_contexts(s, target, draft, p, err));
    if (draft) TRY(specrt_llama_check_rollback(s, target, err));
    if (draft) TRY(self_check(s, err));
    specrt_llama_reset(s);
    return SPECRT_STATUS_OK;
}

specrt_status specrt_llama_create(struct llama_model *target, struct llama_model *draft,
                                  specrt_llama_head *head, const specrt_llama_params *params,
                                  specrt_llama **out, specrt_error *err) {
    const specrt_llama_params defaults = {.n_context = 0};
    specrt_llama *s = *out = (specrt_llama *)calloc(1, sizeof *s);
    if (!s) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for a pair");
    s->head = head;
    s->reads_late = params ? params->reads_late : NULL;
    s->is_plain = params ? params->is_plain : NULL;
    s->by_position = params ? params->by_position : NULL;
    specrt_status status = open_pair(s, target, draft, params ? params : &defaults, err);
    if (status == SPECRT_STATUS_OK && draft)
        status = specrt_llama_head_number(head, s->n_logits, err);
    if (status == SPECRT_STATUS_OK) return status;
    specrt_llama_free(s);
    *out = NULL;
    return status;
}

void specrt_llama_free(specrt_llama *s) {
    if (!s) return;
    if (s->reader) s->reader->close(s);
    specrt_llama_taps_close(&s->taps);
    if (s->to_target.token) llama_batch_free(s->to_target);
    if (s->to_draft.token) llama_batch_free(s->to_draft);
    if (s->draft) llama_free(s->draft);
    if (s->target) llama_free(s->target);
    free(s->hidden);
    free(s->states);
    free(s->tokens);
    free(s->checkpoint);
    free(s);
}

void specrt_llama_describe(const specrt_llama *s, specrt_policy_desc *policy,
                           specrt_session_params *session) {
    policy->n_vocab = s->n_logits;
    policy->terminators = s->terminators;
    policy->n_terminators = s->n_terminators;
    session->n_logits = s->n_logits;
    session->tree = s->tree;
    session->n_block = specrt_llama_block_limit(s);
}

specrt_host specrt_llama_host(specrt_llama *s) {
    return (specrt_host){.user = s,
                         .n_context = s->n_context,
                         .max_batch = s->n_batch,
                         .target_prefill = target_prefill,
                         .draft_step = s->block ? NULL : draft_step,
                         .draft_block = s->block ? draft_block : NULL,
                         .target_verify = target_verify,
                         .commit = commit,
                         .target_hidden = s->states ? target_hidden : NULL};
}

void specrt_llama_reset(specrt_llama *s) {
    llama_memory_clear(llama_get_memory(s->target), false);
    if (s->draft) llama_memory_clear(llama_get_memory(s->draft), false);
    s->n_past = s->n_read = s->n_owed = 0;
    s->times = (specrt_llama_times){.n_draft_passes = 0};
    s->fault[0] = '\0';
}

/* ---- sequences kept -------------------------------------------------------------------------------- */

static specrt_status copy_cache(struct llama_context *from, const char *role, void **out, size_t *n,
                                specrt_error *err) {
    *n = llama_state_seq_get_size(from, 0);
    *out = malloc(*n > 0 ? *n : 1);
    if (!*out)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for %zu bytes of a cache",
                                *n);
    if (*n > 0 && llama_state_seq_get_data(from, (uint8_t *)*out, *n, 0) == *n)
        return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED, "%s: llama.cpp does not copy its cache",
                            role);
}

/* States that the drafter has not read yet. */
static specrt_status copy_waiting(const specrt_llama *s, specrt_llama_state *out,
                                  specrt_error *err) {
    const float *from = s->taps.waiting;
    size_t n = (size_t)(s->n_past - s->n_read) * (size_t)s->taps.width;
    out->waiting = (float *)malloc((n > 0 ? n : 1) * sizeof *from);
    if (!out->waiting)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for %zu states", n);
    memcpy(out->waiting, from, n * sizeof *from);
    return SPECRT_STATUS_OK;
}

/* The drafter, if there is one, has no cache but the target's. */
static bool shares_cache(const specrt_llama *s) {
    return !s->draft || s->head->projection.rows != NULL;
}

static specrt_status copy_sequence(const specrt_llama *s, specrt_llama_state *out,
                                   specrt_error *err) {
    size_t n = (size_t)s->n_past;
    TRY(copy_cache(s->target, "target", &out->target, &out->n_target, err));
    if (!shares_cache(s)) TRY(copy_cache(s->draft, "drafter", &out->draft, &out->n_draft, err));
    out->n_past = s->n_past;
    out->n_read = s->n_read;
    out->tokens = (int32_t *)malloc((n > 0 ? n : 1) * sizeof *out->tokens);
    if (!out->tokens)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for %zu tokens", n);
    memcpy(out->tokens, s->tokens, n * sizeof *out->tokens);
    return s->reader ? copy_waiting(s, out, err) : SPECRT_STATUS_OK;
}

specrt_status specrt_llama_keep(specrt_llama *s, specrt_llama_state *out, specrt_error *err) {
    specrt_llama_state_free(out);
    if (specrt_llama_settle(s))
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED, "%s", s->fault);
    /* Behind what it has read the drafter may hold a draft. */
    forget_unread(s);
    specrt_status status = copy_sequence(s, out, err);
    if (status != SPECRT_STATUS_OK) specrt_llama_state_free(out);
    return status;
}

static bool restore_cache(struct llama_context *to, const void *from, size_t n) {
    llama_memory_clear(llama_get_memory(to), false);
    return n > 0 && llama_state_seq_set_data(to, (const uint8_t *)from, n, 0) == n;
}

specrt_status specrt_llama_resume(specrt_llama *s, const specrt_llama_state *state,
                                  specrt_error *err) {
    specrt_llama_reset(s);
    if (!state->tokens || state->n_past > s->n_context || !s->reader != !state->waiting ||
        !restore_cache(s->target, state->target, state->n_target) ||
        (!shares_cache(s) && !restore_cache(s->draft, state->draft, state->n_draft))) {
        specrt_llama_reset(s);
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "state: expected what this pair kept, within %d positions, found "
                                "%d tokens of another",
                                (int)s->n_context, (int)state->n_past);
    }
    memcpy(s->tokens, state->tokens, (size_t)state->n_past * sizeof *s->tokens);
    s->n_past = state->n_past;
    s->n_read = state->n_read;
    if (s->reader)
        memcpy(s->taps.waiting, state->waiting,
               (size_t)(s->n_past - s->n_read) * (size_t)s->taps.width * sizeof(float));
    return SPECRT_STATUS_OK;
}

void specrt_llama_state_free(specrt_llama_state *state) {
    free(state->target);
    free(state->draft);
    free(state->tokens);
    free(state->waiting);
    memset(state, 0, sizeof *state);
}

const char *specrt_llama_fault(const specrt_llama *s) {
    return s->fault;
}

double specrt_llama_relative_rms(const specrt_llama *s) {
    return s->relative_rms;
}

specrt_llama_times specrt_llama_get_times(const specrt_llama *s) {
    return s->times;
}

bool specrt_llama_keeps_chains(const specrt_llama *s) {
    return !s->reader;
}

void specrt_llama_use_head(specrt_llama *s, bool use) {
    s->uses_head = use;
}

const float *specrt_llama_draft_logits(const specrt_llama *s) {
    const float *logits = llama_get_logits(s->draft);
    return logits ? logits + specrt_llama_block_first(s) * s->n_vocab : NULL;
}
