/* test_checkpoint.c : what a drafter's safetensors and config.json say. */
#include "model/checkpoint.h"
#include "st_build.h"

static const char fc[] = "fc.weight", midlayer[] = "midlayer.self_attn.q_proj.weight",
                  layer_0[] = "layers.0.hidden_norm.weight", head[] = "lm_head.weight",
                  deepseek[] = "model.layers.7.eh_proj.weight", qwen[] = "mtp.fc.weight",
                  qwen_0[] = "mtp.layers.0.input_layernorm.weight",
                  embedding[] = "model.embed_tokens.weight",
                  own_head[] = "model.layers.7.shared_head.head.weight";

static void put_names(const char *const *names) {
    st_tensor tensors[8];
    int n = 0;
    for (; names[n]; n++) tensors[n] = f32_from(n, names[n], 4 + n, 2);
    put_st("model.safetensors", tensors, n);
}

static const struct {
    const char *names[6], *config;
    checkpoint_kind kind;
    int64_t n_rows, n_vocab;
    mtp_tail tail; /* n_layers, first, own_head, tied, is_whole */
} kinds[] = {
    {{fc, head}, "{}", CHECKPOINT_EAGLE, 5, 0, {0}},
    {{fc}, "{\"vocab_size\":9}", CHECKPOINT_EAGLE, 0, 9, {0}},
    {{fc, midlayer}, "{\"text_config\":{\"vocab_size\":9}}", CHECKPOINT_EAGLE3, 0, 9, {0}},
    {{layer_0, head},
     "{\"transformer_layer_config\":{\"vocab_size\":8},\"text_config\":{\"vocab_size\":9}}",
     CHECKPOINT_EAGLE3,
     5,
     8,
     {0}},
    {{head, embedding}, "{\"vocab_size\":0}", CHECKPOINT_MODEL, 4, 0, {0}},
    {{deepseek, head}, "{}", CHECKPOINT_MTP, 5, 0, {1, 7, false, false, false}},
    {{deepseek, own_head, head, "model.layers.0.x"},
     "{}",
     CHECKPOINT_MTP,
     5,
     0,
     {1, 7, true, false, true}},
    {{deepseek, "model.layers.6.eh_proj.weight", "model.layers.10.eh_proj.weight"},
     "{}",
     CHECKPOINT_MTP,
     0,
     0,
     {3, 6, false, false, false}},
    {{"model.layers.x.eh_proj.weight", "model.layers.-1.eh_proj.weight",
      "model.layers.100000.eh_proj.weight", "model.layers.3.eh_proj.weight2"},
     "{}",
     CHECKPOINT_MODEL,
     0,
     0,
     {0}},
    {{"model.layers.0.eh_proj.weight", "model.layers.99999.eh_proj.weight"},
     "{}",
     CHECKPOINT_MTP,
     0,
     0,
     {2, 0, false, false, true}},
    {{qwen, qwen_0, "mtp.layers.1.input_layernorm.weight", "mtp.layers.1.x"},
     "{}",
     CHECKPOINT_MTP,
     0,
     0,
     {2, -1, false, false, false}},
    {{qwen, head}, "{}", CHECKPOINT_MTP, 5, 0, {1, -1, false, false, false}},
    {{qwen, embedding}, "{}", CHECKPOINT_MTP, 0, 0, {1, -1, false, true, false}},
    {{qwen, embedding, head}, "{}", CHECKPOINT_MTP, 6, 0, {1, -1, false, false, false}},
    {{qwen, embedding, head},
     "{\"tie_word_embeddings\":true}",
     CHECKPOINT_MTP,
     0,
     0,
     {1, -1, false, true, false}},
    {{qwen, embedding},
     "{\"tie_word_embeddings\":false}",
     CHECKPOINT_MTP,
     0,
     0,
     {1, -1, false, false, false}},
    {{deepseek, own_head, embedding}, "{}", CHECKPOINT_MTP, 5, 0, {1, 7, true, false, false}},
};

/* The name that a class of each kind has; MTP layers come under their model's. */
static const char *const classes[] = {"Qwen3ForCausalLM", "LlamaForCausalLMEagle",
                                      "LlamaForCausalLMEagle3", "Qwen3_5ForCausalLM"};

static void put_config(const char *name, const char *config) {
    char text[512];
    snprintf(text, sizeof text, "{\"architectures\":[\"%s\"]%s%s", name,
             strcmp(config, "{}") == 0 ? "" : ",", config + 1);
    put_json("config.json", text);
}

