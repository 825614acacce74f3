/* test_list.c : the files of folders. */
#include "gather.h"

#include <unistd.h>

TEST(folder, "walks in name order, once, without hidden files") {
    const char *top = make_folder("walk");
    make_folder("walk/b");
    make_folder("walk/.git");
    put_text("walk/c.txt", "c ");
    put_text("walk/a.md", "a ");
    put_text("walk/b/x.py", "bx ");
    put_text("walk/b/y.jsonl", "{\"text\":\"by \"}");
    put_text("walk/.hidden", "no ");
    put_text("walk/.git/config", "no ");
    put_text("walk/d.bin", "1234");
    put_text("walk/e.png", "\x89PNG\r\n");
    put_text("walk/f.json", "{\"name\": \"package\"}");
    if (symlink("nothing", in_folder("walk/g")) || symlink("..", in_folder("walk/b/loop")) ||
        symlink("b", in_folder("walk/z")) || symlink("../c.txt", in_folder("walk/b/a-link")))
        test_fail(__FILE__, __LINE__, "symlink");
    REQUIRE(mkfifo(in_folder("walk/b/pipe"), 0600) == 0); /* passed over */
    gathered g = gather(top, NULL, 1);
    CHECK_INT(g.status, SPECRT_STATUS_OK);
    CHECK_STR(show(&g), "a |c |bx |by "); /* c.txt is met first through its link in b */
    CHECK_INT(g.stats.n_skipped_files, 4);
    CHECK_HAS(g.stats.skipped_examples[0], "walk/d.bin: token ids, not text");
    CHECK_HAS(g.stats.skipped_examples[1], "walk/e.png: a PNG image");
    CHECK_HAS(g.stats.skipped_examples[2], "walk/f.json:1: no known field; found name;");
    CHECK_HAS(g.stats.skipped_examples[3], "walk/g: a link to nothing");
    gather_free(&g);
    /* Without a folder in it, by whatever name; what is named itself is read all the same. */
    corpus_options without = {.exclude = in_folder("walk/z")};
    g = gather(top, &without, 1);
    CHECK_STR(show(&g), "a |c ");
    gather_free(&g);
    g = gather(in_folder("walk/b/x.py"), &without, 1);
    CHECK_STR(show(&g), "bx ");
    gather_free(&g);
    g = gather(make_folder("empty"), NULL, 1);
    CHECK_HAS(g.err.msg, "empty: expected files, found a folder without any");
    g = gather(in_folder("missing.txt"), NULL, 1);
    CHECK_INT(g.status, SPECRT_STATUS_IO);
    CHECK_HAS(g.err.msg, "missing.txt: cannot open: No such file");
    clear_folder();
}

/* More files than the set of seen ones has room for at first, one of them under 300 names more. */
TEST(many, "many files, and many names of one") {
    enum { N = 300 };
    char name[32];
    make_folder("many");
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "many/%03d.txt", i);
        put_text(name, "x");
        snprintf(name, sizeof name, "many/z%03d", i);
        if (link(in_folder("many/000.txt"), in_folder(name)) != 0)
            test_fail(__FILE__, __LINE__, "link");
    }
    gathered g = gather(in_folder("many"), NULL, 1);
    CHECK_INT(g.stats.n_files, N);
    CHECK_INT(g.n_text, N);
    gather_free(&g);
    clear_folder();
}

TEST(order, "the digest tells which file of the domain a text is in") {
    make_folder("order");
    put_text("order/a.txt", "x");
    put_text("order/b.txt", "y");
    gathered g = gather(in_folder("order"), NULL, 1);
    put_text("order/a.txt", "y");
    put_text("order/b.txt", "x");
    gathered swapped = gather(in_folder("order"), NULL, 1);
    CHECK(g.digest != swapped.digest);
    gather_free(&g);
    gather_free(&swapped);
    clear_folder();
}

TEST(sizes, "the sum of sizes, which a pipe among the files makes unknown") {
    const char *paths[2] = {in_folder("a.txt"), in_folder("pipe")};
    const corpus_options none = {0};
    corpus_stats stats;
    put_text("a.txt", "hello");
    REQUIRE(mkfifo(paths[1], 0600) == 0);
    for (int n = 1; n <= 2; n++) {
        corpus *c;
        specrt_error err;
        REQUIRE(sl_corpus_open(paths, n, &none, &c, &err) == SPECRT_STATUS_OK);
        sl_corpus_get_stats(c, &stats);
        CHECK_INT(stats.bytes_total, n == 1 ? 5 : 0);
        sl_corpus_close(c);
    }
    paths[0] = paths[1] = "-";
    corpus *c;
    specrt_error err;
    CHECK_INT(sl_corpus_open(paths, 2, &none, &c, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "standard input is given twice");
    clear_folder();
}
