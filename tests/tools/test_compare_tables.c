/* test_compare_tables.c : table, page and cards of specrt-eval compare, of samples made by hand, as they were
 * approved, and the fields of its JSON. Samples that are measured have other times in each run. */
#include "approved.h"
#include "folder.h"
#include "json_path.h"
#include "small_head.h"
#include "tools/specrt-eval/compare/compare.h"
#include "tools/specrt-eval/shared/chat_template.h"

enum { N = 4, N_TURNS = 12, N_DOMAINS = 3 };

typedef struct scene {
    small_head small;
    compare_way ways[N];
    turn_sample samples[N][N_TURNS];
    comparison c;
} scene;

/* Turn i of way k, which drafts the longer the later it stands. */
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
    s->c = (comparison){.ways = s->ways,
                        .n_ways = all ? N : 2,
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
        compare_way *e = &s->ways[k];
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
    for (int k = 0; k < N; k++) specrt_policy_close(s->ways[k].policy);
    small_head_close(&s->small);
}

static void tell(void (*print)(const comparison *), const comparison *c) {
    FILE *out = approved_begin_stdout();
    print(c);
    stdout = out;
}

/* What the page shows, without style, grids and labels of plots: test_html_plot.c has these. */
static void put_page(const comparison *c) {
    file_view page;
    const char *path = in_folder("page.html");
    REQUIRE(!compare_write_report(c, path, true, NULL));
    REQUIRE(!sl_file_map(path, &page, NULL));
    const char *last = (const char *)page.bytes + page.n;
    const char *p = (const char *)memmem(page.bytes, page.n, "</style>", 8);
    for (const char *end; p && p < last; p = end + 1) {
        size_t n;
        end = (const char *)memchr(p, '\n', (size_t)(last - p));
        REQUIRE(end);
        n = (size_t)(end - p);
        if (!memmem(p, n, "class=\"grid\"", 12) && !memmem(p, n, "class=\"axis\"", 12) &&
            !memmem(p, n, "class=\"label\"", 13))
            fwrite(p, 1, n + 1, approved_out());
    }
    sl_file_unmap(&page);
}

static void tell_all(scene *s) {
    REQUIRE(!compare_decide(&s->c, NULL));
    tell(compare_print_table, &s->c);
    compare_write_cards(approved_out(), &s->c);
    put_page(&s->c);
    compare_free_verdict(&s->c.verdict);
}

TEST(tables, "for people") {
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
    approved_condense();
    approved_compare("tests/tools/compare_tables.exact");
    CHECK_INT(clear_folder(), 1);
}

/* What compare_print_json() prints, owned. */
static char *json_of(comparison *c) {
    char *text;
    size_t n;
    FILE *out = stdout, *into = open_memstream(&text, &n);
    REQUIRE(into && !compare_decide(c, NULL));
    stdout = into;
    compare_print_json(c);
    stdout = out;
    REQUIRE(fclose(into) == 0);
    compare_free_verdict(&c->verdict);
    return text;
}

