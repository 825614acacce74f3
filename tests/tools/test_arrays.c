/* test_arrays.c : training examples in the arrays of another program: the same from every form they may
 * have, and one clear line for every fault. */
#include "fixture.h"
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"
#include "formats/safetensors.h"
#include "tools/cluster-build/examples.h"

enum { N = 150, WIDTH = 12, N_VOCAB = 40, K = 3 };

/* One array in the making. */
typedef struct item {
    const char *name, *type; /* "F16", "BF16", "F32", "I32", "I64" */
    int n_dims;
    int64_t shape[2];
    uint8_t *bytes;
    size_t n_bytes;
} item;

static char path[64];
static float hidden[N * WIDTH], logits[N * N_VOCAB], probs[N * K];
static int64_t tokens[N], levels[N], documents[N], top[N * K];
static specrt_error err;

/* Numbers that f16 and bf16 hold exactly. */
static void fill(void) {
    uint64_t state = 11;
    for (int i = 0; i < N * WIDTH; i++)
        hidden[i] = (float)((int)(fixture_random(&state) >> 60) - 8) / 4;
    for (int i = 0; i < N; i++) {
        float *row = logits + i * N_VOCAB;
        tokens[i] = i % N_VOCAB;
        levels[i] = i % 3;
        documents[i] = 1000 - i / 10;
        for (int j = 0; j < N_VOCAB; j++) row[j] = (float)((i * 7 + j * 11) % N_VOCAB) / 8;
        double sum = 0;
        for (int j = 0; j < N_VOCAB; j++) sum += exp((double)row[j]);
        for (int k = 0; k < K; k++) {
            int best = 0;
            while ((i * 7 + best * 11) % N_VOCAB != N_VOCAB - 1 - k) best++;
            top[i * K + k] = best;
            probs[i * K + k] = (float)(exp((double)row[best]) / sum);
        }
    }
}

static void put(uint8_t *at, const char *type, double x) {
    float f = (float)x;
    int32_t word = (int32_t)x;
    int64_t wide = (int64_t)x;
    uint32_t bits;
    uint16_t half;
    memcpy(&bits, &f, 4);
    specrt_to_f16(&f, 1, &half);
    if (strcmp(type, "BF16") == 0) half = (uint16_t)(bits >> 16);
    if (type[0] == 'I')
        memcpy(at, type[1] == '3' ? (void *)&word : (void *)&wide, type[1] == '3' ? 4 : 8);
    else if (type[1] == '3')
        memcpy(at, &f, 4);
    else
        memcpy(at, &half, 2);
}

static item make(const char *name, const char *type, const float *reals, const int64_t *ints,
                 int64_t n_cols) {
    size_t n = (size_t)(N * (n_cols ? n_cols : 1));
    size_t bytes = type[1] == '6' ? 8 : type[1] == '3' ? 4 : 2;
    item out = {name, type, n_cols ? 2 : 1, {N, n_cols}, malloc(n * bytes), n * bytes};
    for (size_t i = 0; i < n; i++)
        put(out.bytes + i * bytes, type, reals ? (double)reals[i] : (double)ints[i]);
    return out;
}

static void write_npy(const item *x) {
    char name[128], header[128];
    int word = x->type[1] == '6' ? 8 : x->type[1] == '3' ? 4 : 2;
    snprintf(name, sizeof name, "%s/%s.npy", path, x->name);
    snprintf(header, sizeof header, "{'descr': '<%c%d', 'fortran_order': False, 'shape': (%d, ",
             x->type[0] == 'I' ? 'i' : 'f', word, (int)x->shape[0]);
    if (x->n_dims > 1) snprintf(header + strlen(header), 16, "%d", (int)x->shape[1]);
    strcat(header, "), }\n");
    FILE *f = fopen(name, "wb");
    REQUIRE(f != NULL);
    fprintf(f, "\x93NUMPY\x01");
    fputc(0, f);
    fputc((int)strlen(header), f);
    fputc(0, f);
    fputs(header, f);
    fwrite(x->bytes, 1, x->n_bytes, f);
    fclose(f);
}

/* Reads the items as a folder of .npy files, or as one safetensors file; frees them. */
static specrt_status read_items(item *items, int n, bool folder, const examples_model *of,
                                example_set *set) {
    st_tensor tensors[8];
    char name[128];
    snprintf(path, sizeof path, "/tmp/specrt-arrays-%d", (int)getpid());
    if (folder) mkdir(path, 0700);
    for (int i = 0; i < n; i++) {
        if (folder) write_npy(&items[i]);
        tensors[i] = (st_tensor){.name = items[i].name,
                                 .n_dims = items[i].n_dims,
                                 .shape = {items[i].shape[0], items[i].shape[1]},
                                 .data = items[i].bytes,
                                 .bytes = items[i].n_bytes};
        snprintf(tensors[i].dtype, sizeof tensors[i].dtype, "%s", items[i].type);
    }
    out_file out;
    if (!folder)
        REQUIRE(!sl_out_open(&out, path, true, &err) &&
                !sl_st_write(tensors, n, NULL, 0, &out, &err) && !sl_out_commit(&out, &err));
    specrt_status status = examples_read_arrays(path, of, set, &err);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s/%s.npy", path, items[i].name);
        if (folder) unlink(name);
        free(items[i].bytes);
    }
    if (folder)
        rmdir(path);
    else
        unlink(path);
    return status;
}

