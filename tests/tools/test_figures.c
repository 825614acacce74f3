/* test_figures.c : what specrt-eval compare makes of its samples, on samples made by hand. */
#include "tools/specrt-eval/shared/retained.h"
#include "tools/specrt-eval/compare/compare.h"
#include "tools/specrt-eval/shared/eval.h"
#include "fixture.h"
#include "test.h"

/* --- loops --- */

/* The definition, word for word. */
static bool repeats(const int32_t *tokens, int i) {
    for (int p = 1; p <= 64; p++) {
        int length = 0;
        while (i - length - p >= 0 && tokens[i - length] == tokens[i - length - p]) length++;
        if (length >= 8 && length >= 2 * p) return true;
    }
    return false;
}

TEST(loops, "tokens in repetitions, by their definition") {
    uint64_t state = 7;
    int32_t tokens[300];
    for (int round = 0; round < 200; round++) {
        int period = 1 + (int)(fixture_random(&state) % 80), n = 300, expected = 0;
        int from = (int)(fixture_random(&state) % 200), to = from + 100;
        for (int i = 0; i < n; i++)
            tokens[i] = i >= from && i < to && i >= period ? tokens[i - period]
                                                           : (int32_t)(fixture_random(&state) % 9);
        for (int i = 0; i < n; i++) expected += repeats(tokens, i);
        CHECK_INT(loop_tokens(tokens, (size_t)n), expected);
    }
    for (int i = 0; i < 300; i++) tokens[i] = i;
    CHECK_INT(loop_tokens(tokens, 300), 0);
    for (int i = 100; i < 120; i++)
        tokens[i] = 5; /* 19 equal the one before, the first 7 too few */
    CHECK_INT(loop_tokens(tokens, 300), 12);
    CHECK_INT(loop_tokens(tokens, 0), 0);
}

/* --- figures --- */

enum { N_TURNS = 20 };

typedef struct scene {
    compare_way ways[3];
    turn_sample samples[3][N_TURNS];
    comparison c;
} scene;

/* Prompts of `turns_each` turns; every turn of plain decoding takes 1 s for 100 tokens. */
static void set_scene(scene *s, int n_turns, int turns_each) {
    static const backend_info ours = {.is_exact = true};
    memset(s, 0, sizeof *s);
    s->c = (comparison){.ways = s->ways, .n_ways = 3, .n_turns = n_turns};
    s->c.models.info = &ours;
    s->c.options.num_steps = 3;
    for (int k = 0; k < 3; k++) {
        s->ways[k].samples = s->samples[k];
        for (int i = 0; i < n_turns; i++)
            s->samples[k][i] =
                (turn_sample){.prompt = i / turns_each, .n_tokens = 100, .seconds = 1};
    }
}

