/* fuzz_policy.c : any text is either refused as a policy, or means the same when its canonical form is read,
 * and serves a session if the head and the bundle have what it asks for. */
#include "section_target.h"

#include <stdio.h>

enum { N_VOCAB = 60, N_COLS = 12, N_EMBED = 8 };

static specrt_bundle *bundle; /* of every section that a source reads */
static specrt_head *head;

static void run_now(void *user, specrt_task *task) {
    (void)user;
    task->run(task);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    const specrt_head_desc desc = {.rows = section_weights(), .n_rows = N_VOCAB, .n_cols = N_COLS};
    static uint8_t *bytes; /* kept: the bundle lies in it */
    size_t n;
    specrt_error err;
    (void)argc, (void)argv;
    bytes = fixture_all_sections(N_VOCAB, N_COLS, N_EMBED, &n);
    if (specrt_bundle_open_memory(bytes, n, "fuzz", NULL, &bundle, &err) ||
        specrt_head_bind(NULL, &desc, NULL, &head, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    return 0;
}

static specrt_status open_policy(const char *text, specrt_policy **policy, specrt_error *err) {
    static specrt_head_desc embedding = {.n_rows = N_VOCAB, .n_cols = N_EMBED};
    const specrt_policy_desc desc = {.text = text, .embedding = &embedding, .target = head};
    embedding.rows = section_weights();
    return specrt_policy_create(bundle, head, &desc, policy, err);
}

static void check_canonical(const specrt_policy *policy) {
    specrt_policy *again;
    if (open_policy(specrt_policy_get_info(policy)->text, &again, NULL) ||
        strcmp(specrt_policy_get_info(policy)->text, specrt_policy_get_info(again)->text) != 0)
        abort();
    specrt_policy_close(again);
}

/* A prompt, and two cycles to learn from. */
static void serve(const specrt_policy *policy) {
    const specrt_session_params params = {
        .tree = {.num_steps = SECTION_STEPS, .topk = SECTION_TOPK, .num_draft_tokens = 8},
        .n_logits = N_VOCAB,
        .submit = run_now};
    specrt_target_rows rows = {.logits = section_weights()};
    specrt_session *s;
    if (specrt_session_create(policy, &params, NULL, &s, NULL)) return;
    section_begin(s, N_VOCAB, NULL, &rows);
    rows.hidden = section_weights();
    rows.d_hidden = specrt_policy_get_info(policy)->hidden_width;
    for (int cycle = 0; cycle < 2; cycle++) {
        const specrt_verdict verdict = {.n = 1, .tokens = {40 + cycle}};
        specrt_draft draft;
        section_draft(s, N_VOCAB, &draft);
        if (specrt_session_observe(s, &draft, &verdict, &rows)) abort();
    }
    specrt_session_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = (char *)malloc(size + 1);
    specrt_policy *policy;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    specrt_status checked = specrt_policy_check(text, &err);
    if ((checked == SPECRT_STATUS_OK) != !err.msg[0] || strchr(err.msg, '\n')) abort();
    specrt_status status = open_policy(text, &policy, &err);
    if (checked != SPECRT_STATUS_OK && status != checked) abort();
    if (status == SPECRT_STATUS_OK) {
        check_canonical(policy);
        serve(policy);
        specrt_policy_close(policy);
    }
    free(text);
    return 0;
}
