/* test_null_arguments.c : NULL for an argument that a function needs is refused by name, or does nothing. The
 * functions and their pointers are read from the headers, so that a new one without a line here is a failure.
 * Functions of sessions and of verification have their own tests. */
#include <ctype.h>
#include "specrt_tools.h"
#include "specrt_adapt.h"
#include "specrt_block.h"
#include "fixture.h"
#include "test.h"

/* --- what the headers declare --- */

enum { MAX_FUNCTIONS = 200, MAX_ARGUMENTS = 8, NAME = 48 };

typedef struct function {
    char name[NAME], arguments[MAX_ARGUMENTS][NAME]; /* pointers that must not be NULL */
    int n_arguments;
    int called;
} function;

static function functions[MAX_FUNCTIONS];
static int n_functions;

/* Pointers that may be NULL, beside env and err. */
static const char *const optional[] = {
    "specrt_head_bind bundle",    "specrt_policy_create bundle",
    "specrt_bundle_hnsw head",    "specrt_head_check_states relative_rms",
    "specrt_tree_create params",  "specrt_stock_create params",
    "specrt_align_create params", "specrt_align_gradient loss",
    "specrt_trace_check sha256",  "specrt_trace_writer_create user",
    "specrt_advise ties",         "specrt_policy_preset text",
    "specrt_costs_path bundle",   "specrt_costs_parse key",
    "specrt_costs_read key",
};

static const char *const elsewhere[] = {"specrt_session_", "specrt_verifier_", "specrt_verify_",
                                        "specrt_host_",    "specrt_generate",
#if !defined(SPECRT_WORKER) /* where there are no threads */
                                        "specrt_worker_"
#endif
};

static int is_optional(const char *name, const char *argument) {
    size_t n = strlen(name);
    if (strcmp(argument, "env") == 0 || strcmp(argument, "err") == 0) return 1;
    if (n > 6 && strcmp(name + n - 6, "_close") == 0) return 1;
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        if (strncmp(optional[i], name, n) == 0 && optional[i][n] == ' ' &&
            strcmp(optional[i] + n + 1, argument) == 0)
            return 1;
    return 0;
}

/* The identifier that ends before `end`. */
static void last_word(const char *begin, const char *end, char out[NAME]) {
    while (end > begin && !isalnum((unsigned char)end[-1]) && end[-1] != '_') end--;
    const char *at = end;
    while (at > begin && (isalnum((unsigned char)at[-1]) || at[-1] == '_')) at--;
    snprintf(out, NAME, "%.*s", (int)(end - at), at);
}

static void read_parameter(function *f, const char *begin, const char *end) {
    const char *star = (const char *)memchr(begin, '*', (size_t)(end - begin));
    const char *bracket = (const char *)memchr(begin, '[', (size_t)(end - begin));
    const char *callback = (const char *)memchr(begin, '(', (size_t)(end - begin));
    char name[NAME];
    if (!star && !bracket) return;
    last_word(begin, callback ? strchr(callback, ')') : bracket ? bracket : end, name);
    if (is_optional(f->name, name)) return;
    if (f->n_arguments == MAX_ARGUMENTS) abort();
    strcpy(f->arguments[f->n_arguments++], name);
}

/* A declaration from behind SPECRT_API on. */
static void read_function(const char *at) {
    const char *open = strchr(at, '('), *begin = open + 1;
    int depth = 1;
    if (n_functions == MAX_FUNCTIONS) abort();
    function *f = &functions[n_functions++];
    last_word(at, open, f->name);
    for (const char *p = begin; depth > 0; p++) {
        depth += (*p == '(') - (*p == ')');
        if (!(*p == ',' && depth == 1) && depth > 0) continue;
        read_parameter(f, begin, p);
        begin = p + 1;
    }
}