static const examples_model dynaspec = {.n_state = WIDTH,
                                        .n_ids = N_VOCAB,
                                        .n_least = N_VOCAB,
                                        .n_most = N_VOCAB,
                                        .n_embedding_rows = N_VOCAB};

/* --- what is read --- */

static void check_set(const example_set *set) {
    CHECK_INT(set->n, N);
    REQUIRE(set->n_top == K);
    for (int i = 0; i < N; i++) {
        CHECK(set->tokens[i] == tokens[i] && set->levels[i] == levels[i]);
        CHECK_INT(set->documents[i] == set->documents[0], i < 10);
        for (int j = 0; j < WIDTH; j++) {
            uint16_t half;
            specrt_to_f16(&hidden[i * WIDTH + j], 1, &half);
            CHECK_INT(set->states[i * WIDTH + j], half);
        }
        for (int k = 0; k < K; k++) {
            CHECK_INT(set->top[i * K + k], top[i * K + k]);
            CHECK_NEAR((double)set->mass[i * K + k], (double)probs[i * K + k], 1e-6);
        }
    }
}

static void test_forms(void) {
    static const char *const reals[] = {"F16", "F32", "BF16"};
    fill();
    for (int form = 0; form < 12; form++) {
        const char *real = reals[form / 4], *whole = form & 1 ? "I32" : "I64";
        bool folder = form & 2;
        if (folder && form / 4 == 2) continue; /* .npy has no bf16 */
        item items[] = {
            make("hidden", real, hidden, NULL, WIDTH), make("tokens", whole, NULL, tokens, 0),
            make("levels", whole, NULL, levels, 0),    make("documents", whole, NULL, documents, 0),
            make("top_ids", whole, NULL, top, K),      make("top_probs", "F32", probs, NULL, K)};
        example_set set = {0};
        CHECK_INT(read_items(items, 6, folder, &dynaspec, &set), SPECRT_STATUS_OK);
        check_set(&set);
        examples_free(&set);
    }
}

/* The best of logits, as many as examples before them have; files of equal numbers stay apart. */
static void test_logits(void) {
    example_set set = {0};
    item first[] = {
        make("hidden", "F16", hidden, NULL, WIDTH),   make("tokens", "I32", NULL, tokens, 0),
        make("levels", "I32", NULL, levels, 0),       make("top_ids", "I32", NULL, top, K),
        make("documents", "I32", NULL, documents, 0), make("top_probs", "F32", probs, NULL, K)};
    REQUIRE(!read_items(first, 6, false, &dynaspec, &set));
    item second[] = {
        make("hidden", "F32", hidden, NULL, WIDTH), make("tokens", "I32", NULL, tokens, 0),
        make("logits", "F16", logits, NULL, N_VOCAB), make("documents", "I32", NULL, documents, 0)};
    REQUIRE(!read_items(second, 4, true, &dynaspec, &set));
    CHECK_INT(set.n, 2 * N);
    CHECK(memcmp(set.top, set.top + N * K, N * K * sizeof *set.top) == 0);
    for (int i = 0; i < N * K; i++)
        CHECK_NEAR((double)set.mass[i], (double)set.mass[N * K + i], 1e-6);
    CHECK(set.documents[0] != set.documents[N]);
    examples_free(&set);
    item alone[] = {make("hidden", "F32", hidden, NULL, WIDTH),
                    make("logits", "BF16", logits, NULL, N_VOCAB)};
    examples_model coral = dynaspec;
    coral.n_embedding_rows = 0;
    REQUIRE(!read_items(alone, 2, false, &coral, &set));
    CHECK_INT(set.n_top, 10);
    CHECK(set.documents[0] == set.documents[63] && set.documents[63] != set.documents[64]);
    examples_free(&set);
}

/* --- what is refused --- */

typedef struct fault {
    const char *what;
    void (*make)(item *items);
    const char *message;
} fault;

