/* test_decode.c : the whole loop on a real pair: under every policy the output is plain decoding's,
 * token for token, greedy and sampled. */
#include "engine/infer/decode.h"
#include "test.h"

#include <json-c/json.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) /* twenty times slower */
enum { PROMPT = 24, LENGTH = 8 };
#else
enum { PROMPT = 48, LENGTH = 32 };
#endif

typedef struct pair {
    engine_model *target;
    engine_drafter *drafter;
    specrt_head *head;
    json_object *held_out;
} pair;

static void open_pair(pair *p) {
    specrt_error err;
    specrt_head_desc head;
    const char *target = test_data("weights/pair128k/target.gguf");
    const char *drafter = test_data("weights/pair128k/draft.safetensors");
    p->held_out = json_object_from_file(test_data("weights/pair128k/heldout.json"));
    REQUIRE(p->held_out && engine_open(target, 2, &p->target, &err) == SPECRT_STATUS_OK);
    REQUIRE(engine_drafter_open(drafter, p->target, &p->drafter, &err) == SPECRT_STATUS_OK);
    engine_head(p->target, &head);
    REQUIRE(specrt_head_bind(NULL, &head, NULL, &p->head, &err) == SPECRT_STATUS_OK);
}

static void close_pair(pair *p) {
    json_object_put(p->held_out);
    specrt_head_close(p->head);
    engine_drafter_close(p->drafter);
    engine_close(p->target);
}

static int32_t prompt_of(const pair *p, const char *domain, size_t i, int32_t *out) {
    json_object *docs = json_object_object_get(p->held_out, domain);
    json_object *ids = json_object_object_get(json_object_array_get_idx(docs, i), "prompt_ids");
    int32_t n = (int32_t)json_object_array_length(ids);
    if (n > PROMPT) n = PROMPT;
    for (int32_t j = 0; j < n; j++)
        out[j] = json_object_get_int(json_object_array_get_idx(ids, (size_t)j));
    return n;
}

static void decode(engine_decoder *d, const int32_t *prompt, int32_t n_prompt, int32_t *out) {
    const int32_t *tokens;
    specrt_error err;
    REQUIRE(engine_decoder_begin(d, prompt, n_prompt, &err) == SPECRT_STATUS_OK);
    for (int32_t n = 0, k; n < LENGTH; n += k) {
        REQUIRE(engine_decoder_next(d, &tokens, &k) == SPECRT_STATUS_OK);
        REQUIRE(k > 0);
        int32_t take = k < LENGTH - n ? k : LENGTH - n;
        memcpy(out + n, tokens, (size_t)take * sizeof *out);
    }
}

/* Accept length over the prompts; the output must be `plain`'s. */
static double run_policy(const pair *p, const char *text, const specrt_session_params *params) {
    static const char *const domains[] = {"math", "code"};
    specrt_policy *policy;
    specrt_error err = {0};
    engine_decoder *plain, *speculative;
    specrt_session_stats sum = {0}, stats;
    specrt_status status =
        specrt_policy_create(NULL, p->head, &(specrt_policy_desc){.text = text}, &policy, &err);
    if (status) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(status == SPECRT_STATUS_OK);
    REQUIRE(engine_decoder_create(p->target, NULL, NULL, params, 128, &plain, &err) ==
            SPECRT_STATUS_OK);
    REQUIRE(engine_decoder_create(p->target, p->drafter, policy, params, 128, &speculative, &err) ==
            SPECRT_STATUS_OK);
    for (int i = 0; i < (test_brief() ? 1 : 2); i++) {
        int32_t prompt[PROMPT], expected[LENGTH], found[LENGTH];
        int32_t n = prompt_of(p, domains[i], 1, prompt);
        decode(plain, prompt, n, expected);
        decode(speculative, prompt, n, found);
        for (int32_t j = 0; j < LENGTH; j++) CHECK_INT(found[j], expected[j]);
        specrt_session_get_stats(engine_decoder_session(speculative), &stats);
        sum.n_cycles += stats.n_cycles;
        sum.n_emitted += stats.n_emitted;
        sum.n_rows += stats.n_rows;
    }
    printf("%-40s accept length %.2f, %.0f active rows\n", specrt_policy_get_info(policy)->text,
           (double)sum.n_emitted / (double)sum.n_cycles, (double)sum.n_rows / (double)sum.n_cycles);
    engine_decoder_free(plain);
    engine_decoder_free(speculative);
    specrt_policy_close(policy);
    return (double)sum.n_emitted / (double)sum.n_cycles;
}

