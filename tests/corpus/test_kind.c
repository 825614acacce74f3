/* test_kind.c : what is text and what is not. */
#include "gather.h"

static void case_bad_files(void) {
    check_fails("x.txt",
                "\x7F"
                "ELF\2\1\1",
                "x.txt: an ELF program");
    check_fails("x",
                "\xFF\xFE"
                "a",
                "x: UTF-16 text");
    check_fails("x.npy", "\x93NUMPY", "x.npy: token ids, not text");
}

static void case_nuls(void) {
    char text[4000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = i % 10 ? 'a' : '\0';
    check_bytes(text, sizeof text, text, sizeof text, 0);
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 7);
    gathered g = gather_memory("x.txt", text, sizeof text, NULL);
    CHECK_HAS(g.err.msg, "x.txt: binary data, not text");
    gather_free(&g);
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof text; i += 100) memcpy(text + i, "\1\0\xE3", 3); /* as in .pyc */
    g = gather_memory("x.txt", text, sizeof text, NULL);
    CHECK_HAS(g.err.msg, "x.txt: binary data, not text");
    gather_free(&g);
}

static const test_case cases[] = {
    {"bad-files", "files that hold no text say what they are", case_bad_files},
    {"nuls", "text with NULs is text, binary data is not", case_nuls},
};
TEST_MAIN(cases)
