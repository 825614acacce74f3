/* bench_tokenizer.c : tokenise and count, MB of text per second, the best of several runs.
 *
 *     bench_tokenizer [TOKENIZER FILE...]
 *
 * A FILE that ends in .json is an array of {"output": text}, each text a document; any other is one
 * document. Without arguments: Llama-3 over the answers in the data folder. */
#include <dirent.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/io.h"
#include "base/measure.h"
#include "base/parallel.h"
#include "tokenizer/tokenizer.h"

#define REPEATS     7
#define MAX_THREADS 2

typedef struct document {
    char *text;
    size_t n;
} document;

typedef struct bench {
    tokenizer *tok;
    document *docs;
    size_t n_docs, n_bytes;
    int threads;
    bool encode;
    tok_worker *workers[MAX_THREADS];
    uint64_t *counts[MAX_THREADS], n_tokens[MAX_THREADS];
    id_list ids[MAX_THREADS];
    uint64_t checksum;
} bench;

static void add_document(bench *b, const char *text, size_t n) {
    document *docs = realloc(b->docs, (b->n_docs + 1) * sizeof *docs);
    if (!docs) exit(1);
    b->docs = docs;
    docs[b->n_docs++] = (document){memcpy(malloc(n + 1), text, n), n};
    b->n_bytes += n;
}

static void add_file(bench *b, const char *path) {
    size_t n = strlen(path);
    if (n < 5 || strcmp(path + n - 5, ".json") != 0) {
        file_view file;
        if (sl_file_map(path, &file, NULL)) return;
        add_document(b, (const char *)file.bytes, file.n);
        sl_file_unmap(&file);
        return;
    }
    json_object *array = json_object_from_file(path), *output;
    for (size_t i = 0; array && i < json_object_array_length(array); i++)
        if (json_object_object_get_ex(json_object_array_get_idx(array, i), "output", &output))
            add_document(b, json_object_get_string(output),
                         (size_t)json_object_get_string_len(output));
    json_object_put(array);
}

static void add_folder(bench *b, const char *folder) {
    struct dirent **names;
    int n = scandir(folder, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[8192 + 260];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        if (strstr(names[i]->d_name, ".json")) add_file(b, path);
        free(names[i]);
    }
    if (n >= 0) free(names);
}

/* Each thread its share of the documents, all of its own memory. */
static void work(void *arg, int thread) {
    bench *b = arg;
    size_t first = b->n_docs * (size_t)thread / (size_t)b->threads;
    size_t last = b->n_docs * (size_t)(thread + 1) / (size_t)b->threads;
    for (size_t i = first; i < last; i++) {
        document doc = b->docs[i];
        b->ids[thread].n = 0;
        if (b->encode)
            sl_tok_encode(b->workers[thread], doc.text, doc.n, &b->ids[thread]);
        else
            sl_tok_count(b->workers[thread], doc.text, doc.n, b->counts[thread],
                         &b->n_tokens[thread]);
        b->n_tokens[thread] += b->ids[thread].n;
    }
}

static void read_all(void *arg, int thread) {
    bench *b = arg;
    uint64_t sum = 0, word;
    (void)thread;
    for (size_t i = 0; i < b->n_docs; i++)
        for (size_t p = 0; p + 8 <= b->docs[i].n; p += 8) {
            memcpy(&word, b->docs[i].text + p, 8);
            sum += word;
        }
    b->checksum += sum;
}

static double best_seconds(bench *b, int threads, void (*task)(void *, int)) {
    double best = 1e9;
    b->threads = threads;
    for (int r = 0; r < REPEATS; r++) {
        double begin = sl_measure_seconds();
        sl_parallel_run(threads, task, b);
        double seconds = sl_measure_seconds() - begin;
        if (seconds < best) best = seconds;
    }
    return best;
}

/* Cold: new workers, whose caches are empty. */
static double cold_seconds(bench *b) {
    double best = 1e9;
    b->threads = 1;
    for (int r = 0; r < REPEATS; r++) {
        sl_tok_worker_free(b->workers[0]);
        sl_tok_worker_create(b->tok, &b->workers[0], NULL);
        double begin = sl_measure_seconds();
        work(b, 0);
        double seconds = sl_measure_seconds() - begin;
        if (seconds < best) best = seconds;
    }
    return best;
}

static void report(const bench *b, const char *what, double seconds) {
    printf("%-28s %8.1f MB/s  %6.2f ns/token\n", what, (double)b->n_bytes / seconds / 1e6,
           seconds * 1e9 / (double)b->checksum);
}

int main(int argc, char **argv) {
    bench b = {0};
    specrt_error err;
    char path[8192];
    const char *data = getenv("SPECRT_DATA");
    if (!data || !*data) data = "../shared/data";
    snprintf(path, sizeof path, "%s/tokenizers/llama3/tokenizer.model", data);
    double begin = sl_measure_seconds();
    if (sl_tokenizer_open(argc > 1 ? argv[1] : path, &b.tok, &err)) {
        printf("skipped: %s\n", err.msg);
        return 0;
    }
    double open_seconds = sl_measure_seconds() - begin;
    for (int i = 2; i < argc; i++) add_file(&b, argv[i]);
    snprintf(path, sizeof path, "%s/generations/llama3", data);
    if (argc < 3) add_folder(&b, path);
    for (int i = 0; i < MAX_THREADS; i++) {
        b.counts[i] = calloc((size_t)sl_tokenizer_n_vocab(b.tok), sizeof(uint64_t));
        sl_tok_worker_create(b.tok, &b.workers[i], NULL);
    }
    double floor_seconds = best_seconds(&b, 1, read_all);
    b.n_tokens[0] = 0;
    b.threads = 1;
    work(&b, 0);
    b.checksum = b.n_tokens[0];
    printf("%s: %zu documents, %.1f MB, %llu tokens; opened in %.0f ms\n", sl_tokenizer_name(b.tok),
           b.n_docs, (double)b.n_bytes / 1e6, (unsigned long long)b.checksum, open_seconds * 1e3);
    report(&b, "floor (reading the bytes)", floor_seconds);
    report(&b, "count, 1 thread, new worker", cold_seconds(&b));
    report(&b, "count, 1 thread", best_seconds(&b, 1, work));
    report(&b, "count, 2 threads", best_seconds(&b, 2, work));
    b.encode = true;
    report(&b, "encode, 1 thread", best_seconds(&b, 1, work));
    report(&b, "encode, 2 threads", best_seconds(&b, 2, work));
    return 0;
}
