/* test_list.c : the files of folders. */
#include "gather.h"

#include <unistd.h>

static void case_folder(void) {
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
    gathered g = gather(top, NULL, 1);
    CHECK_INT(g.status, SPECRT_STATUS_OK);
    CHECK_STR(show(&g), "a |c |bx |by "); /* c.txt is met first through its link in b */
    CHECK_INT(g.stats.n_skipped_files, 4);
    CHECK_HAS(g.stats.skipped_examples[0], "walk/d.bin: token ids, not text");
    CHECK_HAS(g.stats.skipped_examples[1], "walk/e.png: a PNG image");
    CHECK_HAS(g.stats.skipped_examples[2], "walk/f.json:1: no known field; found name;");
    CHECK_HAS(g.stats.skipped_examples[3], "walk/g: a link to nothing");
    gather_free(&g);
    g = gather(make_folder("empty"), NULL, 1);
    CHECK_HAS(g.err.msg, "empty: expected files, found a folder without any");
    g = gather(in_folder("missing.txt"), NULL, 1);
    CHECK_INT(g.status, SPECRT_STATUS_IO);
    CHECK_HAS(g.err.msg, "missing.txt: cannot open: No such file");
    clear_folder();
}

static const test_case cases[] = {
    {"folder", "walks in name order, once, without hidden files", case_folder},
};
TEST_MAIN(cases)
