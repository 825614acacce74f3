/* test_input.c : which flags of tools that count a corpus may stand together. */
#include "counts/input.h"
#include "test.h"

TEST(check, "every pair of flags") {
    static const struct {
        const char *corpus, *merge; /* a path each; NULL: none */
        counts_input in;
        int code;
    } rows[] = {
        {"a", NULL, {.tokenizer = "t"}, -1},
        {NULL, "a", {0}, -1},
        {"a", "b", {.tokenizer = "t"}, -1},
        {NULL, NULL, {.tokenizer = "t"}, CLI_USAGE},
        {"a", NULL, {0}, CLI_USAGE},
        {"a", NULL, {.tokenizer = "none"}, CLI_USAGE},
        {"a", NULL, {.tokenizer = "none", .n_vocab = 5}, -1},
        {NULL, "a", {.tokenizer = "none"}, -1},
        {"-", NULL, {.tokenizer = "t"}, -1},
        {NULL, "-", {0}, -1},
        {"-", "-", {.tokenizer = "t"}, CLI_USAGE},
        {"a", NULL, {.tokenizer = "t", .messages = "all"}, -1},
        {"a", NULL, {.tokenizer = "t", .messages = "assistant"}, -1},
        {"a", NULL, {.tokenizer = "t", .messages = "user"}, CLI_USAGE},
        {"a", NULL, {.tokenizer = "t", .id_bytes = 2}, -1},
        {"a", NULL, {.tokenizer = "t", .id_bytes = 4}, -1},
        {"a", NULL, {.tokenizer = "t", .id_bytes = 3}, CLI_USAGE},
        {"a", NULL, {.tokenizer = "t", .field = "a.b"}, -1},
        {"a", NULL, {.tokenizer = "t", .field = "a\tb"}, CLI_USAGE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *corpus[] = {"other", rows[i].corpus}, *merge[] = {rows[i].merge};
        const cli_list corpora = {corpus, rows[i].corpus ? 2 : 0};
        const cli_list merged = {merge, rows[i].merge ? 1 : 0};
        counts_input in = rows[i].in;
        in.corpus = &corpora, in.merge = &merged;
        if (sl_counts_input_check(&in) != rows[i].code) test_fail(__FILE__, (int)i, "row");
    }
}