TEST(kinds, "drafters of every kind, by names of tensors") {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        checkpoint c;
        specrt_error err = {SPECRT_STATUS_OK, ""};
        put_names(kinds[i].names);
        put_config(classes[kinds[i].kind], kinds[i].config);
        CHECK_INT(sl_checkpoint_open(folder(), true, &c, &err), SPECRT_STATUS_OK);
        CHECK_STR(err.msg, "");
        int before = test_failures;
        CHECK_INT(c.kind, kinds[i].kind);
        CHECK_INT(c.n_rows, kinds[i].n_rows);
        CHECK_INT(c.n_vocab, kinds[i].n_vocab);
        CHECK_INT(c.tail.n_layers, kinds[i].tail.n_layers);
        CHECK_INT(c.tail.first, kinds[i].tail.first);
        CHECK_INT(c.tail.own_head, kinds[i].tail.own_head);
        CHECK_INT(c.tail.tied, kinds[i].tail.tied);
        CHECK_INT(c.tail.is_whole, kinds[i].tail.is_whole);
        if (test_failures > before) fprintf(stderr, "row %zu\n", i);
        sl_checkpoint_close(&c);
    }
    clear_folder();
}

TEST(config, "config.json of the whole, else of the layer's object; without the file it is empty") {
    checkpoint c;
    specrt_error err;
    put_names((const char *const[]){qwen, NULL});
    CHECK_INT(sl_checkpoint_open(folder(), true, &c, &err), SPECRT_STATUS_IO);
    CHECK_HAS(err.msg, "config.json: cannot open");
    REQUIRE(sl_checkpoint_open(folder(), false, &c, &err) == SPECRT_STATUS_OK);
    CHECK_INT(sl_checkpoint_number(&c, "a"), -1);
    CHECK(sl_checkpoint_has(&c, "c.weight") && sl_checkpoint_has(&c, fc));
    CHECK(!sl_checkpoint_has(&c, "c.weigh") && !sl_checkpoint_has(&c, "afc.weight"));
    CHECK(!sl_checkpoint_has(&c, "a name longer than any tensor's"));
    sl_checkpoint_close(&c);
    put_json("config.json", "{\"a\":1,\"text_config\":{\"a\":2,\"b\":3,\"c\":true},\"d\":\"1\"}");
    REQUIRE(sl_checkpoint_open(in_folder("model.safetensors"), true, &c, &err) == SPECRT_STATUS_OK);
    CHECK_INT(sl_checkpoint_number(&c, "a"), 1);
    CHECK_INT(sl_checkpoint_number(&c, "b"), 3);
    CHECK_INT(sl_checkpoint_number(&c, "d"), -1);
    CHECK(sl_checkpoint_is_set(&c, "c") && !sl_checkpoint_is_set(&c, "e"));
    CHECK(!sl_checkpoint_value(&c, "e"));
    sl_checkpoint_close(&c);
    put_json("config.json", "[]");
    CHECK_INT(sl_checkpoint_open(folder(), false, &c, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "config.json: expected a JSON object");
    put_json("config.json", "");
    CHECK_INT(sl_checkpoint_open(folder(), false, &c, &err), SPECRT_STATUS_BAD_INPUT);
    clear_folder();
}

TEST(shapes, "a head is a matrix, d2t and t2d are lists") {
    static const struct {
        const char *name;
        int64_t rows, cols;
        const char *wrong;
    } rows[] = {
        {"lm_head.weight", 4, 0, "\"lm_head.weight\": expected a matrix of 1 to"},
        {"lm_head.weight", 0, 4, "\"lm_head.weight\": expected a matrix of 1 to"},
        {"lm_head.weight", 1, 4, NULL},
        {"d2t", 4, 2, "\"d2t\": expected a list of 1 to"},
        {"d2t", 0, 0, "\"d2t\": expected a list of 1 to"},
        {"t2d", 4, 2, "\"t2d\": expected a list of 1 to"},
        {"t2d", 1, 0, NULL},
    };
    put_config(classes[CHECKPOINT_EAGLE3], "{}");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        checkpoint c;
        specrt_error err = {SPECRT_STATUS_OK, ""};
        st_tensor t = f32(rows[i].name, rows[i].rows, rows[i].cols);
        put_st("model.safetensors", &t, 1);
        CHECK_INT(sl_checkpoint_open(folder(), false, &c, &err),
                  rows[i].wrong ? SPECRT_STATUS_BAD_INPUT : SPECRT_STATUS_OK);
        CHECK_HAS(err.msg, rows[i].wrong ? rows[i].wrong : "");
        if (c.t2d) CHECK_INT(c.n_vocab, 1);
        sl_checkpoint_close(&c);
    }
    clear_folder();
}

