/* test_compare_tables.c : the table, JSON, page and cards of specrt-eval compare, of samples made by hand, as
 * they were approved. Samples that are measured have other times in each run. */
#include "approved.h"
#include "folder.h"
#include "small_head.h"
#include "tools/specrt-eval/compare/compare.h"
#include "tools/specrt-eval/shared/chat_template.h"

enum { N = 4, N_TURNS = 12, N_DOMAINS = 3 };

typedef struct scene {
    small_head small;
    contestant contestants[N];
    turn_sample samples[N][N_TURNS];
    comparison c;
} scene;

/* Turn i of contestant k, which drafts the longer the later it stands. */
static turn_sample sample_of(int k, int i) {
    turn_sample s = {
        .domain = i % N_DOMAINS, .prompt = i / 2, .n_prompt = 20 + i, .n_tokens = 60 + i};
    int n_cycles = k == 0 ? (int)s.n_tokens : 40 - 3 * k - i % 3;
    s.n_loop = i == 4 ? 11 : 0;
    s.seconds = k == 0 ? 1.5 : 1.1 - 0.1 * k + 0.02 * i;
    s.times = (decoder_times){.draft = 0.05 * k,
                              .head = 0.1 * k,
                              .target = 0.6,
                              .verify = 0.01,
                              .update = 0.002 * k,
                              .prefill = 0.2 + 0.01 * i};
    s.stats = (specrt_session_stats){.n_cycles = n_cycles, .n_emitted = s.n_tokens};
    s.stats.n_covered = s.n_tokens - k;
    s.stats.n_rows = (int64_t)n_cycles * (k < 2 ? V : 60 - 20 * (k - 2));
    s.stats.n_passes = 3 * n_cycles;
    s.stats.n_bytes = (int64_t)s.stats.n_passes * 3000 * k;
    s.stats.n_copied = k == 3 ? 5 * n_cycles : 0;
    s.stats.n_by_length[1] = n_cycles / 2;
    s.stats.n_by_length[2] = n_cycles / 4;
    s.stats.n_by_length[4] = n_cycles - n_cycles / 2 - n_cycles / 4;
    s.lists = (list_sums){.n_positions = s.n_tokens, .mass = 0.9 * (double)s.n_tokens};
    for (int t = 0; t < WATCH_TOPS; t++) {
        s.lists.wanted[t] = s.n_tokens * (t + 1);
        s.lists.held[t] = s.n_tokens * (t + 1) - 3 * k;
        s.lists.beyond[t] = 10 * t;
        s.lists.brought[t] = 2 * t;
    }
    return s;
}

static void open_scene(scene *s, bool all) {
    static const char *const names[N] = {"plain", "full", "static:60", "window:40@min=0"};
    static char *domains[N_DOMAINS] = {"qa", "code <c>", "\u6f22\u5b57"};
    memset(s, 0, sizeof *s);
    small_head_open(&s->small);
    s->c = (comparison){.contestants = s->contestants,
                        .n_contestants = all ? N : 2,
                        .n_turns = all ? N_TURNS : 1,
                        .domains = domains,
                        .n_domains = all ? N_DOMAINS : 1,
                        .lists = all,
                        .n_compared = 1234};
    static chat form = {.from = "option", .form = {.name = "chatml"}};
    static const backend_info ours = {.engine = "specrt", .is_exact = true};
    s->c.chat = &form;
    s->c.rounds = 1;
    s->c.models.info = &ours;
    s->c.options.num_steps = 3;
    s->c.options.topk = 2;
    s->c.options.max_tokens = 64;
    s->c.options.target = "models/target.gguf";
    s->c.options.draft = "models/draft.safetensors";
    for (int k = 0; k < N; k++) {
        contestant *e = &s->contestants[k];
        strcpy(e->name, k == 3 ? "preset" : names[k]);
        e->policy = small_head_policy(&s->small, k ? names[k] : "full");
        e->samples = s->samples[k];
        e->bytes_extra = 1000000 * k;
        for (int i = 0; i < N_TURNS; i++) s->samples[k][i] = sample_of(k, i);
        for (int i = 0; i < WATCH_SPANS; i++)
            e->watch.spans[i] = (span_sums){.n_emitted = 100 * k + i, .n_cycles = 50 - i};
    }
}

static void close_scene(scene *s) {
    for (int k = 0; k < N; k++) specrt_policy_close(s->contestants[k].policy);
    small_head_close(&s->small);
}

static void tell(void (*print)(const comparison *), const comparison *c) {
    FILE *out = approved_begin_stdout();
    print(c);
    stdout = out;
}

static void put_page(const comparison *c) {
    file_view page;
    const char *path = in_folder("page.html");
    REQUIRE(!compare_write_report(c, path, true, NULL));
    REQUIRE(!sl_file_map(path, &page, NULL));
    const char *begin = (const char *)memmem(page.bytes, page.n, "</style>", 8);
    REQUIRE(begin);
    fwrite(begin, 1, page.n - (size_t)(begin - (const char *)page.bytes), approved_out());
    sl_file_unmap(&page);
}

static void tell_all(scene *s) {
    REQUIRE(!compare_decide(&s->c, NULL));
    tell(compare_print_table, &s->c);
    tell(compare_print_json, &s->c);
    compare_write_cards(approved_out(), &s->c);
    put_page(&s->c);
    compare_free_verdict(&s->c.verdict);
}

static void test_tables(void) {
    scene s;
    open_scene(&s, true);
    tell_all(&s);
    s.c.stream = true; /* in changes of domain */
    s.c.n_changes = 3;
    s.c.options.temperature = 0.7f;
    s.c.diverged = true;
    strcpy(s.c.divergence, "preset: prompt 3: token 7");
    tell_all(&s);
    close_scene(&s);
    open_scene(&s, false);
    tell_all(&s);
    static char name[] = "task";
    char *many[20];
    for (int i = 0; i < 20; i++) many[i] = name;
    s.c.domains = many;
    s.c.n_domains = 20; /* more than a table has columns */
    tell_all(&s);
    close_scene(&s);
    approved_compare("tests/tools/compare_tables.exact");
    CHECK_INT(clear_folder(), 1);
}

static const test_case cases[] = {
    {"tables", "for people and machines", test_tables},
};
TEST_MAIN(cases)