static void read_header(const char *path) {
    enum { MOST = 1 << 20 };
    char *text = (char *)calloc(1, MOST);
    FILE *file = fopen(path, "r");
    REQUIRE(text != NULL && file != NULL);
    REQUIRE(fread(text, 1, MOST - 1, file) < MOST - 1);
    fclose(file);
    for (char *p = text; (p = strstr(p, "/*")) != NULL;)
        for (char *end = strstr(p, "*/") + 2; p < end; p++) *p = ' ';
    for (char *p = text; (p = strstr(p, "\nSPECRT_API ")) != NULL; p += 12) read_function(p + 12);
    free(text);
}

static void read_headers(void) {
    if (n_functions > 0) return;
    read_header("src/specrt.h");
    read_header("src/specrt_block.h");
    read_header("src/specrt_tools.h");
    read_header("src/specrt_adapt.h");
    CHECK(n_functions > 100);
}

/* --- calls, each with one argument NULL after the other --- */

static function *current;
static int turn, asked;
static specrt_error err;

static void start(const char *name) {
    read_headers();
    current = NULL;
    turn = -1, asked = 1;
    for (int i = 0; i < n_functions; i++)
        if (strcmp(functions[i].name, name) == 0) current = &functions[i];
    REQUIRE(current != NULL);
    current->called = 1;
}

/* The next argument to be NULL; 0: all were. */
static int next(void) {
    if (!asked)
        fprintf(stderr, "%s: %s: no call has it NULL\n", current->name, current->arguments[turn]);
    CHECK(asked);
    memset(&err, 0, sizeof err);
    asked = 0;
    return ++turn < current->n_arguments;
}

static int is_null(const char *argument) {
    int is = strcmp(current->arguments[turn], argument) == 0;
    asked |= is;
    return is;
}

static void check_refused(specrt_status status, int speaks) {
    char expected[256];
    snprintf(expected, sizeof expected, "%s: %s: expected a pointer, found NULL", current->name,
             current->arguments[turn]);
    if (status != SPECRT_STATUS_BAD_ARG) fprintf(stderr, "%s\n", expected);
    CHECK_INT(status, SPECRT_STATUS_BAD_ARG);
    if (speaks) CHECK_STR(err.msg, expected);
}