TEST(means, "counts are pooled, speeds averaged over turns") {
    scene s;
    figures f;
    set_scene(&s, 3, 1);
    turn_sample *t = s.samples[2];
    t[0].stats = (specrt_session_stats){.n_cycles = 40, .n_emitted = 100, .n_covered = 90};
    t[0].stats.n_rows = 40 * 256;
    t[0].stats.n_passes = 120, t[0].stats.n_bytes = 120 * 1000;
    t[0].stats.n_by_length[1] = 10, t[0].stats.n_by_length[3] = 30;
    t[1].stats = (specrt_session_stats){.n_cycles = 10, .n_emitted = 40, .n_covered = 40};
    t[1].stats.n_rows = 10 * 512;
    t[1].stats.n_passes = 30, t[1].stats.n_bytes = 30 * 2000;
    t[1].stats.n_by_length[4] = 10;
    t[2].domain = 1;
    t[0].times.draft = 0.03, t[1].times.draft = 0.02;
    t[0].times.prefill = 0.5, t[1].times.prefill = 0.1;
    t[0].seconds = 0.5, t[1].seconds = 0.25; /* 200 and 400 tokens/s beside 100 */
    s.samples[FULL][0].seconds = 2;          /* 50 and 100 */
    t[0].n_loop = 30;
    figures_of(&s.c, 2, 0, &f);
    CHECK_INT(f.n_turns, 2);
    CHECK_INT(f.n_prompts, 2);
    CHECK_INT(f.n_tokens, 200);
    CHECK_NEAR(f.accept_length, 140.0 / 50, 1e-12);
    CHECK_NEAR(f.coverage, 130.0 / 140, 1e-12);
    CHECK_NEAR(f.shortlist_rows, (40 * 256 + 10 * 512) / 50.0, 1e-12);
    CHECK_NEAR(f.bytes_pass, 1200, 1e-9);
    CHECK_NEAR(f.loop_share, 0.15, 1e-12);
    CHECK_NEAR(f.draft, 0.001, 1e-12);
    CHECK_NEAR(f.prefill, 0.3, 1e-12);
    CHECK_NEAR(f.tokens_per_second, 300, 1e-9);
    CHECK_NEAR(f.speedup_plain, 3, 1e-12);
    CHECK_NEAR(f.speedup_full, 300 / 75.0, 1e-12);
    CHECK_NEAR(f.acceptance[0], 0.8, 1e-12); /* 40 of 50 */
    CHECK_NEAR(f.acceptance[1], 1, 1e-12);
    CHECK_NEAR(f.acceptance[2], 0.25, 1e-12);
    CHECK(isnan(f.acceptance[3])); /* no such level */
    figures_of(&s.c, 2, 1, &f);
    CHECK_INT(f.n_turns, 1);
    CHECK(isnan(f.accept_length_ci.low)); /* one prompt tells nothing of the spread */
    figures_of(&s.c, 2, 7, &f);
    CHECK_INT(f.n_turns, 0);
}

/* Two prompts of accept lengths 1 and 3: a resample gives 1, 2 or 3 with chances 1/4, 1/2, 1/4, so
 * the interval is [1, 3] however many turns each has. */
TEST(intervals, "whole prompts are drawn") {
    static const int turns_each[] = {1, 10};
    scene s;
    figures f, again;
    for (int i = 0; i < 2; i++) {
        set_scene(&s, 2 * turns_each[i], turns_each[i]);
        for (int t = 0; t < s.c.n_turns; t++) {
            int64_t emitted = s.samples[2][t].prompt ? 30 : 10;
            s.samples[2][t].stats =
                (specrt_session_stats){.n_cycles = 10, .n_emitted = emitted, .n_covered = 10};
            s.samples[2][t].seconds = s.samples[2][t].prompt ? 0.5 : 1;
        }
        figures_of(&s.c, 2, -1, &f);
        CHECK_NEAR(f.accept_length, 2, 1e-12);
        CHECK_NEAR(f.accept_length_ci.low, 1, 1e-12);
        CHECK_NEAR(f.accept_length_ci.high, 3, 1e-12);
        CHECK_NEAR(f.speedup_plain_ci.low, 1, 1e-12);
        CHECK_NEAR(f.speedup_plain_ci.high, 2, 1e-12);
        figures_of(&s.c, 2, -1, &again);
        CHECK(memcmp(&f, &again, sizeof f) == 0);
    }
    set_scene(&s, N_TURNS, 1); /* all alike: no spread */
    figures_of(&s.c, 1, -1, &f);
    CHECK_NEAR(f.tokens_per_second_ci.low, 100, 1e-9);
    CHECK_NEAR(f.tokens_per_second_ci.high, 100, 1e-9);
}

/* --- what is best --- */

/* Both ways of showing it, as one text. */
static char *shown_best(comparison *c) {
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    REQUIRE(f != NULL);
    REQUIRE(!compare_decide(c, NULL));
    compare_write_cards(f, c);
    compare_advice(c, f);
    compare_free_verdict(&c->verdict);
    fclose(f);
    return text;
}

static void set_named_scene(scene *s, int n_turns) {
    set_scene(s, n_turns, 1);
    snprintf(s->ways[PLAIN].name, sizeof s->ways[PLAIN].name, "plain");
    snprintf(s->ways[FULL].name, sizeof s->ways[FULL].name, "full");
    snprintf(s->ways[2].name, sizeof s->ways[2].name, "window:64");
}

