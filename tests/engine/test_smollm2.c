/* test_smollm2.c : the drafter of data/smollm2 is a head for SmolLM2-135M-Instruct and for no other target,
 * and decodes with it where `make models NAME=smollm2` has fetched that. */
#include "formats/safetensors.h"
#include "over.h"
#include "opened.h"

#include <json-c/json.h>
#include <unistd.h>

static const char draft_path[] = "data/smollm2/draft.safetensors";
static const char target_path[] = "build/models/smollm2.gguf";

enum { D = 576, FFN = 1536, KV = 192, LENGTH = 48 };

static const struct {
    const char *name;
    int64_t rows, cols; /* cols 0: a vector */
} shapes[] = {
    {"fc.bias", D, 0},
    {"fc.weight", D, 2 * D},
    {"layers.0.mlp.down_proj.weight", D, FFN},
    {"layers.0.mlp.gate_proj.weight", FFN, D},
    {"layers.0.mlp.up_proj.weight", FFN, D},
    {"layers.0.post_attention_layernorm.weight", D, 0},
    {"layers.0.self_attn.k_proj.weight", KV, D},
    {"layers.0.self_attn.o_proj.weight", D, D},
    {"layers.0.self_attn.q_proj.weight", D, D},
    {"layers.0.self_attn.v_proj.weight", KV, D},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* Neither NaN nor infinite, and not all zero. */
static bool sound(const st_tensor *t) {
    bool some = false;
    for (size_t i = 0; i + 1 < t->bytes; i += 2) {
        unsigned half = (unsigned)t->data[i] | (unsigned)t->data[i + 1] << 8;
        if ((half & 0x7c00u) == 0x7c00u) return false;
        some = some || (half & 0x7fffu) != 0;
    }
    return some;
}

TEST(tensors, "every tensor by its name, type and shape, of finite values") {
    st *file;
    specrt_error err;
    int64_t n;
    REQUIRE(sl_st_open(draft_path, &file, &err) == SPECRT_STATUS_OK);
    const st_tensor *found = sl_st_tensors(file, &n);
    CHECK_INT(n, N_SHAPES);
    for (int64_t i = 0; i < n && i < N_SHAPES; i++) {
        CHECK_STR(found[i].name, shapes[i].name);
        CHECK_STR(found[i].dtype, "F16");
        CHECK_INT(found[i].n_dims, shapes[i].cols > 0 ? 2 : 1);
        CHECK_INT(found[i].shape[0], shapes[i].rows);
        if (shapes[i].cols > 0) CHECK_INT(found[i].shape[1], shapes[i].cols);
        CHECK(sound(&found[i]));
    }
    sl_st_close(file);
}

static void check_number(json_object *config, const char *key, double expected) {
    json_object *value;
    CHECK(json_object_object_get_ex(config, key, &value));
    CHECK_NEAR(json_object_get_double(value), expected, 1e-9);
}

TEST(config, "config.json tells SmolLM2's shape") {
    json_object *config = json_object_from_file("data/smollm2/config.json");
    REQUIRE(config != NULL);
    check_number(config, "hidden_size", D);
    check_number(config, "intermediate_size", FFN);
    check_number(config, "num_attention_heads", 9);
    check_number(config, "num_key_value_heads", 3);
    check_number(config, "rms_norm_eps", 1e-5);
    check_number(config, "rope_theta", 1e5);
    check_number(config, "vocab_size", 49152);
    json_object_put(config);
}

TEST(other_target, "another target is refused, both widths named") {
    engine_model *target;
    engine_drafter *drafter;
    specrt_error err;
    if (access("data/sample/target.gguf", R_OK)) SKIP("no data/sample/target.gguf");
    REQUIRE(engine_open("data/sample/target.gguf", 1, &target, &err) == SPECRT_STATUS_OK);
    CHECK(engine_drafter_open(draft_path, target, &drafter, &err) == SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg,
              "data/smollm2/config.json: hidden_size: expected the target's 256, found 576");
    engine_close(target);
}

/* "What is a heap?" in the model's own template. */
static const int32_t prompt[] = {1,     9690, 198, 2683,  359,  253,  5356, 5646, 11173,
                                 3365,  3511, 308, 34519, 28,   7018, 411,  407,  19712,
                                 8182,  2,    198, 1,     4093, 198,  1780, 314,  253,
                                 31011, 47,   2,   198,   1,    520,  9531, 198};

static void decode(decoder *d, int32_t *out) {
    const specrt_request request = {.max_tokens = LENGTH};
    const specrt_verdict *v;
    specrt_error err;
    int32_t n_prompt = (int32_t)(sizeof prompt / sizeof prompt[0]);
    REQUIRE(decoder_begin(d, &request, prompt, n_prompt, &err) == SPECRT_STATUS_OK);
    do {
        REQUIRE(decoder_next(d, &v, &err) == SPECRT_STATUS_OK);
        memcpy(out, v->tokens, (size_t)v->n * sizeof *out);
        out += v->n;
    } while (v->end == SPECRT_END_NONE);
    CHECK_INT(v->end, SPECRT_END_LENGTH);
}

TEST(decodes, "with SmolLM2: plain decoding's tokens, in fewer passes") {
    engine_model *target;
    engine_drafter *drafter;
    specrt_head_desc desc;
    specrt_error err;
    specrt_session_params params = {.tree = {.num_steps = 4, .topk = 1, .num_draft_tokens = 5}};
    specrt_session_stats stats;
    int32_t expected[LENGTH], found[LENGTH];
    if (access(target_path, R_OK)) SKIP("no SmolLM2; make models NAME=smollm2");
    REQUIRE(engine_open(target_path, 2, &target, &err) == SPECRT_STATUS_OK);
    REQUIRE(engine_drafter_open(draft_path, target, &drafter, &err) == SPECRT_STATUS_OK);
    engine_head(target, &desc);
    specrt_head *head = bind_head(NULL, &desc);
    specrt_policy *policy = create_policy(NULL, head, &(specrt_policy_desc){.text = "full"});
    over plain = over_models(target, NULL, NULL, &params, 0, 128);
    over speculative = over_models(target, drafter, policy, &params, 0, 128);
    decode(plain.decoder, expected);
    decode(speculative.decoder, found);
    for (int i = 0; i < LENGTH; i++) CHECK_INT(found[i], expected[i]);
    specrt_session_get_stats(decoder_session(speculative.decoder), &stats);
    double length = (double)stats.n_emitted / (double)stats.n_cycles;
    printf("accept length %.2f\n", length);
    CHECK(length > 1.2); /* it was trained for this model */
    over_free(&plain);
    over_free(&speculative);
    specrt_policy_close(policy);
    specrt_head_close(head);
    engine_drafter_close(drafter);
    engine_close(target);
}