TEST(json, "for machines") {
    scene s;
    open_scene(&s, true);
    CHECK_JSON(
        json_of(&s.c), "engine=specrt", "target=target.gguf", "drafter=draft.safetensors",
        "chat_template=chatml", "chat_template_from=option", "max_tokens=64", "num_steps=3",
        "rounds=1", "n_unanswered=0", "recommended=preset", "recommended_policy=preset",
        "recommended_by=worst_domain", "as_fast=", "outcome=faster", "pruning_outcome=faster",
        "advice[1]=Beside drafts from all rows it is faster: 1.17 *", "splits=", "rows[].#=16",
        "rows[domain=all].policy_text=full full static:60 window:40@min=0",
        "rows[policy=preset].domain=all qa code <c> \u6f22\u5b57",
        "rows[domain=all].n_prompts=6 6 6 6", "rows[domain=all].n_turns=12 12 12 12",
        "rows[domain=all].n_tokens=786 786 786 786",
        "rows[domain=all].accept_length=1 1.8194 1.9848 2.1833",
        "rows[domain=all].accept_full=0.5496 1 1.0909 1.2",
        "rows[domain=all].acceptance=0.5038 0.5152 1 0.5093 0.5273 1 0.5051 0.52 1 0.5111 0.5435 1",
        "rows[domain=all].coverage=1 0.9847 0.9695 0.9542",
        "rows[domain=all].shortlist_rows=100 100 60 40",
        "rows[domain=all].bytes_pass=0 3000 6000 9000", "rows[domain=all].rows_copied=0 0 0 5",
        "rows[domain=all].draft_ms=0 1.3889 3.0303 5",
        "rows[domain=all].head_ms=0 2.7778 6.0606 10",
        "rows[domain=all].update_ms=0 0.0556 0.1212 0.2",
        "rows[domain=all].target_ms=9.1603 16.6667 18.1818 20",
        "rows[domain=all].verify_ms=0.1527 0.2778 0.303 0.3333",
        "rows[domain=all].prefill_ms=255 255 255 255", "rows[domain=all].mass=0.9 0.9 0.9 0.9",
        "rows[domain=all].recall.10=1 0.9542 0.9084 0.8626",
        "rows[domain=all].recall.50=1 0.9771 0.9542 0.9313",
        "rows[domain=all].recall.100=1 0.9847 0.9695 0.9542",
        "rows[domain=all].recall_beyond_fixed.10=null null null null",
        "rows[domain=all].recall_beyond_fixed.50=0.2 0.2 0.2 0.2",
        "rows[domain=all].events_per_cycle=0 0 0 0",
        "rows[domain=all].update_event_ms=null null null null",
        "rows[domain=all].update_other_ms=0 0.0556 0.1212 0.2",
        "rows[domain=all].tokens_per_second=43.6667 59.0441 64.9215 72.1058",
        "rows[domain=all].tokens_per_second_prompt=37.2977 48.0706 51.9038 56.4066",
        "rows[domain=all].speedup_plain=1 1.3522 1.4868 1.6513",
        "rows[domain=all].speedup_full=0.7396 1 1.0995 1.2212",
        "rows[domain=all].speedup_request=1 1.2857 1.3874 1.5064",
        "rows[domain=all].bytes_extra=0 1000000 2000000 3000000",
        "rows[domain=all].loop_share=0.014 0.014 0.014 0.014",
        "rows[domain=all].ci95.accept_length=1 1 1.7254 1.9028 1.8803 2.0765 2.0665 2.2865",
        "rows[domain=all].ci95.accept_full=0.5255 0.5796 1 1 1.09 1.0918 1.1978 1.2022",
        "rows[domain=all].ci95.tokens_per_second=41.6667 45.6667 58.585 59.5339 64.094 65.8099 "
        "70.7553 73.5675",
        "rows[domain=all].ci95.speedup_plain=1 1 1.2829 1.4288 1.4035 1.5794 1.5494 1.7656",
        "rows[domain=all].ci95.speedup_full=0.6999 0.7795 1 1 1.094 1.1054 1.2077 1.2357",
        "rows[domain=all].ci95.speedup_request=1 1 1.2268 1.3529 1.3173 1.4681 1.4223 1.6047",
        "rows[domain=all].n_compared=0 786 786 786");
    CHECK_JSON(json_of(&s.c), "rows[policy=preset].n_prompts=6 4 4 4",
               "rows[policy=preset].n_tokens=786 258 262 266",
               "rows[policy=preset].accept_length=2.1833 2.0806 2.1833 2.2931",
               "rows[policy=preset].accept_full=1.2 1.1935 1.2 1.2069",
               "rows[policy=preset].coverage=0.9542 0.9535 0.9542 0.9549",
               "rows[policy=preset].draft_ms=5 4.8387 5 5.1724",
               "rows[policy=preset].prefill_ms=255 245 255 265",
               "rows[policy=preset].mass=0.9 0.9 0.9 0.9",
               "rows[policy=preset].recall.10=0.8626 0.8605 0.8626 0.8647",
               "rows[policy=preset].tokens_per_second=72.1058 72.6008 72.0985 71.6182",
               "rows[policy=preset].speedup_plain=1.6513 1.6884 1.6511 1.6154",
               "rows[policy=preset].speedup_request=1.5064 1.5374 1.5064 1.477",
               "rows[policy=preset].loop_share=0.014 0 0.042 0",
               "rows[policy=preset].ci95.accept_length=2.0665 2.2865 1.9839 2.1774 2.0833 2.2833 "
               "2.1897 2.3966",
               "rows[policy=preset].ci95.speedup_full=1.2077 1.2357 1.2108 1.242 1.2064 1.2362 "
               "1.2022 1.2307",
               "rows[policy=preset].n_compared=786 258 262 266", "rows[domain=all].n_same=0 0 0 0",
               "rows[policy=static:60][domain=all].worst_domain=qa",
               "rows[policy=static:60][domain=all].worst_accept_full=1.0882");
    close_scene(&s);
}