#define A(argument, pointer) (is_null(#argument) ? NULL : (pointer))
#define REFUSES(name, call)                                                                        \
    for (start(#name); next();) check_refused(name call, 1)
#define REFUSES_MUTE(name, call)                                                                   \
    for (start(#name); next();) check_refused(name call, 0)
#define RETURNS(value, name, call)                                                                 \
    for (start(#name); next();) CHECK(name call == (value))
#define IGNORES(name, call)                                                                        \
    for (start(#name); next();) name call
#define CLOSES(name) (start(#name), name(NULL))

/* --- objects --- */

enum { V = 60, D = 12, N_EMBED = 8 };

static float weights[V * D], logits[V * V];
static int32_t ids[V];
static specrt_head_desc head_desc = {.rows = weights, .n_rows = V, .n_cols = D};
static specrt_bundle *bundle;
static specrt_head *head;

static void open_all(void) {
    static uint8_t *bytes;
    uint64_t state = 5;
    size_t n;
    if (bundle) return;
    for (int i = 0; i < V * D; i++) weights[i] = fixture_normal(&state);
    bytes = fixture_all_sections(V, D, N_EMBED, &n);
    REQUIRE(specrt_bundle_open_memory(bytes, n, "b", NULL, &bundle, NULL) == SPECRT_STATUS_OK);
    REQUIRE(specrt_head_bind(NULL, &head_desc, NULL, &head, NULL) == SPECRT_STATUS_OK);
}

static int write_nothing(void *user, const void *bytes, size_t n) {
    (void)user, (void)bytes, (void)n;
    return 0;
}

TEST(bundles, "opening, sections, views") {
    uint64_t bytes[2] = {0};
    const uint8_t digest[32] = {1};
    specrt_bundle *out = (specrt_bundle *)(void *)bytes;
    specrt_ranks ranks;
    specrt_cograph graph;
    specrt_clusters clusters;
    specrt_sketch sketch;
    specrt_hnsw index;
    const int32_t *next_ids;
    const float *counts;
    int32_t n = 7;
    size_t size = 7;
    open_all();
    REFUSES(specrt_bundle_open, (A(path, "no such file"), NULL, A(out, &out), &err));
    CHECK(out == NULL);
    REFUSES(specrt_bundle_open_memory,
            (A(bytes, bytes), 16, A(name, "b"), NULL, A(out, &out), &err));
    REFUSES(specrt_bundle_check_tokenizer, (A(bundle, bundle), A(sha256, digest), &err));
    RETURNS(NULL, specrt_bundle_sections, (A(bundle, bundle), A(n_sections, &n)));
    RETURNS(NULL, specrt_bundle_data, (A(bundle, bundle), A(tag, "ranks"), A(n_bytes, &size)));
    RETURNS(NULL, specrt_bundle_ident, (A(bundle, bundle)));
    REFUSES(specrt_bundle_ranks, (A(bundle, bundle), A(out, &ranks), &err));
    REFUSES(specrt_bundle_cograph, (A(bundle, bundle), A(out, &graph), &err));
    REFUSES(specrt_bundle_clusters, (A(bundle, bundle), A(tag, "group"), A(out, &clusters), &err));
    REFUSES(specrt_bundle_sketch, (A(bundle, bundle), A(out, &sketch), &err));
    REFUSES(specrt_bundle_hnsw, (A(bundle, bundle), head, A(out, &index), &err));
    REQUIRE(specrt_bundle_cograph(bundle, &graph, NULL) == SPECRT_STATUS_OK);
    RETURNS(0, specrt_cograph_successors,
            (A(graph, &graph), 1, A(ids, &next_ids), A(counts, &counts)));
    CHECK(specrt_bundle_sections(NULL, &n) == NULL && n == 0);
    CHECK(specrt_bundle_data(NULL, "ranks", &size) == NULL && size == 0);
    CLOSES(specrt_bundle_close);
}

TEST(heads, "binding, digests") {
    specrt_head *out = NULL;
    specrt_digest digest;
    open_all();
    REFUSES(specrt_head_bind, (NULL, A(desc, &head_desc), NULL, A(out, &out), &err));
    REFUSES(specrt_head_check_states,
            (A(desc, &head_desc), A(hidden, weights), 1, A(logits, logits), V, NULL, &err));
    REFUSES(specrt_head_digest, (A(desc, &head_desc), A(out, &digest), &err));
    RETURNS(INFINITY, specrt_digest_distance, (A(a, &digest), A(b, &digest)));
    RETURNS(NULL, specrt_head_compute, (A(head, head)));
    CLOSES(specrt_head_close);
}

TEST(rows, "formats, shortlists") {
    float out[D], scores[V], logprobs[V];
    uint16_t halves[D];
    const specrt_segment all = {.rows = weights, .row_stride = 4 * D, .ids = ids, .n_rows = V};
    open_all();
    const specrt_shortlist list = {specrt_head_compute(head), &all, 1, V, D, NULL};
    REFUSES_MUTE(specrt_row_decode, (SPECRT_DTYPE_F32, A(row, weights), D, A(out, out)));
    IGNORES(specrt_to_f16, (A(x, weights), D, A(out, halves)));
    REFUSES_MUTE(specrt_shortlist_logits,
                 (A(shortlist, &list), A(hidden, weights), 1, A(logits, scores)));
    REFUSES_MUTE(specrt_shortlist_topk, (A(shortlist, &list), A(logits, logits), 1, 3, A(ids, ids),
                                         A(logprobs, logprobs)));
    RETURNS(0, specrt_logits_topk, (A(logits, logits), V, 3, A(ids, ids)));
}

TEST(hashes, "and errors") {
    const char *const none = NULL;
    specrt_sha256 sha;
    uint8_t digest[32], zeros[32] = {0};
    RETURNS(0u, specrt_hash64, (A(data, "abc"), 3, 1));
    CHECK(specrt_hash64(NULL, 0, 1) == specrt_hash64("", 0, 1));
    specrt_sha256_init(&sha);
    IGNORES(specrt_sha256_init, (A(sha, &sha)));
    IGNORES(specrt_sha256_update, (A(sha, &sha), A(data, "abc"), 3));
    IGNORES(specrt_tokenizer_hash_token, (A(sha, &sha), 1, A(bytes, "abc"), 3));
    CHECK_INT(sha.n_bytes, 0); /* nothing was added */
    IGNORES(specrt_sha256_final, (A(sha, &sha), A(digest, digest)));
    CHECK(memcmp(digest, zeros, 32) == 0);
    start("specrt_error_set");
    memset(&err, 1, sizeof err);
    CHECK_INT(specrt_error_set(&err, SPECRT_STATUS_IO, none), SPECRT_STATUS_IO);
    CHECK_STR(err.msg, "");
    CHECK_INT(specrt_error_set(NULL, SPECRT_STATUS_IO, "x"), SPECRT_STATUS_IO);
}

TEST(indexes, "searched and built") {
    specrt_hnsw index;
    int32_t nodes[8] = {0};
    float scores[8];
    open_all();
    REQUIRE(specrt_bundle_hnsw(bundle, head, &index, NULL) == SPECRT_STATUS_OK);
    void *scratch = malloc(specrt_hnsw_scratch_bytes(&index, 8));
    RETURNS(0u, specrt_hnsw_scratch_bytes, (A(index, &index), 8));
    RETURNS(0, specrt_hnsw_search,
            (A(index, &index), A(query, weights), 2, 8, A(ids, nodes), A(scores, scores),
             A(scratch, scratch)));
    RETURNS(0, specrt_hnsw_nearest,
            (A(index, &index), 0, 0, 8, A(nodes, nodes), A(scores, scores), A(scratch, scratch)));
    IGNORES(specrt_hnsw_scores,
            (A(index, &index), 0, A(nodes, nodes), 2, A(scores, scores), A(scratch, scratch)));
    RETURNS(0, specrt_hnsw_any_above,
            (A(index, &index), 0, A(nodes, nodes), 2, 0, A(scratch, scratch)));
    free(scratch);
}

TEST(policies, "whose text is required") {
    specrt_policy_desc desc = {.text = "full"};
    specrt_policy *policy, *out;
    open_all();
    REQUIRE(specrt_policy_create(NULL, head, &desc, &policy, NULL) == SPECRT_STATUS_OK);
    REFUSES(specrt_policy_check, (A(text, "full"), &err));
    REFUSES(specrt_policy_create, (NULL, A(head, head), A(desc, &desc), A(out, &out), &err));
    desc.text = NULL;
    CHECK_INT(specrt_policy_create(NULL, head, &desc, &out, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "specrt_policy_create: desc->text: expected a pointer, found NULL");
    CHECK(out == NULL);
    RETURNS(NULL, specrt_policy_get_info, (A(policy, policy)));
    RETURNS(0, specrt_policy_ends, (A(policy, policy), 1));
    CLOSES(specrt_policy_close);
    specrt_policy_close(policy);
}

TEST(trees, "of drafts") {
    const float logprobs[] = {-1, -2};
    specrt_tree *tree = NULL, *out;
    specrt_beam beam;
    specrt_draft draft;
    REQUIRE(specrt_tree_create(NULL, NULL, &tree, NULL) == SPECRT_STATUS_OK);
    REFUSES(specrt_tree_create, (NULL, NULL, A(out, &out), &err));
    RETURNS(NULL, specrt_tree_get_params, (A(tree, tree)));
    IGNORES(specrt_tree_begin, (A(tree, tree), 1));
    specrt_tree_begin(tree, 1);
    REFUSES_MUTE(specrt_tree_expand,
                 (A(tree, tree), A(ids, ids), A(logprobs, logprobs), 1, 2, A(beam, &beam)));
    memset(&draft, 1, sizeof draft);
    CHECK_INT(specrt_tree_expand(tree, NULL, NULL, 1, 0, &beam),
              SPECRT_STATUS_OK); /* of no tokens */
    IGNORES(specrt_tree_finish, (A(tree, tree), A(draft, &draft)));
    CHECK(draft.n == 0 && draft.tokens == NULL);
    CLOSES(specrt_tree_close);
    specrt_tree_close(tree);
}

TEST(auto, "draft lengths") {
    const double costs[] = {1, 1.5}, sunk[] = {0, 0.5};
    const specrt_auto_desc desc = {.num_steps = 1, .n_lists = 1, .costs = costs};
    const specrt_auto_cycle cycle = {.n_passes = 0};
    specrt_auto *a = NULL, *out;
    specrt_auto_choice choice;
    specrt_auto_stats stats;
    REQUIRE(specrt_auto_create(&desc, NULL, &a, NULL) == SPECRT_STATUS_OK);
    REFUSES(specrt_auto_create, (A(desc, &desc), NULL, A(out, &out), &err));
    IGNORES(specrt_auto_begin, (A(a, a)));
    IGNORES(specrt_auto_unread, (A(a, a), 1, 0));
    memset(&choice, 1, sizeof choice);
    IGNORES(specrt_auto_choose, (A(a, a), A(out, &choice)));
    CHECK(choice.num_steps == 0 && choice.list == 0);
    RETURNS(0, specrt_auto_should_continue, (A(a, a), 1, 0));
    REFUSES_MUTE(specrt_auto_observe, (A(a, a), A(cycle, &cycle)));
    REFUSES(specrt_auto_set_costs, (A(a, a), A(costs, costs), 0, &err));
    REFUSES(specrt_auto_set_sunk, (A(a, a), A(sunk, sunk), &err));
    IGNORES(specrt_auto_skip, (A(a, a)));
    memset(&stats, 1, sizeof stats);
    IGNORES(specrt_auto_get_stats, (A(a, a), A(out, &stats)));
    CHECK(stats.n_cycles == 0 && stats.cost == 0);
    CLOSES(specrt_auto_close);
    specrt_auto_close(a);
}

TEST(advise, "the verdict") {
    const specrt_plain plain = {0.1, 0.1, 10, 10};
    const specrt_way way = {"full", 1, 2, 0.1, 0.1, {1, 1, 1}, NULL};
    specrt_advice out;
    char text[64];
    REFUSES(specrt_advise, (A(ways, &way), 1, A(plain, &plain), NULL, A(out, &out), &err));
    REQUIRE(specrt_advise(&way, 1, &plain, NULL, &out, &err) == SPECRT_STATUS_OK);
    memset(text, 1, sizeof text);
    IGNORES(specrt_advice_text,
            (A(ways, &way), A(plain, &plain), A(advice, &out), A(out, text), sizeof text));
    CHECK_STR(text, "");
    RETURNS(SPECRT_OUTCOME_TIE, specrt_ratio_outcome, (A(ratio, (const specrt_ratio *)&way.ratio)));
}

static void run_nothing(specrt_task *task) {
    (void)task;
}

TEST(stocks, "rows that sequences share") {
    specrt_stock *stock = NULL, *out;
    specrt_stock_stats stats;
    open_all();
    REQUIRE(specrt_stock_create(head, NULL, NULL, &stock, NULL) == SPECRT_STATUS_OK);
    REFUSES(specrt_stock_create, (A(head, head), NULL, NULL, A(out, &out), &err));
    memset(&stats, 1, sizeof stats);
    IGNORES(specrt_stock_get_stats, (A(stock, stock), A(out, &stats)));
    CHECK(stats.n_rows == 0 && stats.n_holds == 0);
    CLOSES(specrt_stock_close);
    specrt_stock_close(stock);
}

TEST(workers, "where there are threads") {
#if defined(SPECRT_WORKER)
    specrt_task task = {run_nothing, NULL};
    specrt_worker *worker = NULL, *another;
    REQUIRE(specrt_worker_create(NULL, &worker, NULL) == SPECRT_STATUS_OK);
    REFUSES(specrt_worker_create, (NULL, A(out, &another), &err));
    IGNORES(specrt_worker_submit, (A(worker, worker), A(task, &task)));
    CLOSES(specrt_worker_close);
    specrt_worker_close(worker);
#endif
}

TEST(align, "positions, batches") {
    specrt_align *align = NULL, *out;
    specrt_align_stats stats;
    specrt_align_batch batch = {.n = 1};
    specrt_align_position position = {.step = 1, .covered = 1, .drafted = -1};
    float dh[D];
    open_all();
    position.logits = logits, position.hidden = weights;
    REQUIRE(specrt_align_create(head, V, NULL, NULL, &align, NULL) == SPECRT_STATUS_OK);
    REFUSES(specrt_align_create, (A(head, head), V, NULL, NULL, A(out, &out), &err));
    RETURNS(-1, specrt_align_observe, (A(align, align), A(positions, &position), 1));
    position.logits = NULL;
    CHECK_INT(specrt_align_observe(align, &position, 1), -1);
    position.logits = logits, position.hidden = NULL;
    CHECK_INT(specrt_align_observe(align, &position, 1), -1);
    position.covered = 0; /* neither is read */
    CHECK_INT(specrt_align_observe(align, &position, 1), 0);
    RETURNS(NULL, specrt_align_acquire, (A(align, align)));
    REFUSES_MUTE(specrt_align_gradient,
                 (A(align, align), A(batch, &batch), A(hidden, weights), A(dh, dh), NULL));
    IGNORES(specrt_align_release, (A(align, align), A(batch, &batch)));
    IGNORES(specrt_align_clear, (A(align, align)));
    memset(&stats, 1, sizeof stats);
    IGNORES(specrt_align_get_stats, (A(align, align), A(out, &stats)));
    CHECK(stats.n_positions == 0 && stats.n_bytes == 0);
    CLOSES(specrt_align_close);
    specrt_align_close(align);
}

TEST(traces, "written and read") {
    uint64_t bytes[64] = {0};
    const specrt_trace_info info = {.n_vocab = V};
    const specrt_trace_record record = {.kind = SPECRT_TRACE_SEQUENCE, .n = 1, .tokens = ids};
    specrt_trace_record got;
    specrt_trace_writer *writer = NULL, *another;
    specrt_trace_reader *out = NULL;
    REQUIRE(!specrt_trace_writer_create(&info, write_nothing, NULL, NULL, &writer, NULL));
    REFUSES(specrt_trace_writer_create,
            (A(info, &info), A(write, write_nothing), NULL, NULL, A(out, &another), &err));
    REFUSES(specrt_trace_write, (A(writer, writer), A(record, &record), &err));
    start("specrt_trace_writer_close");
    CHECK_INT(specrt_trace_writer_close(NULL, NULL), SPECRT_STATUS_OK);
    CHECK_INT(specrt_trace_writer_close(writer, NULL), SPECRT_STATUS_OK);
    REFUSES(specrt_trace_open, (A(path, "no such file"), NULL, A(out, &out), &err));
    REFUSES(specrt_trace_open_memory,
            (A(bytes, bytes), sizeof bytes, A(name, "t"), NULL, A(out, &out), &err));
    specrt_trace_reader *reader = (specrt_trace_reader *)(void *)bytes; /* is not read */
    RETURNS(NULL, specrt_trace_get_info, (A(reader, reader)));
    REFUSES(specrt_trace_check, (A(reader, reader), NULL, 0, 0, &err));
    IGNORES(specrt_trace_skip_hidden, (A(reader, reader)));
    RETURNS(0, specrt_trace_is_cut, (A(reader, reader)));
    memset(&got, 1, sizeof got);
    REFUSES(specrt_trace_read, (A(reader, reader), A(record, &got), &err));
    CHECK(got.kind == SPECRT_TRACE_END && got.tokens == NULL);
    CLOSES(specrt_trace_close);
}

static int pass(void *user, specrt_pass pass, int32_t n, double *seconds) {
    (void)user, (void)pass;
    seconds[0] = n;
    return 0;
}

TEST(costs, "curves and their file") {
    static specrt_costs costs;
    specrt_meter meter = {NULL, pass, {1, 1, 0, 0}}, opened;
    const specrt_meter_desc desc = {.n_logits = 0};
    const specrt_costs_drafts drafts = {.bundle = NULL};
    char path[SPECRT_COSTS_PATH], text[SPECRT_COSTS_BYTES], line[SPECRT_COSTS_LINE];
    RETURNS(-1, specrt_curve_add, (A(curve, &costs.target), 1, 1));
    IGNORES(specrt_curve_make_monotone, (A(curve, &costs.target)));
    RETURNS(0, specrt_curve_at, (A(curve, &costs.target), 1));
    IGNORES(specrt_costs_machine, (A(out, line)));
    RETURNS(NULL, specrt_costs_next, (A(costs, &costs), 1));
    REFUSES(specrt_meter_open, (A(desc, &desc), A(out, &opened), &err));
    IGNORES(specrt_meter_close, (A(meter, &meter)));
    REFUSES(specrt_costs_measure, (A(meter, &meter), 0, 0, A(out, &costs), &err));
    RETURNS(0, specrt_costs_busy, (A(costs, &costs), A(line, line)));
    RETURNS(0, specrt_costs_head, (A(costs, &costs), A(drafts, &drafts), A(policy, "full")));
    RETURNS(NULL, specrt_advise_untried, (A(costs, &costs), A(drafts, &drafts)));
    RETURNS(0u, specrt_costs_text, (A(costs, &costs), A(out, text)));
    REFUSES(specrt_costs_parse, (A(text, "x"), 1, A(name, "t"), NULL, A(out, &costs), &err));
    REFUSES(specrt_costs_read, (A(path, "no such file"), NULL, A(out, &costs), &err));
    REFUSES(specrt_costs_write, (A(costs, &costs), A(path, "no such/file"), &err));
    IGNORES(specrt_costs_path, (NULL, A(key, "k"), A(out, path)));
    REFUSES(specrt_costs_find,
            (A(meter, &meter), A(path, ""), A(key, "k"), A(out, &costs), A(line, line), &err));
}

TEST(clock, "and timed hosts") {
    static specrt_clock clock;
    static specrt_timer timer;
    const specrt_costs costs = {.n_heads = 0};
    const specrt_tree_params tree = {.num_steps = 1, .topk = 1, .num_draft_tokens = 2};
    const specrt_clock_cycle cycle = {.n_slots = 1, .n_tokens = 1};
    const specrt_auto_stats stats = {.n_cycles = 1};
    double cycles[2], read;
    char line[SPECRT_COSTS_TEXT];
    specrt_auto *out;
    specrt_host host;
    RETURNS(0, specrt_costs_nodes, (A(tree, &tree), 1));
    RETURNS(0, specrt_costs_read_token, (A(costs, &costs)));
    RETURNS(0, specrt_costs_draft, (A(costs, &costs), 1, 1, 1));
    IGNORES(specrt_clock_init, (A(clock, &clock), A(costs, &costs), A(tree, &tree), 0));
    RETURNS(0, specrt_clock_see, (A(clock, &clock), A(cycle, &cycle)));
    IGNORES(specrt_clock_table, (A(clock, &clock), 1, A(cycles, cycles), A(read, &read)));
    REFUSES(specrt_clock_auto, (A(clock, &clock), 0, A(out, &out), &err));
    RETURNS(0, specrt_clock_hopeless, (A(clock, &clock), A(line, line)));
    IGNORES(specrt_clock_explain, (A(clock, &clock), A(stats, &stats), A(out, line)));
    IGNORES(specrt_timer_host, (A(timer, &timer), A(out, &host)));
    IGNORES(specrt_timer_begin, (A(timer, &timer)));
}

TEST(complete, "every function of the headers that takes a pointer was called") {
    for (test_case *c = test_cases; c->next; c = c->next) c->fn(); /* all that are above */
    for (int i = 0; i < n_functions; i++) {
        const function *f = &functions[i];
        int other = 0;
        for (size_t k = 0; k < sizeof elsewhere / sizeof *elsewhere; k++)
            other |= strncmp(f->name, elsewhere[k], strlen(elsewhere[k])) == 0;
        if (f->called || other || f->n_arguments == 0) continue;
        fprintf(stderr, "%s: expected calls with NULL here, found none\n", f->name);
        CHECK(f->called);
    }
}
