/* test_stream.c : packed files and pipes. */
#include "gather.h"

#include <sys/wait.h>
#include <unistd.h>

TEST(damaged, "packed data cut, damaged, followed by something") {
    draw_state = 3;
    size_t n = 400000, m;
    char *text = make_text(n);
    for (int i = 0; i < 2; i++) {
        const char *codec = i ? "zst" : "gz";
        uint8_t *packed = pack(codec, text, n, n / 2, &m);
        gathered g = gather_memory("x.txt.gz", packed, m - 5, NULL);
        CHECK_INT(g.status, SPECRT_STATUS_BAD_INPUT);
        CHECK_HAS(g.err.msg, "the file is cut short");
        gather_free(&g);
        memset(packed + m / 3, 0x5A, 16);
        g = gather_memory("x.txt.gz", packed, m, NULL);
        CHECK_INT(g.status, SPECRT_STATUS_BAD_INPUT);
        CHECK_HAS(g.err.msg, i ? "x.txt.gz: zstd data at byte" : "x.txt.gz: gzip data at byte");
        gather_free(&g);
        free(packed);
        packed = pack(codec, "hello", 5, 5, &m);
        packed[m] = 'x', packed[m + 1] = 'y';
        g = gather_memory("x.txt", packed, m + 2, NULL);
        CHECK_INT(g.status, SPECRT_STATUS_BAD_INPUT);
        gather_free(&g);
        memset(packed + m, 0, 2);
        g = gather_memory("x.txt", packed, m + 2, NULL);
        CHECK_INT(g.status,
                  i ? SPECRT_STATUS_BAD_INPUT : SPECRT_STATUS_OK); /* gzip may be padded */
        gather_free(&g), free(packed);
    }
    free(text);
    for (size_t at = (1u << 18) - 3; at < (1u << 18) + 2;
         at++) { /* what is read at once ends there */
        uint8_t *two = (uint8_t *)calloc(at + 64, 1);
        uint8_t *first = pack("gz", "one", 3, 3, &m), *second = pack("gz", "two", 3, 3, &n);
        memcpy(two, first, m), memcpy(two + at, second, n);
        gathered g = gather_memory("x.txt", two, at + n, NULL);
        CHECK_STR(g.status ? g.err.msg : show(&g), "onetwo");
        gather_free(&g), free(two), free(first), free(second);
    }
    gathered g = gather_string("plain.txt.gz", "not packed", NULL);
    CHECK_STR(show(&g), "not packed");
    gather_free(&g);
}

/* A child writes into our standard input. */
static gathered gather_pipe(const void *bytes, size_t n, const char *path) {
    int ends[2], saved = dup(STDIN_FILENO);
    REQUIRE(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        const char *p = (const char *)bytes;
        for (size_t at = 0; at < n;) {
            ssize_t m = write(ends[1], p + at, n - at < 5000 ? n - at : 5000);
            if (m < 0) _exit(1);
            at += (size_t)m;
        }
        _exit(0);
    }
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    gathered g = gather(path, NULL, 1);
    dup2(saved, STDIN_FILENO);
    close(saved);
    waitpid(child, NULL, 0);
    return g;
}

TEST(pipe, "standard input, packed too") {
    draw_state = 5;
    size_t n = 2000000, m;
    char *text = make_text(n);
    gathered plain = gather_memory("x.txt", text, n, NULL);
    gathered g = gather_pipe(text, n, "-");
    CHECK(g.status == SPECRT_STATUS_OK && g.sum == plain.sum && g.digest == plain.digest);
    CHECK_INT(g.stats.bytes_total, 0);
    CHECK_INT(g.stats.bytes_read, n);
    gather_free(&g);
    uint8_t *packed = pack("zst", text, n, 700000, &m);
    g = gather_pipe(packed, m, "/dev/stdin");
    CHECK(g.status == SPECRT_STATUS_OK && g.sum == plain.sum);
    gather_free(&g), gather_free(&plain), free(packed), free(text);
    static const char json[] = "{\"output\":\"a\"}\n{\"output\":\"b\"}\n";
    g = gather_pipe(json, sizeof json - 1, "-");
    CHECK_STR(show(&g), "a!|b!");
    gather_free(&g);
}
