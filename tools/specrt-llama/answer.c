/* answer.c : answers as they come, or as one JSON object. */
#include "tool.h"

#include <stdlib.h>
#include "base/error.h"
#include "base/json.h"
#include "engine/infer/recorder.h"

/* Sums over prompts. */
typedef struct sums {
    int64_t n_tokens, n_cycles, n_emitted, n_rows;
    double seconds;
} sums;

/* A session over the pair, and the answer that it writes. */
typedef struct writer {
    const options *o;
    models *m;
    specrt_session *session;
    record_file trace;
    plain_decoder plain; /* where nothing drafts */
    sums total;
    FILE *text;       /* the answer's bytes */
    json_object *ids; /* NULL: not wanted */
    int64_t n;        /* tokens */
    int n_unanswered; /* answers whose first token ended them */
    int64_t began;    /* llama_time_us() at the first of them: the prompt is not timed */
} writer;

static void write_piece(const writer *w, int32_t token) {
    char piece[1024];
    if (llama_vocab_is_eog(w->m->vocab, token)) return;
    int32_t n = llama_token_to_piece(w->m->vocab, token, piece, sizeof piece, 0, false);
    if (n > 0) fwrite(piece, 1, (size_t)n, w->text);
}

static int each(void *user, const int32_t *tokens, int32_t n) {
    writer *w = (writer *)user;
    if (w->n == 0) {
        w->began = llama_time_us();
        w->n_unanswered += llama_vocab_is_eog(w->m->vocab, tokens[0]);
    }
    for (int32_t i = 0; i < n; i++, w->n++) {
        write_piece(w, tokens[i]);
        if (w->ids) json_object_array_add(w->ids, json_object_new_int(tokens[i]));
    }
    return fflush(w->text);
}

static specrt_status generate(writer *w, const input *in, specrt_error *err) {
    const specrt_request request = {.max_tokens = w->o->n_predict < 0 ? 0 : w->o->n_predict};
    specrt_generation g = {.each = each, .user = w};
    if (w->m->no_drafts[0])
        return plain_generate(&w->plain, w->o, w->m, &request, in->ids, in->n, &g, err);
    specrt_llama_reset(w->m->pair);
    specrt_host host = models_host(w->m, w->o, w->session);
    if (w->trace.recorder)
        return recorder_generate(w->trace.recorder, w->session, &request, in->ids, in->n,
                                 in->domain, each, w, err);
    return models_called(w->session,
                         specrt_generate(w->session, &host, &request, in->ids, in->n, &g), err);
}

static specrt_status answer(writer *w, const input *in, specrt_error *err) {
    specrt_session_stats stats = {.n_cycles = 0};
    w->n = 0;
    specrt_status status = generate(w, in, err);
    if (status != SPECRT_STATUS_OK) return models_error(w->m, status, err);
    if (w->m->no_drafts[0])
        stats.n_cycles = stats.n_emitted = w->n > 0 ? w->n - 1 : 0;
    else
        specrt_session_get_stats(w->session, &stats);
    w->total.seconds += 1e-6 * (double)(llama_time_us() - w->began);
    w->total.n_tokens += w->n;
    w->total.n_cycles += stats.n_cycles;
    w->total.n_emitted += stats.n_emitted;
    w->total.n_rows += stats.n_rows;
    return SPECRT_STATUS_OK;
}

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

/* The first token of an answer comes with the prompt, which is not timed. */
static double speed(const sums *total, int n_prompts) {
    return ratio((double)(total->n_tokens - n_prompts), total->seconds);
}

static specrt_status stream(writer *w, const inputs *in, specrt_error *err) {
    w->text = stdout;
    for (int i = 0; i < in->n; i++) {
        TRY(answer(w, &in->items[i], err));
        putchar('\n');
    }
    return SPECRT_STATUS_OK;
}

/* {"text": ..., "ids": [...]} */
static specrt_status put_answer(writer *w, const input *in, json_object *to, specrt_error *err) {
    char *text = NULL;
    size_t n = 0;
    json_object *o = json_object_new_object();
    json_object_array_add(to, o);
    sl_json_put(o, "ids", w->ids = json_object_new_array());
    w->text = open_memstream(&text, &n);
    specrt_status status = w->text ? answer(w, in, err) : sl_error_no_memory_for(err, "an answer");
    if (w->text) fclose(w->text);
    if (status == SPECRT_STATUS_OK) sl_json_put(o, "text", sl_json_text(text));
    free(text);
    return status;
}

static specrt_status put_answers(writer *w, const inputs *in, json_object *to, specrt_error *err) {
    for (int i = 0; i < in->n; i++) TRY(put_answer(w, &in->items[i], to, err));
    return SPECRT_STATUS_OK;
}

