/* test_head_share.c : bytes of small pairs, added up by hand; what is not known stays unknown. */
#include "model/head_share.h"

#include <math.h>
#include "st_build.h"

enum { F = 4 }; /* bytes of a weight */
static const st_tensor no_tensor;
static specrt_error err;

static void put_target(st_tensor more) {
    st_tensor tensors[] = {f32("lm_head.weight", 50, 8), f32("model.embed_tokens.weight", 50, 8),
                           f32("model.layers.0.mlp.down_proj.weight", 30, 8),
                           f32("model.vision_tower.x", 9, 8), more};
    put_st("target.safetensors", tensors, more.name ? 5 : 4);
}

static head_share share_of(const char *target, int64_t n_drafts, checkpoint_id id) {
    head_share s;
    REQUIRE(sl_head_share(in_folder(target), in_folder("drafter.safetensors"), &id, n_drafts, &s,
                          &err) == SPECRT_STATUS_OK);
    return s;
}

TEST(eagle3, "a head of its own, over several passes") {
    st_tensor tensors[] = {f32("fc.weight", 20, 8), f32("midlayer.self_attn.q_proj.weight", 10, 8),
                           f32("lm_head.weight", 25, 8), f32("d2t", 25, 0)};
    checkpoint_id id = {.kind = CHECKPOINT_EAGLE3};
    put_target(no_tensor);
    put_st("drafter.safetensors", tensors, 4);
    head_share s = share_of("target.safetensors", 3, id);
    CHECK_NEAR(s.target, F * 8 * (50 + 30), 0);
    CHECK_NEAR(s.layers, F * 8 * (20 + 10), 0);
    CHECK_NEAR(s.head, F * 8 * 25, 0);
    CHECK_NEAR(s.draft, 25.0 / 55, 1e-12);
    CHECK_NEAR(s.cycle, 75.0 / (80 + 3 * 55), 1e-12);
    CHECK(isnan(share_of("nothing", 3, id).cycle));
    clear_folder();
}

TEST(head_of_target, "an EAGLE-1/2 head has the target's") {
    st_tensor tensor = f32("fc.weight", 20, 8);
    checkpoint_id id = {.kind = CHECKPOINT_EAGLE};
    put_target(no_tensor);
    put_st("drafter.safetensors", &tensor, 1);
    head_share s = share_of("target.safetensors", 1, id);
    CHECK_NEAR(s.head, F * 8 * 50, 0);
    CHECK_NEAR(s.cycle, 50.0 / (80 + 70), 1e-12);
    CHECK_INT(
        sl_head_share(in_folder("nothing"), in_folder("drafter.safetensors"), &id, 1, &s, &err),
        SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "no LM head");
    clear_folder();
}

TEST(mtp, "MTP layers are passes of their own: the target's pass has none of them") {
    st_tensor tensors[] = {f32("lm_head.weight", 50, 8), f32("model.embed_tokens.weight", 50, 8),
                           f32("model.layers.0.mlp.down_proj.weight", 30, 8),
                           f32("model.layers.1.eh_proj.weight", 16, 8),
                           f32("model.layers.1.mlp.down_proj.weight", 6, 8)};
    checkpoint_id id = {.kind = CHECKPOINT_MTP,
                        .tail = {.n_layers = 1, .first = 1, .is_whole = true}};
    put_st("target.safetensors", tensors, 5);
    put_st("drafter.safetensors", tensors, 5);
    head_share s = share_of("target.safetensors", 2, id);
    CHECK_NEAR(s.target, F * 8 * 80, 0);
    CHECK_NEAR(s.layers, F * 8 * 22, 0);
    CHECK_NEAR(s.draft, 50.0 / 72, 1e-12);
    CHECK_NEAR(s.cycle, 100.0 / (80 + 144), 1e-12);
    clear_folder();
}

TEST(experts, "a pass reads a part of the experts: which share of a cycle is left is not known") {
    st_tensor tensors[] = {f32("lm_head.weight", 25, 8), f32("model.layers.0.x", 25, 8)};
    checkpoint_id id = {.kind = CHECKPOINT_MODEL};
    put_target(f32("model.layers.0.mlp.experts.3.down_proj.weight", 9, 8));
    put_st("drafter.safetensors", tensors, 2);
    head_share s = share_of("target.safetensors", 3, id);
    CHECK_NEAR(s.draft, 0.5, 1e-12);
    CHECK(s.target == 0 && isnan(s.cycle));
    put_st("target.safetensors", tensors, 2);
    tensors[1].name = "model.layers.0.mlp.experts.3.down_proj.weight";
    put_st("drafter.safetensors", tensors, 2);
    s = share_of("target.safetensors", 3, id);
    CHECK(isnan(s.draft) && isnan(s.cycle));
    clear_folder();
}