static void make_short(item *x) {
    x[1].shape[0] = N - 1, x[1].n_bytes -= 4;
}
static void make_nan(item *x) {
    x[0].bytes[7 * WIDTH * 2] = 0, x[0].bytes[7 * WIDTH * 2 + 1] = 0x7e;
}
static void make_infinite(item *x) {
    x[0].bytes[0] = 0, x[0].bytes[1] = 0x7c;
}
static void make_token(item *x) {
    put(x[1].bytes + 4 * 5, "I32", N_VOCAB);
}
static void make_id(item *x) {
    put(x[2].bytes + 4 * (9 * K + 1), "I32", N_VOCAB);
}
static void make_below(item *x) {
    put(x[2].bytes, "I32", -2);
}
static void make_nameless(item *x) {
    x[2].name = "best";
}
static void make_headless(item *x) {
    x[0].name = "states";
}
static void make_tokenless(item *x) {
    x[1].name = "ids";
}
static void make_flat(item *x) {
    x[2].n_dims = 1, x[2].shape[0] *= K;
}
static void make_real(item *x) {
    x[1].type = "F32";
}
static void make_whole(item *x) {
    x[0].type = "I32", x[0].shape[1] /= 2;
}

static void test_faults(void) {
    static const fault faults[] = {
        {"rows", make_short, ": tokens: expected the 150 rows of hidden, found 149"},
        {"NaN", make_nan, ": hidden: row 7: expected numbers from -65504 to 65504, found nan"},
        {"infinity", make_infinite, ": hidden: row 0: expected numbers from -65504 to 65504"},
        {"token", make_token, ": tokens: row 5: expected 0 to 39, found 40"},
        {"id", make_id, ": top_ids: row 9: expected -1 to 39, found 40"},
        {"below", make_below, ": top_ids: row 0: expected -1 to 39, found -2"},
        {"no labels", make_nameless, ": top_ids or logits: missing"},
        {"no states", make_headless, ": hidden: missing"},
        {"no tokens", make_tokenless, ": tokens: missing"},
        {"dimensions", make_flat, ": top_ids: expected 2 dimensions in C order, found 1"},
        {"reals for ids", make_real, ": tokens: expected i32 or i64, found "},
        {"ids for reals", make_whole, ": hidden: expected f16, bf16 or f32, found "}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        for (int folder = 0; folder < 2; folder++) {
            item items[] = {make("hidden", "F16", hidden, NULL, WIDTH),
                            make("tokens", "I32", NULL, tokens, 0),
                            make("top_ids", "I32", NULL, top, K)};
            example_set set = {0};
            faults[i].make(items);
            CHECK_INT(read_items(items, 3, folder, &dynaspec, &set), SPECRT_STATUS_BAD_INPUT);
            CHECK_HAS(err.msg, faults[i].message);
            examples_free(&set);
        }
}

static void test_widths(void) {
    example_set set = {.n_top = K + 1};
    item items[] = {make("hidden", "F16", hidden, NULL, WIDTH),
                    make("tokens", "I32", NULL, tokens, 0), make("top_ids", "I32", NULL, top, K)};
    CHECK_INT(read_items(items, 3, false, &dynaspec, &set), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "top_ids: expected 4 columns, as the examples before, found 3");
    item wide[] = {make("hidden", "F16", hidden, NULL, WIDTH),
                   make("tokens", "I32", NULL, tokens, 0),
                   make("logits", "F32", logits, NULL, N_VOCAB - 1)};
    CHECK_INT(read_items(wide, 3, false, &dynaspec, &set), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "logits: expected 40 columns, one for each token, found 39");
    item both[] = {make("hidden", "F16", hidden, NULL, WIDTH),
                   make("tokens", "I32", NULL, tokens, 0), make("top_ids", "I32", NULL, top, K),
                   make("logits", "F32", logits, NULL, N_VOCAB)};
    CHECK_INT(read_items(both, 4, false, &dynaspec, &set), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "expected logits alone, or top_ids");
    examples_model wider = dynaspec;
    wider.n_state++;
    item narrow[] = {make("hidden", "F16", hidden, NULL, WIDTH),
                     make("tokens", "I32", NULL, tokens, 0), make("top_ids", "I32", NULL, top, K)};
    CHECK_INT(read_items(narrow, 3, true, &wider, &set), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "hidden: expected 13 columns, the head's, found 12");
    CHECK_INT(examples_read_arrays("a/hidden.npy", &dynaspec, &set, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "a/hidden.npy: expected the folder of hidden.npy");
    CHECK_INT(examples_read_arrays("/nowhere", &dynaspec, &set, &err), SPECRT_STATUS_IO);
    examples_free(&set);
}

static const test_case cases[] = {
    {"forms", "f16, bf16, f32, i32 and i64, as .npy and as safetensors, give the same", test_forms},
    {"logits", "the best of logits, and several files", test_logits},
    {"faults", "what is missing, misshapen or out of range, by name and row", test_faults},
    {"widths", "widths that do not fit each other or the model", test_widths},
};
TEST_MAIN(cases)