/* What auto did: {"drafting", "n_cycles", ..., "note"}; nothing for other policies. */
static void put_auto(const writer *w, json_object *to) {
    char line[SPECRT_COSTS_TEXT];
    specrt_auto_stats s = {.n_cycles = 0};
    bool is_auto = w->session && auto_explain(w->m, w->session, &s, line), off = w->m->no_drafts[0];
    if (!is_auto && !off) return;
    json_object *o = json_object_new_object();
    sl_json_put(to, "auto", o);
    sl_json_put(o, "drafting", json_object_new_boolean(s.n_plain < s.n_cycles));
    sl_json_put(o, "n_cycles", sl_json_whole((uint64_t)s.n_cycles));
    sl_json_put(o, "n_plain", sl_json_whole((uint64_t)s.n_plain));
    sl_json_put(o, "n_drafted", sl_json_whole((uint64_t)s.n_passes));
    sl_json_put(o, "n_accepted", sl_json_whole((uint64_t)(s.n_emitted - s.n_cycles)));
    sl_json_put(o, "estimated_speedup_plain",
                sl_json_real(s.cost > 0 ? (double)s.n_emitted / s.cost : 1));
    sl_json_put(o, "note", sl_json_text(off ? w->m->no_drafts : line));
}

/* Nothing is printed unless all of it is. */
static specrt_status print_json(writer *w, const inputs *in, const char *policy,
                                specrt_error *err) {
    json_object *o = json_object_new_object(), *answers = json_object_new_array();
    const sums *s = &w->total;
    sl_json_put(o, "policy", sl_json_text(policy));
    sl_json_put(o, "answers", answers);
    specrt_status status = put_answers(w, in, answers, err);
    sl_json_put(o, "n_tokens", sl_json_whole((uint64_t)s->n_tokens));
    sl_json_put(o, "n_cycles", sl_json_whole((uint64_t)s->n_cycles));
    sl_json_put(o, "accept_length", sl_json_real(ratio((double)s->n_emitted, (double)s->n_cycles)));
    sl_json_put(o, "shortlist_rows", sl_json_real(ratio((double)s->n_rows, (double)s->n_cycles)));
    put_auto(w, o);
    sl_json_put(o, "seconds", sl_json_real(s->seconds));
    sl_json_put(o, "tokens_per_second", sl_json_real(speed(s, in->n)));
    if (status == SPECRT_STATUS_OK) return sl_cli_print_json(sl_json_to_text(o), err);
    json_object_put(o);
    return status;
}

static void tell(const writer *w, int n_prompts, const char *policy) {
    char line[SPECRT_COSTS_TEXT];
    specrt_auto_stats stats;
    const sums *s = &w->total;
    if (!w->m->no_drafts[0] && auto_explain(w->m, w->session, &stats, line))
        sl_cli_info("%s", line);
    sl_cli_info("%s: %lld tokens in %lld cycles, accept length %.2f, %.0f rows, %.1f tokens/s",
                policy, (long long)s->n_tokens, (long long)s->n_cycles,
                ratio((double)s->n_emitted, (double)s->n_cycles),
                ratio((double)s->n_rows, (double)s->n_cycles), speed(s, n_prompts));
}

static void warn_unanswered(const writer *w, const inputs *in) {
    char why[UNANSWERED_MOST];
    inputs_unanswered(w->o, w->m, in, w->n_unanswered, why);
    sl_cli_warn("%s", why);
}

/* A trace is of drafts of one length. */
static const char *policy_text(const options *o) {
    if (o->policies.n) return o->policies.items[0];
    return o->record ? "microspec" : "auto";
}

specrt_status answer_all(const options *o, models *m, const inputs *in, specrt_error *err) {
    specrt_policy *policy = NULL;
    writer w = {.o = o, .m = m};
    specrt_status status = SPECRT_STATUS_OK;
    if (m->pair) status = models_session(m, o, policy_text(o), &policy, &w.session, err);
    if (status == SPECRT_STATUS_OK && m->no_drafts[0]) sl_cli_warn("%s", m->no_drafts);
    const char *name = m->no_drafts[0] || !policy ? "plain" : specrt_policy_get_info(policy)->text;
    if (status == SPECRT_STATUS_OK && o->record) status = record_open(o, m, policy, &w.trace, err);
    if (status == SPECRT_STATUS_OK)
        status = o->common.json ? print_json(&w, in, name, err) : stream(&w, in, err);
    if (status == SPECRT_STATUS_OK && o->record) status = recorder_commit(w.trace.recorder, err);
    if (status == SPECRT_STATUS_OK && w.n_unanswered > 0) warn_unanswered(&w, in);
    if (status == SPECRT_STATUS_OK && !o->common.json) tell(&w, in->n, name);
    plain_close(&w.plain);
    record_close(&w.trace);
    specrt_session_close(w.session);
    specrt_policy_close(policy);
    return status;
}
