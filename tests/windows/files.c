/* files.c : files by paths in UTF-8, what is no regular file, files of costs, and the worker's thread,
 * on Windows. */
#include "core/os.h"
#include "specrt_adapt.h"
#include "fixture.h"
#include "test.h"
#include "windows/folder.h"

static specrt_error err;

static void put_file(const char *path, const void *bytes, size_t n) {
    REQUIRE(specrt__os_replace(path, (const char *)bytes, n));
}

TEST(bundle, "a bundle by a name of letters that no code page has together") {
    specrt_bundle *bundle;
    specrt_ranks ranks;
    size_t n;
    const char *path =
        windows_path("r\xc3\xa4nge \xd0\xbb\xd0\xb8\xd1\x81\xd1\x82 \xe8\xa1\xa8.specb");
    uint8_t *bytes = fixture_all_sections(60, 8, 8, &n);
    put_file(path, bytes, n);
    CHECK_INT(specrt_bundle_open(path, NULL, &bundle, &err), SPECRT_STATUS_OK);
    CHECK_STR(err.msg, "");
    CHECK_INT(specrt_bundle_ranks(bundle, &ranks, &err), SPECRT_STATUS_OK);
    specrt_bundle_close(bundle);
    free(bytes);
    windows_remove(path);
}

TEST(refused, "nothing, a folder, a device, a path that is no UTF-8") {
    const char *empty = windows_path("empty");
    specrt_bundle *bundle = NULL;
    put_file(empty, "", 0);
    CHECK(specrt_bundle_open(empty, NULL, &bundle, &err) != SPECRT_STATUS_OK && !bundle);
    windows_remove(empty);
    CHECK_INT(specrt_bundle_open(windows_path("nothing"), NULL, &bundle, &err), SPECRT_STATUS_IO);
    CHECK_HAS(err.msg, "nothing: ");
    CHECK_INT(specrt_bundle_open(windows_path("."), NULL, &bundle, &err), SPECRT_STATUS_IO);
    CHECK_INT(specrt_bundle_open("NUL", NULL, &bundle, &err), SPECRT_STATUS_IO);
    CHECK_INT(specrt_bundle_open("\xff.specb", NULL, &bundle, &err), SPECRT_STATUS_IO);
    CHECK_HAS(err.msg, "expected a path in UTF-8");
}

TEST(replace, "what another file replaces is there as a whole, and no other file stays behind") {
    specrt__os_map map;
    const char *path = windows_path("costs \xc3\xa9");
    put_file(path, "first", 5);
    put_file(path, "second", 6);
    REQUIRE(specrt__os_map_open(path, &map, &err) == SPECRT_STATUS_OK);
    CHECK(map.n == 6 && memcmp(map.bytes, "second", 6) == 0);
    CHECK(!specrt__os_replace(windows_path("no/such/folder"), "x", 1));
    specrt__os_map_close(&map);
    windows_remove(path);
}

TEST(costs, "where costs are kept, and the clock") {
    char path[SPECRT_COSTS_PATH];
    specrt_costs_path(windows_path("pair.specb"), "key", path);
    CHECK_HAS(path, "pair.specb.");
    specrt_costs_path(NULL, "key", path);
    CHECK_HAS(path, "/specrt/");
    double before = specrt__os_seconds();
    specrt__os_yield();
    CHECK(specrt__os_seconds() >= before && specrt__os_processors() >= 1);
}

typedef struct counted {
    specrt_task task;
    int *sum, number;
} counted;

static void count(specrt_task *task) {
    counted *c = (counted *)task;
    *c->sum = 10 * *c->sum + c->number;
}

TEST(worker, "tasks run in their order, all before close() returns") {
    specrt_worker *worker;
    int sum = 0;
    counted tasks[5];
    REQUIRE(specrt_worker_create(NULL, &worker, &err) == SPECRT_STATUS_OK);
    for (int i = 0; i < 5; i++) {
        tasks[i] = (counted){.sum = &sum, .number = i + 1};
        tasks[i].task.run = count;
        specrt_worker_submit(worker, &tasks[i].task);
    }
    specrt_worker_close(worker);
    CHECK_INT(sum, 12345);
}
