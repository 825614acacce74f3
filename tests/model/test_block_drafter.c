/* test_block_drafter.c : what a block drafter's keys say, in each form of them. */
#include "st_build.h"
#include "gguf_build.h"
#include "model/block_drafter.h"
#include "model/checkpoint.h"

static const char w1[] = "markov_head.markov_w1.weight", head[] = "lm_head.weight";

static const struct {
    const char *tensors[3], *config;
    block_drafter
        said; /* size, other_size, n_drafts, n_taps, least_tap, greatest_tap, markov, selector,
               * headless, no_cut, taps, mask */
} forms[] = {
    /* z-lab: the last token of the text has the first position. */
    {{"fc.weight"},
     "{\"block_size\":16,\"dflash_config\":{\"target_layer_ids\":[1,17,9],\"mask_token_id\":6}}",
     {16, 16, 15, 3, 1, 17, false, false, true, NULL, {1, 17, 9}, 6}},
    {{head},
     "{\"block_size\":16,\"dflash_config\":{\"block_size\":8}}",
     {8, 16, 7, 0, 0, 0, false, false, false, NULL, {0}, 0}},
    {{head, "candidate_selector.hidden_projection.weight"},
     "{\"dflash_config\":{\"block_size\":8,\"target_layer_ids\":[-1,0]}}",
     {8, 8, 7, 2, -1, 0, false, true, false, NULL, {-1, 0}, 0}},
    /* DeepSpec: every position drafts. */
    {{head, w1},
     "{\"block_size\":7,\"target_layer_ids\":[4],\"mask_token_id\":9}",
     {7, 7, 7, 1, 4, 4, true, false, false, NULL, {4}, 9}},
    {{head, w1},
     "{\"block_size\":7,\"sample_from_anchor\":false}",
     {7, 7, 6, 0, 0, 0, true, false, false, NULL, {0}, 0}},
    /* speculators count layers from their inputs. */
    {{"lm_head.weight_packed", w1},
     "{\"speculators_model_type\":\"dspark\",\"block_size\":8,\"aux_hidden_state_layer_ids\":[2,30]"
     "}",
     {8, 8, 7, 2, 1, 29, true, false, false, NULL, {1, 29}, 0}},
    {{head, w1},
     "{\"speculators_model_type\":\"dspark\",\"block_size\":8,\"sample_from_anchor\":true}",
     {8, 8, 8, 0, 0, 0, true, false, false, NULL, {0}, 0}},
    {{"fc.weight"}, "{\"block_size\":-3}", {0, 0, 0, 0, 0, 0, false, false, true, NULL, {0}, 0}},
    {{"fc.weight"},
     "{\"target_layer_ids\":7}",
     {0, 0, 0, 0, 0, 0, false, false, true, NULL, {0}, 0}},
};

static void check_same(const block_drafter *found, const block_drafter *said, size_t i) {
    int before = test_failures;
    CHECK_INT(found->size, said->size);
    CHECK_INT(found->other_size, said->other_size);
    CHECK_INT(found->n_drafts, said->n_drafts);
    CHECK_INT(found->n_taps, said->n_taps);
    CHECK_INT(found->least_tap, said->least_tap);
    CHECK_INT(found->greatest_tap, said->greatest_tap);
    CHECK_INT(found->markov, said->markov);
    CHECK_INT(found->selector, said->selector);
    CHECK_INT(found->headless, said->headless);
    CHECK((found->no_cut != NULL) == (said->no_cut != NULL));
    CHECK(memcmp(found->taps, said->taps, sizeof said->taps) == 0);
    CHECK_INT(found->mask, said->mask);
    if (test_failures > before) fprintf(stderr, "row %zu\n", i);
}

TEST(forms, "config.json of z-lab, DeepSpec and speculators") {
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        st_tensor tensors[3];
        block_drafter found;
        specrt_error err;
        st *s;
        int n = 0;
        for (; n < 3 && forms[i].tensors[n]; n++) tensors[n] = f32(forms[i].tensors[n], 4, 2);
        put_st("model.safetensors", tensors, n);
        REQUIRE(sl_st_open(in_folder("model.safetensors"), &s, &err) == SPECRT_STATUS_OK);
        json_object *config = json_tokener_parse(forms[i].config);
        sl_block_drafter_st(s, config, &found);
        check_same(&found, &forms[i].said, i);
        json_object_put(config);
        sl_st_close(s);
    }
    clear_folder();
}

TEST(none, "without config.json nothing is said") {
    const block_drafter said = {.headless = true};
    st_tensor t = f32("fc.weight", 4, 2);
    block_drafter found;
    specrt_error err;
    st *s;
    put_st("model.safetensors", &t, 1);
    REQUIRE(sl_st_open(in_folder("model.safetensors"), &s, &err) == SPECRT_STATUS_OK);
    sl_block_drafter_st(s, NULL, &found);
    check_same(&found, &said, 0);
    sl_st_close(s);
    clear_folder();
}

TEST(gguf, "keys of a GGUF") {
    static const int32_t inputs[] = {2, 18, 10};
    static const block_drafter said[] = {
        {16, 16, 15, 3, 1, 17, false, false, true, NULL, {1, 17, 9}, 0},
        {0, 0, 0, 0, 0, 0, false, false, true, NULL, {0}, 0},
        {0, 0, 0, 0, 0, 0, false, false, true, "hyper connections", {0}, 0},
    };
    for (int i = 0; i < 3; i++) {
        block_drafter found;
        specrt_error err;
        checkpoint_id id;
        gguf *g;
        begin();
        put_string("general.architecture", "dflash");
        if (i == 0) put_int("dflash.block_size", 16);
        if (i == 0) put_ints("dflash.target_layers", inputs, 3);
        if (i == 1) put_strings("dflash.target_layers", (const char *const[]){"2", NULL});
        if (i == 2) put_int("dflash.hyper_connection.count", 4);
        REQUIRE(sl_gguf_open_memory(file, n_file, "x", &g, &err) == SPECRT_STATUS_OK);
        sl_block_drafter_gguf(g, &found);
        check_same(&found, &said[i], (size_t)i);
        REQUIRE(sl_checkpoint_identify_gguf(g, "x", &id, &err) == SPECRT_STATUS_OK);
        check_same(&id.block, &said[i], (size_t)i);
        CHECK_STR(id.words, "a DFlash drafter");
        CHECK_INT(sl_checkpoint_refuse_block(&id, "x", &err),
                  i == 2 ? SPECRT_STATUS_UNSUPPORTED : SPECRT_STATUS_OK);
        if (i == 2) CHECK_HAS(err.msg, "x: is a DFlash drafter: dflash.hyper_connection.count: ");
        sl_gguf_close(g);
    }
}