/* `full` and a policy that takes so many seconds a turn, where plain decoding takes one. */
static char *best_of_speeds(scene *s, double full, double policy) {
    set_named_scene(s, N_TURNS);
    for (int i = 0; i < N_TURNS; i++) {
        s->samples[FULL][i].seconds = full;
        s->samples[2][i].seconds = policy;
        for (int k = FULL; k < 3; k++)
            s->samples[k][i].stats = (specrt_session_stats){.n_cycles = 10,
                                                            .n_emitted = 20,
                                                            .n_rows = 100 / k,
                                                            .n_passes = 1,
                                                            .n_bytes = 6000000 / k};
    }
    return shown_best(&s->c);
}

TEST(best, "policies race with policies, and may all lose to plain decoding") {
    scene s;
    char *text = best_of_speeds(&s, 1, 0.5);
    CHECK_HAS(text, "<code>window:64</code></b><span>to run");
    CHECK_HAS(text, "<b>2.00 x</b><span>plain decoding's speed: faster<");
    CHECK_HAS(text, "<b>2.00 x</b><span>the whole vocabulary's speed: faster<");
    CHECK_HAS(text, "<b>100.0%</b><span>of its accept length");
    CHECK_HAS(text, "<b>50.0%</b><span>of its rows");
    CHECK_HAS(
        text,
        "window:64 scores 5 of 10 rows a pass (3 of 6 MB) and keeps 100.0% of their accept "
        "length.\nBeside drafts from all rows it is faster: 2.00 times their speed (95%: 2.00 "
        "to 2.00) over whole requests.\nDraft with window:64: it is faster, 2.00 times");
    CHECK_HAS(text, RETAINED_BY_MEAN);
    free(text);
    text = best_of_speeds(&s, 4, 2); /* faster than `full`, slower than no drafts */
    CHECK_HAS(text, "<code>plain</code></b><span>to run");
    CHECK_HAS(text, "<b>0.50 x</b><span>plain decoding's speed: slower<");
    CHECK_HAS(text, "Decode plainly: window:64 is slower, 0.50 times");
    CHECK_HAS(text, "Beside drafts from all rows it is faster: 2.00 times");
    free(text);
    text = best_of_speeds(&s, 0.5, 2); /* less vocabulary only costs */
    CHECK_HAS(text, "Draft with full: it is faster, 2.00 times");
    CHECK(!strstr(text, "Beside drafts from all rows"));
    s.c.n_ways = 2;
    free(text);
    text = shown_best(&s.c);
    CHECK(!strstr(text, "vocabulary's speed")); /* there is no other to hold against it */
    free(text);
}

/* Prompts count: a policy that is faster after them and slower in them is slower over short answers. */
TEST(whole_requests, "prompts count") {
    scene s;
    set_named_scene(&s, N_TURNS);
    for (int i = 0; i < N_TURNS; i++) {
        s.samples[PLAIN][i].times.prefill = 0.5;
        s.samples[FULL][i].times.prefill = 1.0, s.samples[FULL][i].seconds = 0.75;
        s.samples[2][i].times.prefill = 0.5, s.samples[2][i].seconds = 1.6;
    }
    char *text = shown_best(&s.c);
    CHECK_HAS(text, "Decode plainly: full is slower, 0.86 times");
    CHECK_HAS(text, "its prompts take 2.00 times plain decoding's");
    CHECK_HAS(text, "It breaks even at answers of 200 tokens");
    free(text);
}

TEST(words, "names of tasks come from files; a target that drafts for itself has no speed") {
    static char bad[] = "co\x1b[2Jde", good[] = "chat";
    static char *names[] = {bad, good};
    scene s;
    set_named_scene(&s, N_TURNS);
    s.c.domains = names, s.c.n_domains = 2;
    for (int i = 0; i < N_TURNS; i++)
        for (int k = 0; k < 3; k++)
            s.samples[k][i].domain = i % 2,
            s.samples[k][i].stats = (specrt_session_stats){.n_cycles = 10, .n_emitted = 20};
    s.samples[2][0].stats.n_emitted = 19;
    char *text = shown_best(&s.c);
    CHECK(!strchr(text, 27));
    free(text);
    s.c.options.target = s.c.options.draft = "model.gguf";
    text = shown_best(&s.c);
    CHECK_HAS(text, "The target drafted for itself");
    CHECK(!strstr(text, "plain decoding's speed"));
    free(text);
    s.c.options.draft = "other.gguf";
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < N_TURNS; i++) s.samples[k][i].n_tokens = 1;
    text = shown_best(&s.c);
    CHECK_HAS(text, "No verdict: advise: plain: expected answers of 2 tokens or more, found 1");
    free(text);
}

