/* test_id_ranges.c : ids of a flag or of a file. */
#include "base/io.h"
#include "counts/id_ranges.h"
#include "folder.h"
#include "test.h"

enum { N_VOCAB = 4096 };

/* `ids` as "5 7 8 ", or a part of the message. */
static void check(const char *text, const char *ids, specrt_status expected) {
    specrt_error err = {SPECRT_STATUS_OK, ""};
    id_list list;
    char out[256] = "";
    CHECK_INT(sl_id_ranges_read("--keep", text, N_VOCAB, &list, &err), expected);
    for (size_t i = 0; i < list.n && i < 20; i++) sprintf(out + strlen(out), "%d ", list.ids[i]);
    if (expected)
        CHECK_HAS(err.msg, ids);
    else
        CHECK_STR(out, ids);
    CHECK_INT(err.status, expected);
    free(list.ids);
}

static const struct {
    const char *text, *ids, *wrong;
} rows[] = {
    {"7", "7 ", NULL},
    {"9,5 7-8", "5 7 8 9 ", NULL},
    {" 5,, 5 4-6, 4095-4095 ", "4 5 6 4095 ", NULL},
    {"0-2", "0 1 2 ", NULL},
    {"", "", NULL},
    {"4096", NULL, "'4096'"},
    {"3, 4094-4096", NULL, "'4094-4096'"},
    {"5-4", NULL, "'5-4'"},
    {"5-", NULL, "'5-'"},
    {"1 -5", NULL, "'-5'"},
    {"5-7-9", NULL, "'5-7-9'"},
};

TEST(flags, "ids and ranges, ascending and distinct") {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].ids)
            check(rows[i].text, rows[i].ids, SPECRT_STATUS_OK);
        else
            check(rows[i].text, rows[i].wrong, SPECRT_STATUS_BAD_ARG);
    check("3,4096", "--keep: expected ids below 4096 as in 5,7-9, found '4096'",
          SPECRT_STATUS_BAD_ARG);
    check("0-4095", "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 ", SPECRT_STATUS_OK);
}

static void check_file(const char *text, const char *ids, specrt_status expected) {
    const char *path = in_folder("ids.txt");
    REQUIRE(sl_out_bytes(path, true, text, strlen(text), NULL) == SPECRT_STATUS_OK);
    check(path, ids, expected);
}

TEST(files, "the same in a file") {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].ids)
            check_file(rows[i].text, rows[i].ids, SPECRT_STATUS_OK);
        else
            check_file(rows[i].text, rows[i].wrong, SPECRT_STATUS_BAD_INPUT);
    check_file("3\r\n\t9\n4-5\n", "3 4 5 9 ", SPECRT_STATUS_OK);
    check_file("3\nx", "ids.txt: expected ids below 4096 as in 5,7-9, found 'x'",
               SPECRT_STATUS_BAD_INPUT);
    check_file("3:4", "found '3:4'", SPECRT_STATUS_BAD_INPUT);
    check_file("/", "found '/'", SPECRT_STATUS_BAD_INPUT);
    check(in_folder("none"), "none: cannot open", SPECRT_STATUS_IO);
    CHECK_INT(clear_folder(), 1);
}
