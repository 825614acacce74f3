/* test_vocab_groups.c : which groups of ids a list of blocks takes, and lists with a tokenizer's digest. */
#include "base/io.h"
#include "folder.h"
#include "model/vocab_groups.h"
#include "test.h"

enum { N_VOCAB = 700, N_RANKED = 6 }; /* five whole groups */
static const int32_t ranked[N_RANKED] = {400, 699, 200, 10, 11, 130};
static const uint64_t counts[N_RANKED] = {0, 0, 90, 50, 49, 5};
static const specrt_ranks_header header = {.n_vocab = N_VOCAB,
                                           .n_ranked = N_RANKED,
                                           .n_forced = 2, /* 699 is in no whole group */
                                           .n_valid = N_RANKED,
                                           .n_default = 300};
static const specrt_ranks ranks = {&header, ranked, counts};
static specrt_error err;

/* Groups of the map by number. */
static void check_groups(const token_map *map, const int32_t *numbers, int32_t n) {
    CHECK_INT(map->n, n * VOCAB_GROUP);
    for (int32_t i = 0; i < map->n && i < n * VOCAB_GROUP; i++)
        CHECK_INT(map->ids[i], numbers[i / VOCAB_GROUP] * VOCAB_GROUP + i % VOCAB_GROUP);
    CHECK(sl_vocab_groups_whole(map->ids, map->n));
}

TEST(choice, "forced groups first, then by count; the last one is whole or left out") {
    token_map map;
    REQUIRE(sl_vocab_groups(&ranks, 128, N_VOCAB, &map, &err) == SPECRT_STATUS_OK);
    check_groups(&map, (const int32_t[]){3}, 1); /* the forced one, never counted */
    sl_token_map_free(&map);
    REQUIRE(sl_vocab_groups(&ranks, 0, N_VOCAB, &map, &err) == SPECRT_STATUS_OK);
    check_groups(&map, (const int32_t[]){0, 3}, 2); /* 99 in two ids before 95 in two */
    sl_token_map_free(&map);
    REQUIRE(sl_vocab_groups(&ranks, 512, N_VOCAB, &map, &err) == SPECRT_STATUS_OK);
    check_groups(&map, (const int32_t[]){0, 1, 2, 3}, 4); /* 2 and 4 were never counted */
    sl_token_map_free(&map);
    REQUIRE(sl_vocab_groups(&ranks, 640, N_VOCAB, &map, &err) == SPECRT_STATUS_OK);
    check_groups(&map, (const int32_t[]){0, 1, 2, 3, 4}, 5);
    sl_token_map_free(&map);
    CHECK_INT(sl_vocab_groups(&ranks, 127, N_VOCAB, &map, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "size 127: expected at least 128");
    CHECK_INT(sl_vocab_groups(&ranks, 768, N_VOCAB, &map, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "at most 640");
}

TEST(whole, "aligned and complete groups") {
    int32_t ids[2 * VOCAB_GROUP];
    for (int32_t i = 0; i < 2 * VOCAB_GROUP; i++) ids[i] = i < VOCAB_GROUP ? i : i + VOCAB_GROUP;
    CHECK(sl_vocab_groups_whole(ids, 2 * VOCAB_GROUP));
    CHECK(!sl_vocab_groups_whole(ids, VOCAB_GROUP + 16));
    for (int32_t i = 0; i < VOCAB_GROUP; i++) ids[i]++;
    CHECK(!sl_vocab_groups_whole(ids, VOCAB_GROUP));
}

TEST(files, "what MTPLX and exllamav3 read comes back with the digest") {
    static const char *const formats[] = {"mtplx", "exllamav3"};
    token_map map, back;
    REQUIRE(sl_vocab_groups(&ranks, 0, N_VOCAB, &map, &err) == SPECRT_STATUS_OK);
    for (int i = 0; i < 32; i++) map.tokenizer_sha256[i] = (uint8_t)(7 * i);
    for (int i = 0; i < 2; i++) {
        const char *path = in_folder(formats[i]);
        REQUIRE(sl_token_map_write(&map, formats[i], path, NULL, true, &err) == SPECRT_STATUS_OK);
        REQUIRE(sl_token_map_read(path, NULL, &back, &err) == SPECRT_STATUS_OK);
        check_groups(&back, (const int32_t[]){0, 3}, 2);
        CHECK(memcmp(back.tokenizer_sha256, map.tokenizer_sha256, 32) == 0);
        sl_token_map_free(&back);
    }
    const token_map one = {.ids = (int32_t[]){0}, .n = 1, .n_vocab = 1};
    CHECK_INT(sl_token_map_write(&one, "eagle3-pt", in_folder("one"), NULL, true, &err), 0);
    map.ids[0] = 600; /* no group any more */
    CHECK_INT(sl_token_map_write(&map, "exllamav3", in_folder("x"), NULL, true, &err),
              SPECRT_STATUS_BAD_ARG);
    sl_token_map_free(&map);
    CHECK_INT(clear_folder(), 3);
}

TEST(cut_digest, "a digest that is cut at the end of the file, where nothing more may be read") {
    char *text = (char *)malloc(64);
    token_map map;
    memcpy(text, "# blocks of 16 token ids\n# tokenizer_sha256 0123456789abcdef0123", 64);
    CHECK_INT(sl_token_map_read_memory(text, 64, "x", NULL, &map, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "of 0 entries");
    free(text);
}

TEST(blocks, "16 ids for every entry") {
    const token_map_options o = {.values = TOKEN_MAP_BLOCKS, .n_vocab = 48};
    token_map map;
    REQUIRE(sl_token_map_read_memory("2 # last\n0\n", 11, "x", &o, &map, &err) == SPECRT_STATUS_OK);
    CHECK_INT(map.n, 32);
    CHECK(map.ids[0] == 32 && map.ids[15] == 47 && map.ids[16] == 0);
    sl_token_map_free(&map);
    CHECK_INT(sl_token_map_read_memory("3\n", 2, "x", &o, &map, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "expected an id in [0, 48)");
    CHECK_INT(sl_token_map_read_memory("[2]", 3, "x", &o, &map, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "--values blocks: expected a text list of blocks");
}

TEST(most_blocks, "a vocabulary has so many blocks, and no more") {
    LEFT_TO_ALL();
    const token_map_options o = {.values = TOKEN_MAP_BLOCKS};
    const size_t most = SPECRT_MAX_VOCAB / 16;
    char *text = (char *)malloc(9 * (most + 1) + 1), *end = text;
    token_map map;
    REQUIRE(text);
    for (size_t i = 0; i < most; i++) end += sprintf(end, "%zu\n", i);
    REQUIRE(!sl_token_map_read_memory(text, (size_t)(end - text), "x", &o, &map, &err));
    CHECK_INT(map.n, SPECRT_MAX_VOCAB);
    CHECK_INT(map.ids[SPECRT_MAX_VOCAB - 1], SPECRT_MAX_VOCAB - 1);
    sl_token_map_free(&map);
    end += sprintf(end, "0\n");
    CHECK_INT(sl_token_map_read_memory(text, (size_t)(end - text), "x", &o, &map, &err),
              SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "more blocks than a vocabulary has");
    free(text);
}
