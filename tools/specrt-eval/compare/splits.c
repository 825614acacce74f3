/* splits.c : tokens that are not plain decoding's. Our engine gives each token the same logits in any pass,
 * so such a token is a fault there. Other engines round a pass of five tokens differently from five passes of
 * one, and two nearly equal logits may change places. There the token must be the target's own: drawn again
 * when the target alone is fed the same tokens in the same passes. The report says how far apart plain
 * decoding had the two logits. */
#include "compare.h"
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

/* The target alone, over the text of a turn. */
typedef struct retry {
    sequence *text;
    specrt_verifier *draws; /* as in that turn */
    const id_list *ids;
    int32_t n_logits;
    const float *logits; /* of the last token of the prompt, or of the nodes of the last pass */
} retry;

/* all : the prompt's logits are computed at every position, which rounds its last ones otherwise */
static bool read_prompt(retry *r, bool plain, bool all) {
    const specrt_host *host = &r->text->host;
    const int32_t n = (int32_t)r->ids->n, most = host->max_batch ? host->max_batch : n;
    sequence_reset(r->text);
    r->text->is_plain = plain;
    r->text->reads_late = true;
    for (int32_t done = 0, k; done < n; done += k) {
        k = n - done < most ? n - done : most;
        if (host->target_prefill(host->user, r->ids->ids + done, k, all, &r->logits)) return false;
        if (all) r->logits += (size_t)(k - 1) * (size_t)r->n_logits;
    }
    return true;
}

static bool verify(retry *r, const decoder_cycle *c, specrt_draft *draft) {
    *draft = decoder_cycle_draft(c);
    return r->text->host.target_verify(r->text->host.user, draft, &r->logits) == 0;
}

static bool keep(const retry *r, const specrt_draft *draft, const specrt_verdict *verdict) {
    return r->text->host.commit(r->text->host.user, draft, verdict) == 0;
}

/* Logits of plain decoding after the first n tokens of its answer; NULL: the target failed. */
static const float *plain_logits(retry *r, const id_list *answer, size_t n) {
    if (!read_prompt(r, true, false)) return NULL;
    for (size_t i = 0; i < n; i++) {
        const decoder_cycle root = {1, {answer->ids[i]}, {-1}, {0}, {1}};
        const specrt_verdict one = {.n = 1};
        specrt_draft draft;
        if (!verify(r, &root, &draft) || !keep(r, &draft, &one)) return NULL;
    }
    return r->logits;
}

/* The child of a node that holds the token, or -1. */
static int32_t child_with(const specrt_draft *draft, int32_t node, int32_t token) {
    for (int32_t i = node + 1; i < draft->n; i++)
        if (draft->parents[i] == node && draft->tokens[i] == token) return i;
    return -1;
}

/* The draws down a tree, the first at a position. Nothing of sessions. */
static void descend(const retry *r, const specrt_draft *draft, size_t position,
                    specrt_verdict *out) {
    out->n = 0;
    for (int32_t node = 0; node >= 0;) {
        const float *logits = r->logits + (size_t)node * (size_t)r->n_logits;
        out->nodes[out->n] = node;
        out->tokens[out->n] =
            specrt_verifier_draw(r->draws, logits, (int64_t)(position + (size_t)out->n));
        node = child_with(draft, node, out->tokens[out->n++]);
    }
}

/* Whether the target draws the token at a place again, fed the cycles of an answer. */
static bool repeats(retry *r, const compare_way *k, size_t place) {
    const id_list *answer = &k->result.tokens;
    const decoder_cycle *cycles;
    const int32_t n_cycles = decoder_cycles(k->decoder, &cycles);
    const bool all = k->policy && specrt_policy_get_info(k->policy)->needs_prompt_logits;
    size_t n = 1, begin = r->ids->n;
    if (!read_prompt(r, false, all)) return false;
    if (specrt_verifier_draw(r->draws, r->logits, (int64_t)begin) != answer->ids[0]) return false;
    for (int32_t i = 0; i < n_cycles && n <= place; i++) {
        specrt_draft draft;
        specrt_verdict v;
        if (!verify(r, &cycles[i], &draft)) return false;
        descend(r, &draft, begin + n, &v);
        for (int32_t j = 0; j < v.n && n <= place; j++)
            if (v.tokens[j] != answer->ids[n++]) return false;
        if (!keep(r, &draft, &v)) return false;
    }
    return n > place;
}