TEST(json_stream, "of a stream of domains") {
    scene s;
    open_scene(&s, true);
    s.c.stream = true;
    s.c.n_changes = 3;
    s.c.options.temperature = 0.7f;
    s.c.diverged = true;
    strcpy(s.c.divergence, "preset: prompt 3: token 7");
    CHECK_JSON(json_of(&s.c), "rows[domain=all].temperature=0.7 0.7 0.7 0.7",
               "rows[policy=preset][domain=all].first_divergence=preset: prompt 3: token 7",
               "rows[domain=all].accept_length_since_change.before=0 2 4 6",
               "rows[domain=all].accept_length_since_change.0-32=0.0204 2.0612 4.102 6.1429",
               "rows[policy=preset][domain=all].accept_length_since_change.256-=6.7778",
               "requests[].#=36", "requests[policy=preset].prompt=0 0 1 1 2 2 3 3 4 4 5 5",
               "requests[policy=preset].domain=qa code <c> \u6f22\u5b57 qa *",
               "requests[policy=preset].n_cycles=31 30 29 31 30 29 31 30 29 31 30 29",
               "requests[policy=preset].n_emitted=60 61 62 63 64 65 66 67 68 69 70 71",
               "requests[policy=preset].n_loop=0 0 0 0 11 0 0 0 0 0 0 0",
               "requests[policy=full].accept_length=1.6216 1.6944 1.7714 1.7027 * 2.0286",
               "requests[policy=static:60].seconds=0.9 0.92 0.94 0.96 0.98 1 1.02 * 1.12");
    close_scene(&s);
}

TEST(json_few, "one turn of one task, and of twenty, of which nineteen have none") {
    scene s;
    open_scene(&s, false);
    CHECK_JSON(json_of(&s.c), "recommended=full", "recommended_policy=full", "recommended_by=mean",
               "outcome=a tie", "pruning_outcome=null", "as_fast=", "rows[].policy=plain full",
               "rows[].domain=all all", "rows[].accept_length=1 1.6216", "rows[].n_tokens=60 60",
               "rows[].speedup_plain=1 1.5",
               "advice[2]=These prompts name fewer than two tasks, so the mean over all prompts "
               "decides, not *");
    static char name[] = "task";
    char *many[20];
    for (int i = 0; i < 20; i++) many[i] = name;
    s.c.domains = many;
    s.c.n_domains = 20;
    CHECK_JSON(json_of(&s.c), "rows[].#=42", "rows[n_tokens=60].#=4", "rows[n_tokens=0].#=38",
               "rows[domain=task][n_tokens=60].accept_length=1 1.6216",
               "rows[policy=full][n_tokens=0].accept_length=0 *");
    close_scene(&s);
}