static void test_greedy(void) {
    pair p;
    specrt_session_params params = {.tree = {.num_steps = 4, .topk = 4, .num_draft_tokens = 16}};
    open_pair(&p);
    double full = run_policy(&p, "full", &params);
    CHECK(full > 1.5); /* the drafter helps */
    CHECK(run_policy(&p, "microspec", &params) > 1.2);
    run_policy(&p, "microspec-paper", &params);
    run_policy(&p, "window:16@min=8", &params); /* nearly nothing to propose */
    close_pair(&p);
}

static void test_chain_sampled(void) {
    pair p;
    specrt_session_params params = {.tree = {.num_steps = 3, .topk = 1, .num_draft_tokens = 4},
                                    .sampling = {.temperature = 0.7f, .top_p = 0.95f, .seed = 5}};
    open_pair(&p);
    run_policy(&p, "full", &params);
    run_policy(&p, "microspec", &params);
    close_pair(&p);
}

/* The context ends generation cleanly, at the same token as plain decoding does. */
static void test_context_limit(void) {
    pair p;
    engine_decoder *d;
    specrt_error err;
    specrt_policy *policy;
    specrt_session_params params = {.tree = {.num_steps = 4, .topk = 2, .num_draft_tokens = 8}};
    int32_t prompt[PROMPT], total[2] = {0}, more = test_brief() ? 10 : 40;
    open_pair(&p);
    int32_t n = prompt_of(&p, "code", 0, prompt);
    REQUIRE(specrt_policy_create(NULL, p.head, NULL, &policy, &err) == SPECRT_STATUS_OK);
    for (int i = 0; i < 2; i++) {
        const int32_t *tokens;
        REQUIRE(engine_decoder_create(p.target, i ? p.drafter : NULL, i ? policy : NULL, &params,
                                      PROMPT + more, &d, &err) == SPECRT_STATUS_OK);
        CHECK(engine_decoder_begin(d, prompt, 0, &err) == SPECRT_STATUS_BAD_ARG);
        REQUIRE(engine_decoder_begin(d, prompt, n, &err) == SPECRT_STATUS_OK);
        for (int32_t k = 1; k > 0; total[i] += k)
            REQUIRE(engine_decoder_next(d, &tokens, &k) == SPECRT_STATUS_OK);
        engine_decoder_free(d);
    }
    CHECK_INT(total[0], total[1]);
    CHECK_INT(total[0], PROMPT + more - n + 1);
    specrt_policy_close(policy);
    close_pair(&p);
}

/* A target that drafts for itself is always right. */
static void test_independent(void) {
    pair p = {0};
    specrt_error err;
    const char *target = test_data("weights/pair128k/target.gguf");
    specrt_session_params params = {.tree = {.num_steps = 3, .topk = 1, .num_draft_tokens = 4}};
    open_pair(&p);
    engine_drafter_close(p.drafter);
    REQUIRE(engine_drafter_open(target, p.target, &p.drafter, &err) == SPECRT_STATUS_OK);
    CHECK(engine_drafter_is_model(p.drafter));
    double length = run_policy(&p, "full", &params);
    CHECK(length == 4);
    params.tree = (specrt_tree_params){.num_steps = 3, .topk = 3, .num_draft_tokens = 22};
    CHECK(run_policy(&p, "full", &params) == 4);
    CHECK(run_policy(&p, "microspec", &params) > 1.2);
    close_pair(&p);
}

static const test_case cases[] = {
    {"greedy", "every policy emits plain decoding's tokens from a tree", test_greedy},
    {"chain_sampled", "a chain with sampling emits the same draws as plain decoding",
     test_chain_sampled},
    {"independent", "a small model of its own drafts too, in chains and trees", test_independent},
    {"context_limit", "a full context ends generation", test_context_limit},
};
TEST_MAIN(cases)
