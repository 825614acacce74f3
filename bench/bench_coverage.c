/* bench_coverage.c : share of next tokens that each policy holds while it reads recorded answers, and its
 * mean rows. The target's candidates are not known, so that this is what lists, window and graph do alone.
 *
 *     bench_coverage TOKENIZER BUNDLE POLICY,... NAME.jsonl...     each line {"prompt", "answer"}
 *
 * bench/coverage.py prepares bundle and files. */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "specrt.h"
#include "tokenizer/tokenizer.h"

enum { COLUMNS = 32, MAX_LINE = 1 << 22 };

/* A prompt with its answer, which begins at n_prompt. */
typedef struct text {
    id_list ids;
    size_t n_prompt;
} text;

typedef struct domain {
    char name[32];
    text *texts;
    size_t n;
} domain;

static void need(specrt_status status, const specrt_error *err) {
    if (status) fprintf(stderr, "bench_coverage: %s\n", err->msg), exit(1);
}

static void encode(tok_worker *w, json_object *record, const char *key, id_list *out) {
    json_object *value;
    specrt_error err = {SPECRT_STATUS_NO_MEMORY, "out of memory"};
    if (json_object_object_get_ex(record, key, &value))
        need(sl_tok_encode(w, json_object_get_string(value),
                           (size_t)json_object_get_string_len(value), out),
             &err);
}

static void read_domain(const char *path, tok_worker *w, domain *out) {
    const char *slash = strrchr(path, '/');
    char *line = (char *)malloc(MAX_LINE);
    FILE *file = fopen(path, "r");
    if (!file || !line) perror(path), exit(1);
    snprintf(out->name, sizeof out->name, "%s", slash ? slash + 1 : path);
    out->name[strcspn(out->name, ".")] = '\0';
    while (fgets(line, MAX_LINE, file)) {
        json_object *record = json_tokener_parse(line);
        out->texts = (text *)realloc(out->texts, (out->n + 1) * sizeof *out->texts);
        if (!record || !out->texts) fprintf(stderr, "%s: no record\n", path), exit(1);
        text *t = &out->texts[out->n++];
        *t = (text){0};
        encode(w, record, "prompt", &t->ids);
        t->n_prompt = t->ids.n;
        encode(w, record, "answer", &t->ids);
        json_object_put(record);
    }
    fclose(file);
    free(line);
}

/* One token drafted at a time, each refused but emitted: what is learnt is what was read. */
static void read_text(specrt_session *s, const text *t, specrt_session_stats *sum) {
    static const float path = 0;
    specrt_session_stats stats;
    size_t at = t->n_prompt ? t->n_prompt - 1 : 0;
    if (t->ids.n < 2) return;
    specrt_session_begin(s, SPECRT_BEGIN_NEW, 0);
    specrt_session_prefill(s, t->ids.ids, (int32_t)at, NULL);
    specrt_session_start(s, t->ids.ids[at]);
    for (; at + 1 < t->ids.n; at++) {
        specrt_beam beam = {1, &t->ids.ids[at], NULL, &path};
        specrt_verdict verdict = {.n = 1, .tokens = {t->ids.ids[at + 1]}};
        specrt_draft draft;
        specrt_session_route(s, 0, &beam, NULL, NULL);
        specrt_session_finish(s, &draft);
        specrt_session_observe(s, &draft, &verdict, NULL);
    }
    specrt_session_get_stats(s, &stats);
    sum->n_emitted += stats.n_emitted;
    sum->n_covered += stats.n_covered;
    sum->n_rows += stats.n_rows;
}

static void measure(const specrt_bundle *bundle, const specrt_head *head, const char *name,
                    const domain *domains, int n) {
    specrt_error err;
    specrt_policy *policy;
    specrt_session *session;
    specrt_policy_desc desc = {.text = name};
    specrt_session_params params = {.tree = {.num_steps = 1, .topk = 1, .num_draft_tokens = 2}};
    need(specrt_policy_create(bundle, head, &desc, &policy, &err), &err);
    need(specrt_session_create(policy, &params, NULL, &session, &err), &err);
    printf("| `%s` |", specrt_policy_get_info(policy)->text);
    for (int i = 0; i < n; i++) {
        specrt_session_stats sum = {0};
        for (size_t k = 0; k < domains[i].n; k++) read_text(session, &domains[i].texts[k], &sum);
        printf(" %.3f (%.0f) |", (double)sum.n_covered / (double)sum.n_emitted,
               (double)sum.n_rows / (double)sum.n_emitted);
    }
    printf("\n");
    fflush(stdout);
    specrt_session_close(session);
    specrt_policy_close(policy);
}

int main(int argc, char **argv) {
    enum { MAX_DOMAINS = 16 };
    specrt_error err;
    tokenizer *tok;
    tok_worker *worker;
    specrt_bundle *bundle;
    specrt_head *head;
    domain domains[MAX_DOMAINS] = {0};
    int n = argc - 4;
    if (n < 1 || n > MAX_DOMAINS) return puts("bench/coverage.py calls it with what it needs"), 0;
    need(sl_tokenizer_open(argv[1], &tok, &err), &err);
    need(sl_tok_worker_create(tok, &worker, &err), &err);
    for (int i = 0; i < n; i++) read_domain(argv[4 + i], worker, &domains[i]);
    need(specrt_bundle_open(argv[2], NULL, &bundle, &err), &err);
    specrt_head_desc rows = {
        .dtype = SPECRT_DTYPE_F16, .n_rows = sl_tokenizer_n_vocab(tok), .n_cols = COLUMNS};
    rows.rows = calloc((size_t)rows.n_rows, 2 * COLUMNS);
    need(specrt_head_bind(NULL, &rows, NULL, &head, &err), &err);
    printf("| active vocabulary |");
    for (int i = 0; i < n; i++) printf(" %s |", domains[i].name);
    printf("\n");
    for (char *name = strtok(argv[3], ","); name; name = strtok(NULL, ","))
        measure(bundle, head, name, domains, n);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < domains[i].n; k++) free(domains[i].texts[k].ids.ids);
    for (int i = 0; i < n; i++) free(domains[i].texts);
    specrt_head_close(head);
    free((void *)rows.rows);
    specrt_bundle_close(bundle);
    sl_tok_worker_free(worker);
    sl_tokenizer_close(tok);
    return 0;
}
