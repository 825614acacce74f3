/* test_model_damage.c : what the readers of token maps and of a drafter's config.json say of damage in every
 * place. */
#include "damage.h"

#include "model/checkpoint.h"
#include "model/token_map.h"
#include "st_build.h"

/* The first byte of a seed picks the options. */
static specrt_status read_map(const void *bytes, size_t n, uint64_t *content, specrt_error *err) {
    const uint8_t *data = (const uint8_t *)bytes;
    token_map map;
    if (n == 0) return SPECRT_STATUS_OK;
    const token_map_options o = {.values = (token_map_values)(data[0] % 4),
                                 .n_vocab = data[0] & 4 ? 300 : 0,
                                 .dedupe = (data[0] & 8) != 0};
    specrt_status status = sl_token_map_read_memory(data + 1, n - 1, "damaged", &o, &map, err);
    if (status) return status;
    damage_add(content, map.ids, (size_t)map.n * sizeof *map.ids);
    damage_add(content, map.counts, map.counts ? (size_t)map.n * sizeof *map.counts : 0);
    damage_add(content, map.kind, strlen(map.kind));
    damage_add(content, map.tokenizer_sha256, sizeof map.tokenizer_sha256);
    damage_add_int(content, map.n_vocab * 8 + map.n_dropped * 2 + map.was_offset);
    sl_token_map_free(&map);
    return status;
}

static const char config[] =
    "{\"architectures\":[\"LlamaForCausalLMEagle3\"],\"vocab_size\":9,\"tie_word_embeddings\":"
    "false,\"x\":null,\"rows\":4,"
    "\"transformer_layer_config\":{\"vocab_size\":8,\"hidden_size\":2,\"bias\":true}}";

/* config.json beside an EAGLE-3 head with a list. */
static specrt_status read_config(const void *bytes, size_t n, uint64_t *content,
                                 specrt_error *err) {
    static const char *const keys[] = {"vocab_size", "hidden_size", "rows",
                                       "bias",       "x",           "tie_word_embeddings"};
    checkpoint c = {0};
    token_map map = {0};
    damage_write_file(in_folder("config.json"), bytes, n);
    specrt_status status = sl_checkpoint_open(folder(), true, &c, err);
    if (!status) {
        damage_add_int(content, c.kind * 10000 + c.n_rows * 1000 + c.n_vocab);
        for (int i = 0; i < 6; i++) {
            damage_add_int(content, sl_checkpoint_number(&c, keys[i]));
            damage_add_int(content, sl_checkpoint_is_set(&c, keys[i]));
        }
        status = sl_checkpoint_map(&c, TOKEN_MAP_OFFSET, &map, err);
        damage_add(content, map.ids, (size_t)map.n * sizeof *map.ids);
        sl_token_map_free(&map);
    }
    sl_checkpoint_close(&c);
    damage_cut_folder(err->msg, "config.json");
    return status;
}

static void damage_config(void) {
    static const int64_t offsets[] = {5, 0, 0, 1};
    st_tensor tensors[] = {f32("d2t", 4, 0), f32("lm_head.weight", 4, 2),
                           f32("midlayer.self_attn.q_proj.weight", 2, 2)};
    strcpy(tensors[0].dtype, "I64");
    tensors[0].data = (const uint8_t *)offsets;
    tensors[0].bytes = sizeof offsets;
    put_st("model.safetensors", tensors, 3);
    damage_everywhere("config.json", config, sizeof config - 1, read_config);
    CHECK_INT(clear_folder(), 2);
}

TEST(damage, "of every byte of small token maps and a config.json") {
    LEFT_TO_ALL();
    static const char *const seeds[] = {"blocks",  "json", "mtplx",       "npy",
                                        "offsets", "text", "safetensors", NULL};
    damage_seeds("fuzz_token_map", seeds, read_map);
    damage_changes = 2;
    damage_config();
    approved_compare("tests/model/model_damage.exact");
}
