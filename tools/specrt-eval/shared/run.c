/* run.c : one turn decoded, and its tokens as text. */
#include <stdlib.h>
#include <string.h>
#include "eval.h"
#include "base/error.h"
#include "base/measure.h"
#include "base/memory.h"
#include "base/utf8.h"

specrt_status ids_append(id_list *ids, const int32_t *tokens, int32_t n) {
    if (!sl_reserve(&ids->ids, &ids->capacity, ids->n + (size_t)n, sizeof *ids->ids))
        return SPECRT_STATUS_NO_MEMORY;
    memcpy(ids->ids + ids->n, tokens, (size_t)n * sizeof *tokens);
    ids->n += (size_t)n;
    return SPECRT_STATUS_OK;
}

void run_add_stats(specrt_session_stats *to, const specrt_session_stats *s, int times) {
    to->n_cycles += times * s->n_cycles;
    to->n_emitted += times * s->n_emitted;
    to->n_covered += times * s->n_covered;
    to->n_drafted += times * s->n_drafted;
    to->n_rows += times * s->n_rows;
    to->n_passes += times * s->n_passes;
    to->n_bytes += times * s->n_bytes;
    to->n_copied += times * s->n_copied;
    to->n_events += times * s->n_events;
    to->n_lost += times * s->n_lost;
    for (int i = 0; i <= SPECRT_TREE_MAX_NODES; i++)
        to->n_by_length[i] += times * s->n_by_length[i];
}

void run_add_times(decoder_times *to, const decoder_times *t) {
    to->prefill += t->prefill;
    to->draft += t->draft;
    to->head += t->head;
    to->target += t->target;
    to->verify += t->verify;
    to->update += t->update;
    to->align += t->align;
}

/* A prompt that cannot be answered is the file's fault, not the command line's. */
static specrt_status begin_prompt(decoder *d, const specrt_request *request, const id_list *input,
                                  specrt_error *err) {
    specrt_request whole = *request;
    whole.max_tokens = 0;
    if (input->n > INT32_MAX)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "prompt: expected fewer tokens, found %zu", input->n);
    specrt_status status = decoder_begin(d, &whole, input->ids, (int32_t)input->n, err);
    if (status != SPECRT_STATUS_BAD_ARG) return status;
    if (err) err->status = SPECRT_STATUS_BAD_INPUT;
    return SPECRT_STATUS_BAD_INPUT;
}

static specrt_status take_answer(const eval_models *m, decoder *d, int64_t max_tokens,
                                 void (*each)(void *user, const int32_t *tokens, int32_t n),
                                 void *user, id_list *out, specrt_error *err) {
    for (bool ended = false; !ended;) {
        const specrt_verdict *v;
        int64_t left = max_tokens - (int64_t)out->n;
        TRY(decoder_next(d, &v, err));
        int32_t n = 0;
        while (n < v->n && n < left && !ended) ended = models_ends(m, v->tokens[n++]);
        if (ids_append(out, v->tokens, n) != SPECRT_STATUS_OK)
            return sl_error_no_memory_for(err, "an answer");
        if (each) each(user, v->tokens, n);
        ended = ended || v->end != SPECRT_END_NONE || n == left;
    }
    return SPECRT_STATUS_OK;
}

specrt_status run_prompt(const eval_models *m, decoder *d, const specrt_request *request,
                         const id_list *input,
                         void (*each)(void *user, const int32_t *tokens, int32_t n), void *user,
                         run_result *out, specrt_error *err) {
    const specrt_session *session = decoder_session(d);
    specrt_session_stats before = {0};
    out->tokens.n = 0;
    out->stats = before;
    TRY(begin_prompt(d, request, input, err));
    if (session) specrt_session_get_stats(session, &before);
    double began = sl_measure_seconds();
    TRY(take_answer(m, d, request->max_tokens, each, user, &out->tokens, err));
    out->times = *decoder_get_times(d);
    out->seconds = sl_measure_seconds() - began - out->times.watch;
    if (session) specrt_session_get_stats(session, &out->stats);
    run_add_stats(&out->stats, &before, -1); /* they go on where a session keeps what it learnt */
    return SPECRT_STATUS_OK;
}

/* ---- text ---- */

/* The bytes at the end of `text` that may begin a character: at most three. */
static size_t unfinished(const char *text, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char lead = (unsigned char)text[n - back];
        if (lead < 0x80) return 0;
        if (lead < 0xC0) continue; /* a later byte of a character */
        size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
        return length > back ? back : 0;
    }
    return 0;
}

static void write_repaired(text_stream *s, const char *text, size_t n) {
    uint64_t n_replaced = 0;
    char out[3 * 256];
    for (size_t done = 0, k; done < n; done += k) {
        k = n - done < 256 ? n - done : 256;
        if (done + k < n) k -= unfinished(text + done, k);
        fwrite(out, 1, sl_utf8_repair(text + done, k, out, &n_replaced), s->f);
    }
}

void text_stream_put(text_stream *s, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        size_t n_bytes;
        const uint8_t *bytes = sl_tokenizer_bytes(s->tok, tokens[i], &n_bytes);
        if (!bytes || sl_tokenizer_type(s->tok, tokens[i]) != TOKEN_NORMAL) continue;
        char *text = (char *)malloc(s->n_held + n_bytes);
        if (!text) return;
        memcpy(text, s->held, s->n_held);
        memcpy(text + s->n_held, bytes, n_bytes);
        n_bytes += s->n_held;
        s->n_held = unfinished(text, n_bytes);
        memcpy(s->held, text + n_bytes - s->n_held, s->n_held);
        write_repaired(s, text, n_bytes - s->n_held);
        free(text);
    }
}

void text_stream_end(text_stream *s) {
    write_repaired(s, s->held, s->n_held);
    s->n_held = 0;
}

char *text_of(const tokenizer *tok, const id_list *tokens) {
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f) return NULL;
    text_stream s = {.tok = tok, .f = f};
    text_stream_put(&s, tokens->ids, (int32_t)tokens->n);
    text_stream_end(&s);
    return fclose(f) == 0 ? text : (free(text), NULL);
}
