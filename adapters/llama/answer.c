/* answer.c : answers as they come, or as one JSON object. */
#include "tool.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of tokens that have been written. */
typedef struct writer {
    const models *m;
    FILE *text; /* the answer's bytes */
    FILE *ids;  /* "1, 2"; NULL: not wanted */
    int64_t n;
    int64_t began; /* llama_time_us() at the first token: the prompt is not timed */
} writer;

static void write_piece(const writer *w, int32_t token) {
    char piece[1024];
    if (llama_vocab_is_eog(w->m->vocab, token)) return;
    int32_t n = llama_token_to_piece(w->m->vocab, token, piece, sizeof piece, 0, false);
    if (n > 0) fwrite(piece, 1, (size_t)n, w->text);
}

static int each(void *user, const int32_t *tokens, int32_t n) {
    writer *w = (writer *)user;
    if (w->n == 0) w->began = llama_time_us();
    for (int32_t i = 0; i < n; i++, w->n++) {
        write_piece(w, tokens[i]);
        if (w->ids) fprintf(w->ids, "%s%d", w->n ? ", " : "", (int)tokens[i]);
    }
    return fflush(w->text);
}

/* Sums over prompts. */
typedef struct sums {
    int64_t n_tokens, n_cycles, n_emitted, n_rows;
    double seconds;
} sums;

static specrt_status answer(const options *o, models *m, const prompt *p, specrt_session *session,
                            writer *w, sums *total, specrt_error *err) {
    specrt_host host = specrt_llama_host(m->pair);
    specrt_generation g = {
        .max_tokens = o->n_predict < 0 ? 0 : o->n_predict, .each = each, .user = w};
    specrt_session_stats stats;
    specrt_llama_reset(m->pair);
    specrt_status status = specrt_generate(session, &host, p->ids, p->n, &g, err);
    if (status != SPECRT_STATUS_OK) return models_error(m, status, err);
    specrt_session_get_stats(session, &stats);
    total->seconds += 1e-6 * (double)(llama_time_us() - w->began);
    total->n_tokens += g.n_tokens;
    total->n_cycles += stats.n_cycles;
    total->n_emitted += stats.n_emitted;
    total->n_rows += stats.n_rows;
    return SPECRT_STATUS_OK;
}

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

/* The first token of an answer comes with the prompt, which is not timed. */
static double speed(const sums *total, int n_prompts) {
    return ratio((double)(total->n_tokens - n_prompts), total->seconds);
}

static specrt_status stream(const options *o, models *m, const prompts *p, specrt_session *session,
                            sums *total, specrt_error *err) {
    for (int i = 0; i < p->n; i++) {
        writer w = {.m = m, .text = stdout};
        TRY(answer(o, m, &p->items[i], session, &w, total, err));
        putchar('\n');
    }
    return SPECRT_STATUS_OK;
}

/* {"text": ..., "ids": [...]} */
static specrt_status put_answer(const options *o, models *m, const prompt *p,
                                specrt_session *session, sums *total, FILE *f, specrt_error *err) {
    char *text = NULL, *ids = NULL;
    size_t n_text = 0, n_ids = 0;
    writer w = {.m = m, .text = open_memstream(&text, &n_text)};
    w.ids = open_memstream(&ids, &n_ids);
    specrt_status status =
        w.text && w.ids ? answer(o, m, p, session, &w, total, err)
                        : specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for an answer");
    if (w.text) fclose(w.text);
    if (w.ids) fclose(w.ids);
    if (status == SPECRT_STATUS_OK) {
        fputs("{\"text\": ", f);
        json_string(f, text, n_text);
        fprintf(f, ", \"ids\": [%s]}", ids);
    }
    free(text);
    free(ids);
    return status;
}

static specrt_status put_json(const options *o, models *m, const prompts *p,
                              specrt_session *session, const char *policy, FILE *f,
                              specrt_error *err) {
    sums total = {0};
    fputs("{\"policy\": ", f);
    json_string(f, policy, strlen(policy));
    fputs(", \"answers\": [", f);
    for (int i = 0; i < p->n; i++) {
        if (i) fputs(", ", f);
        TRY(put_answer(o, m, &p->items[i], session, &total, f, err));
    }
    fprintf(f, "], \"n_tokens\": %lld, \"n_cycles\": %lld, \"accept_length\": %.4f, ",
            (long long)total.n_tokens, (long long)total.n_cycles,
            ratio((double)total.n_emitted, (double)total.n_cycles));
    fprintf(f, "\"active_rows\": %.1f, \"seconds\": %.6f, \"tokens_per_second\": %.3f}\n",
            ratio((double)total.n_rows, (double)total.n_cycles), total.seconds,
            speed(&total, p->n));
    return SPECRT_STATUS_OK;
}

/* Nothing is printed unless all of it is. */
static specrt_status print_json(const options *o, models *m, const prompts *p,
                                specrt_session *session, const char *policy, specrt_error *err) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for answers");
    specrt_status status = put_json(o, m, p, session, policy, f, err);
    fclose(f);
    if (status == SPECRT_STATUS_OK) fwrite(text, 1, n, stdout);
    free(text);
    return status;
}

static void tell(const sums *total, int n_prompts, const char *policy) {
    fprintf(stderr,
            "specrt-llama: %s: %lld tokens in %lld cycles, accept length %.2f, %.0f rows, %.1f "
            "tokens/s\n",
            policy, (long long)total->n_tokens, (long long)total->n_cycles,
            ratio((double)total->n_emitted, (double)total->n_cycles),
            ratio((double)total->n_rows, (double)total->n_cycles), speed(total, n_prompts));
}

specrt_status answer_all(const options *o, models *m, const prompts *p, specrt_error *err) {
    specrt_policy *policy = NULL;
    specrt_session *session = NULL;
    sums total = {0};
    const char *text = o->n_policies ? o->policies[0] : NULL;
    specrt_status status = models_session(m, o, text, &policy, &session, err);
    if (status == SPECRT_STATUS_OK)
        status = o->json ? print_json(o, m, p, session, specrt_policy_text(policy), err)
                         : stream(o, m, p, session, &total, err);
    if (status == SPECRT_STATUS_OK && !o->json && !o->quiet)
        tell(&total, p->n, specrt_policy_text(policy));
    specrt_session_close(session);
    specrt_policy_close(policy);
    return status;
}
