/* check_block.c : what block drafters have beside a head: a block, layers of the target that they read, and
 * tables by token. */
#include "check.h"

#include <inttypes.h>
#include "base/json.h"

static const char *const TAKE = "take the drafter of this target";

/* Tensors with a row for each token of the target, and one with a row for each row of the head. */
static const struct table {
    const char *in_gguf, *in_st;
    bool of_head;
} tables[] = {
    {"token_embd.weight", "embed_tokens.weight", false},
    {"markov_w1.weight", "markov_head.markov_w1.weight", false},
    {"markov_w2.weight", "markov_head.markov_w2.weight", true},
    {"selector_predecessor.weight", "candidate_selector.predecessor_codebook", false},
    {"selector_successor.weight", "candidate_selector.successor_codebook", false},
};

/* The rows and columns of a tensor under the name of its format; false: none, or no matrix. */
static bool find_matrix(const model *m, const char *in_gguf, const char *in_st, int64_t shape[2]) {
    const gguf_tensor *g = m->g ? sl_gguf_find_tensor(m->g, in_gguf) : NULL;
    const st_tensor *s = m->s ? sl_st_find(m->s, in_st) : NULL;
    if (g) shape[0] = g->dims[1], shape[1] = g->dims[0];
    if (s) shape[0] = s->shape[0], shape[1] = s->shape[1];
    return g ? g->n_dims == 2 : s && s->n_dims == 2;
}

/* The rows that are scored, and what says so: the length of d2t, else the head's, else all tokens. */
static int64_t count_scored(const model *m, int64_t n_vocab, const char **said_by) {
    const gguf_tensor *g = m->g ? sl_gguf_find_tensor(m->g, "d2t") : NULL;
    const st_tensor *s = m->s ? sl_st_find(m->s, "d2t") : NULL;
    int64_t head[2];
    *said_by = "d2t";
    if (g || s) return g ? g->dims[0] : s->shape[0];
    *said_by = m->g ? "output.weight" : "lm_head.weight";
    if (find_matrix(m, "output.weight", "lm_head.weight", head)) return head[0];
    *said_by = "the target's vocabulary";
    return n_vocab;
}

static void check_tables(exam *e, const model *m, int64_t n_vocab) {
    const char *engines = m->g ? "llama.cpp specrt" : NULL, *said_by;
    int64_t n_scored = count_scored(m, n_vocab, &said_by), shape[2];
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        const char *name = m->g ? tables[i].in_gguf : tables[i].in_st;
        int64_t expected = tables[i].of_head ? n_scored : n_vocab;
        if (!find_matrix(m, tables[i].in_gguf, tables[i].in_st, shape)) continue;
        if (expected == 0 || shape[0] == expected) continue;
        if (tables[i].of_head)
            exam_find(e, "markov-rows", engines,
                      "cut the whole drafter, whose Markov head is cut with its LM head",
                      "tensor \"%s\" has %" PRId64 " rows, and %s has %" PRId64, name, shape[0],
                      said_by, expected);
        else
            exam_find(e, "vocab-size", engines,
                      "take the drafter of this target, its vocabulary padded as the target's",
                      "tensor \"%s\" has %" PRId64 " rows; expected one for each of the %" PRId64
                      " tokens",
                      name, shape[0], expected);
    }
}

/* llama.cpp has a size of its own for DFlash, and asks others for theirs. */
static void check_size(exam *e, const block_drafter *b) {
    if (b->size < 2 && (b->size != 0 || b->markov || b->selector))
        exam_find(e, "block-size", NULL, "write the size that the drafter was trained with",
                  "block_size: expected 2 positions or more, found %" PRId64, b->size);
    else if (b->other_size != b->size)
        exam_find(e, "block-size", NULL, "write the size that the drafter was trained with to both",
                  "config.json: block_size: %" PRId64 ", and %" PRId64
                  " in dflash_config; engines read one or the other",
                  b->other_size, b->size);
}

static void check_taps(exam *e, const model *m, const block_drafter *b) {
    int64_t n_layers = e->t.n_layers;
    if (m->g && b->n_taps == 0)
        exam_find(e, "target-layers", "llama.cpp", "convert the drafter again",
                  "dflash.target_layers: missing: llama.cpp does not load this file");
    else if (b->least_tap < 0 || (n_layers && b->greatest_tap >= n_layers))
        exam_find(e, "target-layers", NULL, TAKE,
                  "it reads the output of layer %" PRId64 " (from 0); the target has %" PRId64
                  " layers",
                  b->least_tap < 0 ? b->least_tap : b->greatest_tap, n_layers);
}

static void check_width(exam *e, const model *m, const block_drafter *b) {
    int64_t fc[2], n = e->t.width <= INT32_MAX ? b->n_taps * e->t.width : 0;
    if (find_matrix(m, "fc.weight", "fc.weight", fc) && n && fc[1] != n)
        exam_find(e, "width", NULL, TAKE,
                  "tensor \"fc.weight\" reads %" PRId64 " numbers; expected %" PRId64 ", %" PRId64
                  " states of the target's width %" PRId64,
                  fc[1], n, b->n_taps, e->t.width);
}

static json_object *say_block(const block_drafter *b) {
    json_object *o = json_object_new_object();
    sl_json_put(o, "size", json_object_new_int64(b->size));
    sl_json_put(o, "n_drafts", json_object_new_int64(b->n_drafts));
    sl_json_put(o, "n_target_layers", json_object_new_int64(b->n_taps));
    sl_json_put(o, "markov", json_object_new_boolean(b->markov));
    sl_json_put(o, "selector", json_object_new_boolean(b->selector));
    sl_json_put(o, "own_head", json_object_new_boolean(!b->headless));
    return o;
}

void exam_block(exam *e, const model *m, const block_drafter *b, int64_t n_vocab) {
    e->block = say_block(b);
    check_tables(e, m, n_vocab);
    check_size(e, b);
    check_taps(e, m, b);
    check_width(e, m, b);
}