/* A policy takes 10% more time than `full` on every second prompt and less on the others, and in all the
 * share `slower` more. So the ratio of their speeds is uncertain by some percent. */
static json_object *advice_of(scene *s, double slower, int64_t rows) {
    json_object *o = json_object_new_object();
    set_named_scene(s, N_TURNS);
    for (int i = 0; i < N_TURNS; i++) {
        s->samples[FULL][i].seconds = 0.5;
        s->samples[2][i].seconds = 0.5 * (1 + slower) * (i % 2 ? 1.1 : 1 / 1.1);
        s->samples[FULL][i].stats = (specrt_session_stats){
            .n_cycles = 10, .n_emitted = 20, .n_rows = 10 * 200, .n_passes = 1, .n_bytes = 200};
        s->samples[2][i].stats = (specrt_session_stats){
            .n_cycles = 10, .n_emitted = 20, .n_rows = 10 * rows, .n_passes = 1, .n_bytes = rows};
    }
    REQUIRE(!compare_decide(&s->c, NULL));
    compare_advice_json(&s->c, o);
    compare_free_verdict(&s->c.verdict);
    return o;
}

static void check_advice(double slower, int64_t rows, const char *recommended,
                         const char *as_fast) {
    scene s;
    json_object *o = advice_of(&s, slower, rows);
    CHECK_HAS(json_object_to_json_string(o), recommended);
    CHECK_HAS(json_object_to_json_string(o), as_fast);
    json_object_put(o);
}

TEST(recommended, "the fewest rows among those as fast, as far as prompts tell") {
    check_advice(0.02, 64, "\"recommended\": \"window:64\"", "\"as_fast\": [ \"full\" ]");
    check_advice(0.02, 300, "\"recommended\": \"full\"", "\"as_fast\": [ \"window:64\" ]");
    check_advice(0.2, 64, "\"recommended\": \"full\"", "\"as_fast\": [ ]");
    check_advice(-0.2, 300, "\"recommended\": \"window:64\"", "\"as_fast\": [ ]");
    scene s;
    json_object *o = advice_of(&s, 0.02, 64);
    CHECK_HAS(json_object_to_json_string(o),
              "\"outcome\": \"faster\", \"pruning_outcome\": \"a tie\"");
    json_object_put(o);
    for (int i = 0; i < N_TURNS; i++) s.samples[PLAIN][i].seconds = 0.3;
    REQUIRE(!compare_decide(&s.c, NULL));
    compare_advice_json(&s.c, o = json_object_new_object());
    compare_free_verdict(&s.c.verdict);
    CHECK_HAS(json_object_to_json_string(o),
              "\"recommended\": \"plain\", \"recommended_policy\": \"window:64\"");
    CHECK_HAS(json_object_to_json_string(o), "\"outcome\": \"slower\"");
    json_object_put(o);
}

/* A policy is 10% faster than `full` in the mean, and retains 99% and `second`% of its accept length in two
 * tasks. */
static char *advice_over_tasks(scene *s, double second) {
    static char *names[] = {"code", "chat"};
    set_named_scene(s, N_TURNS);
    s->c.domains = names;
    s->c.n_domains = 2;
    for (int i = 0; i < N_TURNS; i++)
        for (int k = FULL; k < 3; k++) {
            turn_sample *t = &s->samples[k][i];
            t->domain = i % 2;
            t->seconds = k == FULL ? 0.55 : 0.5;
            t->stats = (specrt_session_stats){
                .n_cycles = 1000, .n_rows = 200 / k, .n_passes = 1, .n_bytes = 200 / k};
            t->stats.n_emitted = k == FULL ? 2000 : (int64_t)(20 * (i % 2 ? second : 99));
        }
    return shown_best(&s->c);
}

