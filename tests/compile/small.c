/* small.c : a MicroSpec session, also of a program that leaves out other policies. `small save FILE`
 * saves it, `small load FILE` loads one that another program saved, and `small refuse` asks for what is
 * left out. Exits 0 when all statuses are as they should be. */
#include "specrt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 64, COLS = 32, MOST = 65536 };

static specrt_session *create(const specrt_policy *policy) {
    specrt_session *session;
    specrt_error err;
    specrt_session_params params;
    memset(&params, 0, sizeof params);
    params.n_logits = ROWS;
    params.tree.num_steps = 3;
    params.tree.topk = 2;
    params.tree.num_draft_tokens = 6;
    if (specrt_session_create(policy, &params, NULL, &session, &err) == SPECRT_STATUS_OK)
        return session;
    fprintf(stderr, "small: %s\n", err.msg);
    exit(1);
}

static int save(specrt_session *session, const char *path) {
    static unsigned char bytes[MOST];
    const int32_t prompt[] = {5, 17, 3, 40};
    size_t n = 0;
    FILE *file = fopen(path, "wb");
    if (!file || specrt_session_begin(session, NULL) ||
        specrt_session_prefill(session, prompt, 4, NULL) || specrt_session_start(session, 8) ||
        specrt_session_save(session, NULL, 0, &n) || n > MOST ||
        specrt_session_save(session, bytes, n, &n))
        return 1;
    return fwrite(bytes, 1, n, file) != n || fclose(file) != 0;
}

static int load(specrt_session *session, const char *path) {
    static unsigned char bytes[MOST];
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(bytes, 1, MOST, file) : 0;
    if (file) fclose(file);
    if (specrt_session_load(session, bytes, n) == SPECRT_STATUS_OK) return 0;
    fprintf(stderr, "small: %s\n", specrt_session_last_error(session)->msg);
    return 1;
}

/* Every other policy says what to do, and one that is none is no less wrong than before. */
static int refuse(void) {
    const char *texts[] = {"retrieve:256", "static:8+retrieve@graph=off",
                           "cluster",      "group",
                           "centroid",     "successor:64",
                           "sketch:64",    "hybrid",
                           "evospec",      "dynaspec-paper",
                           "coral"};
    specrt_error err;
    memset(&err, 0, sizeof err);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (specrt_policy_check(texts[i], &err) != SPECRT_STATUS_UNSUPPORTED ||
            !strstr(err.msg, "compile specrt.h without SPECRT_SMALL"))
            return fprintf(stderr, "small: %s: %s\n", texts[i], err.msg), 1;
    if (specrt_policy_check("nothing", &err) != SPECRT_STATUS_BAD_ARG) return 1;
    return specrt_policy_check("static:8+window:64@min=8", &err) != SPECRT_STATUS_OK;
}

int main(int argc, char **argv) {
    static float rows[ROWS * COLS];
    specrt_head_desc desc;
    specrt_policy_desc wanted;
    specrt_head *head;
    specrt_policy *policy;
    if (argc == 2) return strcmp(argv[1], "refuse") == 0 ? refuse() : 2;
    if (argc != 3) return 2;
    memset(&desc, 0, sizeof desc);
    memset(&wanted, 0, sizeof wanted);
    desc.rows = rows;
    desc.dtype = SPECRT_DTYPE_F32;
    desc.n_rows = ROWS;
    desc.n_cols = COLS;
    wanted.text = "window:16@min=8";
    if (specrt_head_bind(NULL, &desc, NULL, &head, NULL) ||
        specrt_policy_create(NULL, head, &wanted, &policy, NULL))
        return 1;
    specrt_session *session = create(policy);
    int failed = strcmp(argv[1], "save") == 0 ? save(session, argv[2]) : load(session, argv[2]);
    specrt_session_close(session);
    specrt_policy_close(policy);
    specrt_head_close(head);
    return failed;
}