/* Names say the kind whatever tensors are there. */
static const struct {
    const char *key, *name;
    int kind; /* -1: refused */
} named[] = {
    {"architectures", "Eagle3LlamaForCausalLM", CHECKPOINT_EAGLE3},
    {"architectures", "EAGLE3LlamaForCausalLM", CHECKPOINT_EAGLE3},
    {"architectures", "Qwen3MoEForCausalLMEagle3", CHECKPOINT_EAGLE3},
    {"architectures", "Eagle3Qwen3vlForCausalLM", CHECKPOINT_EAGLE3},
    {"architectures", "Eagle3DraftModel", CHECKPOINT_EAGLE3},
    {"architectures", "EagleLlamaForCausalLM", CHECKPOINT_EAGLE},
    {"architectures", "EagleSpeculator", CHECKPOINT_EAGLE},
    {"architectures", "EagleModel", CHECKPOINT_EAGLE},
    {"architectures", "DFlashDraftModel", CHECKPOINT_BLOCK},
    {"architectures", "DFlash2DraftModel", CHECKPOINT_BLOCK},
    {"architectures", "Qwen3DSparkModel", CHECKPOINT_BLOCK},
    {"architectures", "PEagleForCausalLM", -1},
    {"architectures", "FooBarDraftModel", -1},
    {"architectures", "MedusaForCausalLM", -1},
    {"architectures", "DeepSeekMTPModel", -1}, /* without their tensors */
    {"architectures", "Qwen3NextMTP", -1},
    {"architectures", "DeepseekV3ForCausalLMNextN", -1},
    {"architectures", "Qwen3ForCausalLM", -1}, /* beside fc.weight */
    {"model_type", "eagle", CHECKPOINT_EAGLE},
    {"model_type", "eagle3", CHECKPOINT_EAGLE3},
    {"model_type", "dspark", CHECKPOINT_BLOCK},
    {"model_type", "gemma4_unified_assistant", CHECKPOINT_MODEL},
    {"model_type", "deepseek_mtp", -1},
    {"model_type", "qwen3", -1},
    {"speculators_model_type", "eagle", CHECKPOINT_EAGLE},
    {"speculators_model_type", "eagle3", CHECKPOINT_EAGLE3},
    {"speculators_model_type", "dflash", CHECKPOINT_BLOCK},
    {"speculators_model_type", "peagle", -1},
};

TEST(names, "a name says the kind, or is refused") {
    char text[256];
    put_names((const char *const[]){fc, "d2", NULL});
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        checkpoint_id id;
        specrt_error err = {SPECRT_STATUS_OK, ""};
        snprintf(text, sizeof text, "{\"%s\":\"%s\"}", named[i].key, named[i].name);
        put_json("config.json", text);
        specrt_status status = sl_checkpoint_identify_path(folder(), &id, &err);
        CHECK_INT(status == SPECRT_STATUS_OK ? (int)id.kind : -1, named[i].kind);
        CHECK(named[i].kind >= 0 || status == SPECRT_STATUS_BAD_INPUT);
    }
    clear_folder();
}

/* A plain name beside all tensors of a drafter, of these shapes, and beside some of them. */
static const struct {
    st_tensor tensors[4];
    int n, kind;
} plain[] = {
    {{{.name = "fc.weight", .shape = {4, 8}},
      {.name = "layers.0.self_attn.q_proj.weight", .shape = {3, 4}}},
     2,
     CHECKPOINT_EAGLE},
    {{{.name = "fc.weight", .shape = {4, 8}}}, 1, -1},
    {{{.name = "fc.weight", .shape = {4, 12}},
      {.name = "layers.0.self_attn.q_proj.weight", .shape = {3, 4}}},
     2,
     -1},
    {{{.name = "fc.weight", .shape = {4, 8}},
      {.name = "layers.0.self_attn.q_proj.weight", .shape = {3, 8}}},
     2,
     -1},
    {{{.name = "fc.weight", .shape = {4, 8}},
      {.name = "layers.0.self_attn.q_proj.weight", .shape = {3, 4}},
      {.name = "lm_head.weight", .shape = {5, 4}}},
     3,
     -1},
    {{{.name = "fc.weight", .shape = {4, 12}},
      {.name = "layers.0.self_attn.q_proj.weight", .shape = {3, 8}},
      {.name = "layers.0.hidden_norm.weight", .shape = {4, 0}}},
     3,
     CHECKPOINT_EAGLE3},
    {{{.name = "fc.weight", .shape = {4, 12}},
      {.name = "midlayer.self_attn.q_proj.weight", .shape = {3, 8}}},
     2,
     -1},
    {{{.name = "fc.weight", .shape = {4, 12}},
      {.name = "layers.0.self_attn.q_proj.weight", .shape = {3, 8}},
      {.name = "hidden_norm.weight", .shape = {4, 0}}}, /* DFlash */
     3,
     -1},
    {{{.name = "model.layers.0.x.weight", .shape = {4, 4}}}, 1, CHECKPOINT_MODEL},
};

TEST(plain, "a plain name, and all tensors of a drafter or some") {
    put_config("LlamaForCausalLM", "{}");
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        st_tensor tensors[4];
        checkpoint_id id;
        specrt_error err;
        for (int k = 0; k < plain[i].n; k++) {
            const st_tensor *t = &plain[i].tensors[k];
            tensors[k] = f32(t->name, t->shape[0], t->shape[1]);
        }
        put_st("model.safetensors", tensors, plain[i].n);
        specrt_status status = sl_checkpoint_identify_path(folder(), &id, &err);
        CHECK_INT(status == SPECRT_STATUS_OK ? (int)id.kind : -1, plain[i].kind);
    }
    clear_folder();
}