TEST(worst_task, "a policy counts by the task where it loses most") {
    scene s;
    char *text = advice_over_tasks(&s, 95);
    CHECK_HAS(text,
              "window:64 scores 0 of 0 rows a pass (0.0001 of 0.0002 MB) and keeps 97.0% of their "
              "accept length, 95.0% in its worst task (chat).\n");
    CHECK_HAS(text, "Draft with window:64: it is faster, 1.96 times");
    CHECK_HAS(text, " in its worst task (chat), over answers of 100 tokens");
    free(text);
    retained r = compare_retained(&s.c, 2);
    CHECK_NEAR(r.mean, 0.97, 1e-12);
    CHECK_NEAR(r.worst, 0.95, 1e-12);
    CHECK_INT(r.n_tasks, 2);
    text = advice_over_tasks(&s, 70); /* the mean is still 10% faster, the worst task slower */
    CHECK_HAS(text, "Draft with full: it is faster");
    free(text);
    s.c.n_domains = 1; /* as if there were one task: the mean decides */
    for (int i = 0; i < N_TURNS; i++)
        for (int k = 0; k < 3; k++) s.samples[k][i].domain = 0;
    text = shown_best(&s.c);
    CHECK_HAS(text, "Draft with window:64");
    CHECK_HAS(text, RETAINED_BY_MEAN "\n");
    free(text);
}

TEST(pays, "in pairs: prompts that differ tenfold say nothing of two policies that share them") {
    scene s;
    set_scene(&s, N_TURNS, 1);
    for (int i = 0; i < N_TURNS; i++) {
        s.samples[FULL][i].seconds = 1 + i % 10;
        s.samples[2][i].seconds = (1 + i % 10) / 1.03;
    }
    specrt_ratio faster = compare_ratio(&s.c, 2, 1, FULL, 1);
    CHECK_NEAR(faster.value, 1.03, 1e-9);
    CHECK_NEAR(faster.low, 1.03, 1e-9);
    CHECK_NEAR(faster.high, 1.03, 1e-9);
    CHECK_NEAR(compare_ratio(&s.c, FULL, 1, 2, 1).high, 1 / 1.03, 1e-9);
    CHECK_NEAR(compare_ratio(&s.c, 2, 0.5, FULL, 1).value, 1.03 / 2, 1e-9);
    s.c.n_turns = SPECRT_ADVISE_REQUESTS - 1; /* few tell nothing of others */
    CHECK(isnan(compare_ratio(&s.c, 2, 1, FULL, 1).low));
}

/* --- what is watched --- */

TEST(greatest, "best tokens, by counting those before each") {
    uint64_t state = 3;
    float logits[200];
    int32_t ids[WATCH_MOST];
    for (int round = 0; round < 100; round++) {
        int n = 1 + (int)(fixture_random(&state) % 200), k = 1 + (int)(fixture_random(&state) % 99);
        for (int i = 0; i < n; i++) logits[i] = (float)(fixture_random(&state) % 50);
        int found = watch_greatest(logits, n, k, ids);
        CHECK_INT(found, k < n ? k : n);
        for (int i = 0; i < found; i++) { /* its place is how many are before it */
            int before = 0;
            for (int j = 0; j < n; j++)
                before += logits[j] > logits[ids[i]] || (logits[j] == logits[ids[i]] && j < ids[i]);
            CHECK_INT(before, i);
        }
    }
}