static specrt_status look_into(comparison *c, const compare_way *k, const id_list *ids, split *out,
                               specrt_error *err) {
    const specrt_sampling sampling = eval_sampling(&c->options, c->prompt, c->turn);
    const id_list *expected = &c->ways[PLAIN].result.tokens, *found = &k->result.tokens;
    const size_t place = (size_t)out->token;
    retry r = {.text = k->sequence ? k->sequence : c->models.sequences[0],
               .ids = ids,
               .n_logits = c->models.info->n_logits};
    if (place >= expected->n || place >= found->n) return SPECRT_STATUS_OK;
    TRY(specrt_verifier_create(r.n_logits, sl_tokenizer_n_vocab(c->models.tok), &sampling, NULL,
                               &r.draws, err));
    const float *logits = plain_logits(&r, expected, place);
    specrt_status status = SPECRT_STATUS_OK;
    if (logits) {
        out->margin = (double)(logits[expected->ids[place]] - logits[found->ids[place]]);
        out->repeated = repeats(&r, k, place);
    } else {
        status = specrt_error_set(err, SPECRT_STATUS_HOST, "%s", sequence_fault(r.text));
    }
    specrt_verifier_close(r.draws);
    return status;
}

static specrt_status add_split(comparison *c, compare_way *k, const id_list *ids, size_t place,
                               bool *explained, specrt_error *err) {
    split *s = (split *)sl_more(&c->splits, (size_t)c->n_splits, sizeof *s);
    if (!s) return sl_error_no_memory_for(err, "the comparison");
    c->n_splits++;
    *s = (split){
        .way = (int)(k - c->ways), .prompt = c->prompt, .turn = c->turn, .token = (int)place};
    TRY(look_into(c, k, ids, s, err));
    *explained = s->repeated;
    return SPECRT_STATUS_OK;
}

bool compare_is_answered(const comparison *c) {
    return c->ways[PLAIN].result.tokens.n > 1 || c->options.max_tokens == 1;
}

specrt_status compare_check(comparison *c, compare_way *k, const id_list *ids, const char *domain,
                            specrt_error *err) {
    const id_list *expected = &c->ways[PLAIN].result.tokens, *found = &k->result.tokens;
    size_t n = expected->n < found->n ? expected->n : found->n, i = 0;
    bool explained = false;
    if (c->options.sampled_drafts) return SPECRT_STATUS_OK;
    while (i < n && expected->ids[i] == found->ids[i]) i++;
    c->n_compared += (int64_t)found->n;
    if (i == n && expected->n == found->n)
        return k->n_same += compare_is_answered(c), SPECRT_STATUS_OK;
    if (!c->models.info->is_exact) TRY(add_split(c, k, ids, i, &explained, err));
    if (explained || c->diverged) return SPECRT_STATUS_OK;
    c->diverged = true;
    snprintf(c->divergence, sizeof c->divergence,
             "%.120s: prompt %d (%.80s), token %zu: expected %d as plain decoding, found %d",
             k->name, c->prompt + 1, sl_text_name(domain), i + 1,
             i < expected->n ? (int)expected->ids[i] : -1, i < found->n ? (int)found->ids[i] : -1);
    return SPECRT_STATUS_OK;
}

const char *compare_outcome(const comparison *c) {
    if (c->diverged) return c->divergence;
    if (c->options.sampled_drafts) return "sampled drafts have its distribution, not its draws";
    return c->n_splits ? "all are the target's own; where they differ is told above" : "all equal";
}

void compare_print_splits(const comparison *c) {
    for (int i = FULL; i < c->n_ways && !c->models.info->is_exact; i++)
        printf("%s: same as plain in %d of %d turns\n", c->ways[i].name, c->ways[i].n_same,
               c->n_turns);
    for (int i = 0; i < c->n_splits; i++) {
        const split *s = &c->splits[i];
        printf("%s, prompt %d, token %d: plain decoding had the two %.3g apart; %s\n",
               c->ways[s->way].name, s->prompt + 1, s->token + 1, s->margin,
               s->repeated ? "fed the same passes, the target alone says it too"
                           : "the target does NOT repeat it");
    }
}

json_object *compare_splits_json(const comparison *c) {
    json_object *all = json_object_new_array();
    for (int i = 0; i < c->n_splits; i++) {
        const split *s = &c->splits[i];
        json_object *o = json_object_new_object();
        sl_json_put(o, "policy", sl_json_text(c->ways[s->way].name));
        sl_json_put(o, "prompt", sl_json_whole((uint64_t)s->prompt));
        sl_json_put(o, "turn", sl_json_whole((uint64_t)s->turn));
        sl_json_put(o, "token", sl_json_whole((uint64_t)s->token));
        sl_json_put(o, "plain_margin", sl_json_real(s->margin));
        sl_json_put(o, "target_repeats", json_object_new_boolean(s->repeated));
        json_object_array_add(all, o);
    }
    return all;
}