/* Cycles of 1, 2, 3, ... tokens, the domain changes twice. */
TEST(changes, "cycles fall into spans of tokens since the domain changed") {
    scene s;
    set_scene(&s, 3, 1);
    cycle_watch *w = &s.ways[2].watch;
    w->c = &s.c;
    for (int i = 1; i <= 20; i++)
        watch_add_cycle(w, i); /* 210 tokens: the last 20 to 14 make 119 */
    CHECK(isnan(compare_span(&s.c, 2, 0)));
    watch_change(&s.c);
    CHECK_NEAR(compare_span(&s.c, 2, 0), 119 / 7.0, 1e-12);
    CHECK(isnan(compare_span(&s.c, 2, 1)));
    for (int at = 0, n = 0; at < 300; at += n) {
        n = 1 + at % 7;
        w->n_since = at < 100 ? at : at - 100; /* a second turn begins at 100 or later */
        s.c.since = at < 100 ? 0 : 100;
        watch_add_cycle(w, n);
    }
    span_sums expected[WATCH_SPANS] = {{119, 7}};
    for (int at = 0, n = 0; at < 300; at += n) {
        n = 1 + at % 7;
        span_sums *e = &expected[at < 32 ? 1 : at < 64 ? 2 : at < 128 ? 3 : at < 256 ? 4 : 5];
        e->n_cycles++;
        e->n_emitted += n;
    }
    for (int i = 0; i < WATCH_SPANS; i++) {
        CHECK_INT(w->spans[i].n_cycles, expected[i].n_cycles);
        CHECK_INT(w->spans[i].n_emitted, expected[i].n_emitted);
    }
    watch_change(&s.c);
    CHECK_INT(s.c.n_changes, 2);
    CHECK(w->spans[0].n_emitted > 119 && w->spans[0].n_emitted <= 119 + WATCH_BEFORE);
    free(w->lengths);
}

TEST(watched, "mass, recall and updates are pooled") {
    scene s;
    figures f;
    set_scene(&s, 2, 1);
    figures_of(&s.c, 2, -1, &f);
    CHECK(isnan(f.mass) && isnan(f.recall[0]) && isnan(f.update_event));
    for (int t = 0; t < 2; t++) {
        turn_sample *x = &s.samples[2][t];
        x->stats.n_cycles = 50, x->stats.n_events = 5 * t;
        x->times.update = 0.01, x->event_update = 0.005 * t;
        x->lists = (list_sums){.n_positions = 10, .mass = 8 + t};
        for (int i = 0; i < WATCH_TOPS; i++) {
            x->lists.wanted[i] = 10 * watch_top(i);
            x->lists.held[i] = 8 * watch_top(i);
            x->lists.beyond[i] = (4 - 2 * t) * watch_top(i);
            x->lists.brought[i] = t * watch_top(i);
        }
    }
    figures_of(&s.c, 2, -1, &f);
    CHECK_NEAR(f.mass, 0.85, 1e-12);
    CHECK_NEAR(f.recall[1], 0.8, 1e-12);
    CHECK_NEAR(f.recall_beyond[2], 1 / 6.0, 1e-12);
    CHECK_NEAR(f.events, 0.05, 1e-12);
    CHECK_NEAR(f.update_event, 0.001, 1e-12);
    CHECK_NEAR(f.update_other, 0.015 / 95, 1e-12);
}

/* --- the check against plain decoding --- */

TEST(divergence, "the first place that differs is named") {
    scene s;
    int32_t plain[] = {4, 5, 6, 7}, other[] = {4, 5, 9, 7};
    set_scene(&s, 1, 1);
    compare_way *k = &s.ways[2];
    snprintf(k->name, sizeof k->name, "window:3072");
    s.ways[PLAIN].result.tokens = (id_list){plain, 4, 4};
    k->result.tokens = (id_list){plain, 4, 4};
    CHECK(!compare_check(&s.c, k, NULL, "code", NULL));
    CHECK_INT(s.c.n_compared, 4);
    CHECK_INT(k->n_same, 1);
    CHECK(!s.c.diverged);
    k->result.tokens.n = 3;
    s.c.prompt = 6;
    CHECK(!compare_check(&s.c, k, NULL, "code", NULL));
    CHECK(s.c.diverged);
    CHECK_STR(s.c.divergence,
              "window:3072: prompt 7 (code), token 4: expected 7 as plain decoding, "
              "found -1");
    k->result.tokens = (id_list){other, 4, 4}; /* the first place is kept */
    CHECK(!compare_check(&s.c, k, NULL, "code", NULL));
    CHECK_HAS(s.c.divergence, "token 4");
    s.c.diverged = false;
    CHECK(!compare_check(&s.c, k, NULL, "co\33[2Jde",
                         NULL)); /* a file's word, which a terminal would obey */
    CHECK_HAS(s.c.divergence, "(co?[2Jde)");
    CHECK_HAS(s.c.divergence, "token 3: expected 6 as plain decoding, found 9");
}
