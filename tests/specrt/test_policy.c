/* test_policy.c : texts of policies, what they resolve to, and what is refused. */
#include "specrt_adapt.h"
#include "specrt_tools.h"
#include "sources/source.h"
#include "decode/policy.h"
#include "decode/session.h"
#include "opened.h"
#include "specrt/root.h"

enum { N_VOCAB = 500, N_COLS = 32, N_FORCED = 3, N_DEFAULT = 100 };

static uint64_t random_state = 31;
static int32_t random_below(int32_t n) {
    return fixture_below(&random_state, n);
}

static float weights[N_VOCAB * N_COLS];
static uint8_t q4_weights[N_VOCAB * 18];
static specrt_bundle *bundle;
static specrt_head *head, *q4_head;

static void open_all(void) {
    static uint8_t *bytes;
    size_t n;
    if (bundle) return;
    for (int i = 0; i < N_VOCAB * N_COLS; i++) weights[i] = fixture_normal(&random_state);
    for (size_t i = 0; i < sizeof q4_weights; i++) q4_weights[i] = (uint8_t)(i * 37 & 63);
    bytes = fixture_ranks_bundle(N_VOCAB, N_FORCED, N_DEFAULT, &n);
    bundle = open_memory(bytes, n);
    specrt_head_desc desc = f32_rows(weights, N_VOCAB, N_COLS);
    head = bind_head(bundle, &desc);
    desc.rows = q4_weights;
    desc.dtype = SPECRT_DTYPE_Q4_0;
    q4_head = bind_head(bundle, &desc);
}

/* --- texts --- */

static const struct {
    const char *text, *canonical;
    int32_t bound;
} good[] = {
    {"full", "full", N_VOCAB},
    {"static", "static:100", 100},
    {"static:50", "static:50", 50},
    {"static:0000000050", "static:50", 50}, /* as many digits as an int32_t has */
    {"static:50/20/5", "static:50/20/5", 50},
    {"static:20/50/50", "static:20/50", 50},
    {"static:7/7/7/7/7/7/7/7", "static:7", 7},
    {"window:64+static:50/20", "static:50/20+window:64", 114},
    {"window", "window:3072", N_VOCAB},
    {"window:64", "window:64", 65},
    {"window:64@mode=unique_lru@kpre=0@positions=all@only=both@emitted=on@min=256", "window:64",
     65},
    {"window:64@kver=0@mode=stream", "window:64@mode=stream@kver=0", 65},
    {"window:64@min=2", "window:64@min=2", 65},
    {"window:64@only=ext@positions=tree+static:50", "static:50+window:64@positions=tree@only=ext",
     114},
    {"frspec", "static:499", 499}, /* one id is no token */
    {"vocabtrim+window:8", "static:499+window:8", 500},
    {"microspec", "window:3072@kver=8@positions=tree@min=3072", N_VOCAB},
    {"microspec-paper", "window:3072@mode=stream@kpre=3@positions=last@emitted=off@min=0", N_VOCAB},
    {"microspec+static:4", "static:4+window:3072@kver=8@positions=tree@min=3072", N_VOCAB},
};

TEST(good, "sizes, options and presets resolve to a canonical text and a bound") {
    open_all();
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        specrt_policy_desc desc = {.text = good[i].text};
        specrt_policy *policy = create_policy(bundle, head, &desc);
        CHECK_STR(specrt_policy_get_info(policy)->text, good[i].canonical);
        CHECK_INT(specrt_policy_get_info(policy)->bound, good[i].bound);
        const specrt_shortlist *fixed = specrt_policy_get_info(policy)->shortlist;
        CHECK((fixed != NULL) == (strpbrk(good[i].canonical, "+/w") == NULL)); /* one list */
        if (fixed) CHECK_INT(fixed->n_rows, good[i].bound);
        if (fixed && fixed->n_rows == N_VOCAB) /* the head's own, not a copy */
            CHECK(fixed->segments->rows == (const void *)weights);
        specrt_policy_close(policy);
    }
}

/* Presets of sections that this file's bundle lacks: what they stand for, by their text alone. */
TEST(papers, "presets of papers beside ours") {
    static const char *const texts[][2] = {
        {"evospec-paper", "static:32000+retrieve:256@sem=hnsw_h"},
        {"evospec", "static+retrieve:256"},
        {"hybrid", "window:3072+successor:256+sketch:256"},
        {"dynaspec-paper", "cluster:52%@schedule=harmonic@beam=per_row@always=0"},
        {"centroid:100%", "centroid:100%"},
        {"dynaspec", "cluster"},
        {"coral-paper", "group:25%@schedule=flat@beam=per_row@always=0"},
        {"coral", "group"},
        {"coral-paper+window:64", "window:64+group:25%@schedule=flat@beam=per_row@always=0"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        specrt__policy_spec spec;
        specrt_error err = {SPECRT_STATUS_OK, ""};
        char text[SPECRT__POLICY_MAX_TEXT] = "";
        CHECK_INT(specrt__policy_parse(texts[i][0], &spec, &err), SPECRT_STATUS_OK);
        CHECK_STR(err.msg, "");
        specrt__policy_print(&spec, text);
        CHECK_STR(text, texts[i][1]);
    }
    CHECK_INT(specrt_policy_check("dynaspec-paper:8", NULL), SPECRT_STATUS_BAD_ARG);
}

/* FR-Spec, section 4.1: 32,768 tokens; VocabTrim, section 4: about 32k. */
TEST(published_sizes, "lists of papers, over their vocabularies") {
    static const int32_t n_vocab[] = {1000, 32768, 128256, 151936};
    static const char *const names[] = {"frspec", "vocabtrim"};
    for (size_t v = 0; v < sizeof n_vocab / sizeof n_vocab[0]; v++) {
        int32_t n = n_vocab[v], *ids = (int32_t *)malloc((size_t)n * sizeof *ids);
        float *rows = (float *)calloc((size_t)n, sizeof *rows);
        REQUIRE(ids && rows);
        for (int32_t i = 0; i < n; i++) ids[i] = i;
        specrt_head *wide = bind_rows(NULL, rows, n, 1);
        for (int i = 0; i < 2; i++) {
            const specrt_policy_desc list = {.text = names[i], .ids = ids, .n_ids = n};
            specrt_policy *policy = create_policy(NULL, wide, &list);
            CHECK_INT(specrt_policy_get_info(policy)->n_static, n < 32768 ? n : 32768);
            specrt_policy_close(policy);
        }
        specrt_head_close(wide);
        free(rows);
        free(ids);
    }
}

static const struct {
    const char *text, *message;
} bad[] = {
    {"",
     "policy '': position 1: expected full, static, window, retrieve, cluster, group, "
     "centroid, successor, sketch, frspec, vocabtrim, microspec, microspec-paper, hybrid, evospec, "
     "evospec-paper, dynaspec, dynaspec-paper, coral or coral-paper, found the end"},
    {"statik:5", "position 1: expected full, static, window, retrieve, cluster, group"},
    {"statik:5", "found 'statik'"},
    {"cluster:0%", "position 9: expected a number from 1 to 100, found '0%'"},
    {"cluster:101%", "position 9: expected a number from 1 to 100, found '101%'"},
    {"cluster:%", "position 9: expected a number from 1 to 100, found '%'"},
    {"static:25%", "position 8: expected a number from 1 to 16777216, found '25%'"},
    {"static:5+", "position 10: expected full"},
    {"static:", "position 8: expected a number from 1 to 16777216, found the end"},
    {"static:0", "position 8: expected a number from 1 to 16777216, found '0'"},
    {"static:-3", "position 8: expected a number"},
    {"static:99999999999999999999", "position 8: expected a number"},
    {"static:5k", "found '5k'"},
    {"static :5", "found 'static '"},
    {"static:5/", "position 10: expected a number from 1 to 16777216, found the end"},
    {"static:5/0", "position 10: expected a number from 1 to 16777216, found '0'"},
    {"static:5//6", "position 10: expected a number from 1 to 16777216, found '/'"},
    {"static:1/2/3/4/5/6/7/8/9", "position 24: expected no more sizes, found '9'"},
    {"static/5", "position 7: expected '+' or the end, found '/'"},
    {"window:9/5", "position 9: expected '+' or the end, found '/'"},
    {"static@mode=stream", "position 8: expected no option for this source, found 'mode'"},
    {"full:5", "position 5: expected '+' or the end, found ':'"},
    {"full+window", "position 6: expected 'full' without other sources"},
    {"window+full", "position 8: expected 'full' without other sources"},
    {"window+microspec", "position 8: expected each source once, found 'microspec'"},
    {"static:1+static:2", "position 10: expected each source once, found 'static'"},
    {"microspec:5", "position 10: expected '+' or the end, since a preset takes no size"},
    {"microspec@kpre=1", "position 10: expected '+' or the end, since"},
    {"window:5@",
     "position 10: expected mode, kpre, kver, positions, only, emitted, min or rows, found "},
    {"window:5@size=3", "found 'size'"},
    {"window:5@min=1@min=2", "position 16: expected each option once, found 'min'"},
    {"rows:5", "position 1: expected full, static, "},
    {"window:5@mode", "position 14: expected '=', found the end"},
    {"window:5@mode=", "position 15: expected unique_lru or stream, found the end"},
    {"window:5@mode=lru", "position 15: expected unique_lru or stream, found 'lru'"},
    {"window:5@mode=streams", "found 'streams'"},
    {"window:5@kpre=17", "position 15: expected a number from 0 to 16, found '17'"},
    {"window:5@kpre=", "expected a number from 0 to 16, found the end"},
    {"window:5 @kpre=1", "found '5 '"},
    {"window:5@kpre=1,", "found '1,'"},
    {"cluster@schedule=flta", "position 18: expected table, harmonic or flat, found 'flta'"},
    {"group@beam=", "position 12: expected level or per_row, found the end"},
    {"centroid@schedule=table harmonic", "expected table, harmonic or flat, found 'table h"},
};

/* `found` ends with the word, not with the rest of the text. */
TEST(bad, "errors name the position, what was expected and what was found") {
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        specrt_error err = {SPECRT_STATUS_OK, ""};
        CHECK(specrt_policy_check(bad[i].text, &err) == SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(err.msg, bad[i].message);
    }
}

TEST(names, "every name of every option is a value, and what is none is refused with all of them") {
    int n_names = 0;
    for (int kind = 0; kind < (int)SPECRT__POLICY_KINDS; kind++)
        for (int i = 0; i < specrt__policy_n_options(&specrt__policy_kinds[kind]); i++) {
            const specrt__source_option *option = &specrt__policy_kinds[kind].source->options[i];
            specrt_error err = {SPECRT_STATUS_OK, ""};
            char text[80], names[80] = "";
            int n =
                snprintf(text, sizeof text, "%s@%s=", specrt__policy_kinds[kind].name, option->key);
            if (option->names) snprintf(names, sizeof names, "%s", option->names);
            strcpy(text + n, "x");
            CHECK(specrt_policy_check(text, &err) == SPECRT_STATUS_BAD_ARG);
            for (char *name = strtok(names, " "); name; name = strtok(NULL, " "), n_names++) {
                CHECK_HAS(err.msg, name);
                strcpy(text + n, name);
                CHECK_INT(specrt_policy_check(text, NULL), SPECRT_STATUS_OK);
            }
            CHECK_HAS(err.msg, option->names ? ", found 'x'" : "expected a number from ");
        }
    CHECK(n_names > 30);
}

TEST(longest, "the longest text, with every source, size and option, is printed whole") {
    static const char *const text =
        "static:16777216/16777215/16777214/16777213/16777212/16777211/16777210/16777209"
        "+window:16777216@mode=stream@kpre=8@kver=8@positions=last@only=ctx@emitted=off@min="
        "16777216"
        "+retrieve:16777216@sem=hnsw_h@graph=off@keep=on@mode=async@prompt=tokens"
        "+cluster:16777216@schedule=harmonic@beam=per_row@cap=16777216@always=65536"
        "+group:16777216@schedule=harmonic@beam=per_row@cap=16777216@always=65536"
        "+centroid:16777216@schedule=harmonic@beam=per_row@cap=16777216@always=65536"
        "+successor:16777216+sketch:16777216@signs=4080@keep=16777216@scan=16777216";
    char printed[SPECRT__POLICY_MAX_TEXT];
    specrt__policy_spec spec;
    REQUIRE(specrt__policy_parse(text, &spec, NULL) == SPECRT_STATUS_OK);
    specrt__policy_print(&spec, printed);
    CHECK_STR(printed, text);
}

TEST(round_trip, "any text is either refused or printed as one that is read as the same") {
    static const char *const parts[] = {"full",   "static", "window",  "microspec-paper",
                                        ":",      "7",      "+",       "@",
                                        "mode",   "stream", "kpre",    "=",
                                        "0",      "min",    "only",    "ctx",
                                        "rows",   "tree",   "emitted", "off",
                                        "frspec", "/"};
    int n_good = 0;
    for (int round = 0; round < 200000; round++) {
        char text[SPECRT__POLICY_MAX_TEXT] = "", printed[SPECRT__POLICY_MAX_TEXT];
        specrt__policy_spec spec, again;
        for (int n = random_below(9); n >= 0; n--)
            strcat(text, parts[random_below((int32_t)(sizeof parts / sizeof parts[0]))]);
        if (specrt_policy_check(text, NULL) != SPECRT_STATUS_OK) continue;
        REQUIRE(specrt__policy_parse(text, &spec, NULL) == SPECRT_STATUS_OK);
        if (spec.sources[SPECRT__POLICY_STATIC].size < 0) continue; /* resolved with a bundle */
        specrt__policy_print(&spec, printed);
        REQUIRE(specrt__policy_parse(printed, &again, NULL) == SPECRT_STATUS_OK);
        CHECK(memcmp(&spec, &again, sizeof spec) == 0);
        n_good++;
    }
    CHECK(n_good > 500);
}

/* --- what does not fit the bundle, the head or the session --- */

static void check_refused(const specrt_bundle *b, const specrt_policy_desc *desc,
                          specrt_status status, const char *message) {
    specrt_error err = {SPECRT_STATUS_OK, ""};
    specrt_policy *policy;
    CHECK_INT(specrt_policy_create(b, head, desc, &policy, &err), status);
    CHECK(policy == NULL);
    CHECK_HAS(err.msg, message);
}

TEST(refused, "missing sections, sizes and terminators out of range") {
    open_all();
    int32_t terminators[70] = {0, 1, N_VOCAB};
    specrt_policy_desc list = {.text = "static"}, large = {.text = "static:501"};
    specrt_policy_desc levels = {.text = "static:90/2"};
    check_refused(NULL, &list, SPECRT_STATUS_BUNDLE_SECTION_MISSING, "vocabtrim-calibrate");
    check_refused(
        bundle, &large, SPECRT_STATUS_BAD_ARG,
        "policy 'static:501': b.specb: static: size: expected 3 (3 forced tokens) to 499, or none "
        "for the default 100, found 501");
    check_refused(
        bundle, &levels, SPECRT_STATUS_BAD_ARG,
        "policy 'static:90/2': b.specb: static: size: expected 3 (3 forced tokens) to 499");
    specrt_policy_desc few = {.text = "microspec", .n_vocab = 300};
    specrt_policy_desc many = {.text = "microspec", .n_vocab = 501};
    check_refused(bundle, &few, SPECRT_STATUS_BAD_ARG,
                  "policy 'microspec': n_vocab: expected 500 (the bundle's)");
    check_refused(bundle, &many, SPECRT_STATUS_BAD_ARG, "the head's 500 rows, found 501");
    specrt_policy_desc outside = {.text = "full", .terminators = terminators, .n_terminators = 3};
    check_refused(bundle, &outside, SPECRT_STATUS_BAD_ARG, "from 0 to 499, found 500");
    for (int32_t i = 0; i < 70; i++) terminators[i] = i;
    specrt_policy_desc flood = {.text = "full", .terminators = terminators, .n_terminators = 70};
    check_refused(bundle, &flood, SPECRT_STATUS_BAD_ARG, "expected at most 64, found more");
    for (int32_t i = 64; i < 70; i++)
        terminators[i] = 63; /* those that are given twice count once */
    specrt_policy *policy = create_policy(bundle, head, &flood);
    specrt_policy_close(policy);
    flood.n_terminators = -1;
    check_refused(bundle, &flood, SPECRT_STATUS_BAD_ARG,
                  "terminators: expected n_terminators tokens, found a list and -1");
    flood.n_terminators = 1, flood.terminators = NULL;
    check_refused(bundle, &flood, SPECRT_STATUS_BAD_ARG, "n_terminators tokens, found NULL and 1");
}

/* --- facts --- */

/* Short names of the facts that are true. */
static void list_facts(const specrt_policy_info *info, char *out) {
    const struct {
        const char *name;
        int32_t value;
    } facts[] = {{"full ", info->is_full},
                 {"learns ", info->learns},
                 {"keeps ", info->keeps},
                 {"level ", info->by_level},
                 {"path ", info->by_path},
                 {"states ", info->by_states},
                 {"prompt ", info->needs_prompt_logits},
                 {"tree ", info->needs_tree_rows},
                 {"input ", info->needs_draft_input},
                 {"submit ", info->needs_submit}};
    *out = '\0';
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        CHECK(facts[i].value == 0 || facts[i].value == 1);
        if (facts[i].value) strcat(out, facts[i].name);
    }
}

TEST(facts, "what a policy needs and how its rows change") {
    static const struct {
        const char *text;
        int32_t n_static, n_packed; /* packed: the terminator too, unless it is in a list */
        const char *facts;
    } policies[] = {
        {"full", 0, 0, "full "},
        {"static:50", 50, 0, ""},
        {"static:50/20", 0, 0, "level "},
        {"static:50+window:9", 50, 9, "learns "},
        {"window:9@kpre=1", 0, 10, "learns prompt "},
        {"microspec", 0, N_VOCAB, "learns tree "},
        {"microspec-paper", 0, N_VOCAB, "learns prompt "},
        {"window:9@positions=tree@kver=0@kpre=0", 0, 10, "learns "}, /* the tree's tokens alone */
        {"window:9@positions=tree@only=ctx@kpre=1", 0, 10, "learns prompt "},
        {"retrieve:9", 0, 10, "learns "},
        {"static+retrieve:9@keep=on@prompt=best", 20, 9, "learns keeps prompt "},
        {"retrieve:9@mode=async", 0, 10, "learns submit "},
        {"successor:9", 0, 1, "level path "},
        {"sketch:9", 0, 1, "level path states "},
        {"centroid:2", 0, 1, "level path states "},
        {"group:2", 0, 1, "level path states "},
        {"cluster:2", 0, 1, "level path states input "},
        {"static:40+cluster:2+window:9", 40, 9, "learns level path states input "},
    };
    static float rows[N_VOCAB * 8];
    const specrt_head_desc embedding = {.rows = rows, .n_rows = N_VOCAB, .n_cols = 8};
    size_t n;
    open_all();
    uint8_t *bytes = fixture_all_sections(N_VOCAB, N_COLS, 8, &n);
    specrt_bundle *b = open_memory(bytes, n);
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        const specrt_policy_desc desc = {.text = policies[i].text, .embedding = &embedding};
        char facts[128];
        specrt_policy *policy = create_policy(b, head, &desc);
        const specrt_policy_info *info = specrt_policy_get_info(policy);
        list_facts(info, facts);
        CHECK_STR(facts, policies[i].facts);
        CHECK_INT(info->n_static, policies[i].n_static);
        CHECK_INT(info->n_packed, policies[i].n_packed);
        CHECK((info->static_ids != NULL) == (info->n_static > 0));
        for (int32_t k = 0; k < info->n_static; k++)
            CHECK_INT(info->static_ids[k], (7 * k + 3) % N_VOCAB);
        specrt_policy_close(policy);
    }
    specrt_bundle_close(b);
    free(bytes);
}

/* --- a list that the application passes --- */

enum { N_LIST = 60 };

/* Distinct tokens by chance. */
static void choose_list(int32_t *ids) {
    int32_t all[N_VOCAB];
    for (int32_t i = 0; i < N_VOCAB; i++) all[i] = i;
    for (int32_t i = 0; i < N_LIST; i++) {
        int32_t j = i + random_below(N_VOCAB - i);
        ids[i] = all[j];
        all[j] = all[i];
    }
}

/* The shortlist scores these tokens, each once and with the product of its row. */
static void check_tokens(const specrt_shortlist *shortlist, const bool *expected) {
    float hidden[N_COLS], logits[2 * N_VOCAB];
    int32_t column = 0;
    bool seen[N_VOCAB] = {false};
    for (int i = 0; i < N_COLS; i++) hidden[i] = fixture_normal(&random_state);
    REQUIRE(specrt_shortlist_logits(shortlist, hidden, 1, logits) == SPECRT_STATUS_OK);
    for (int32_t k = 0; k < shortlist->n_segments; k++)
        for (int32_t i = 0; i < shortlist->segments[k].n_rows; i++, column++) {
            int32_t id = shortlist->segments[k].ids[i];
            double sum = 0;
            if (isinf(logits[column])) continue; /* masked: another segment has it */
            for (int c = 0; c < N_COLS; c++) sum += (double)weights[id * N_COLS + c] * hidden[c];
            CHECK_NEAR((double)logits[column], sum, 1e-4);
            CHECK(!seen[id]);
            seen[id] = true;
        }
    CHECK(memcmp(seen, expected, sizeof seen) == 0);
}

static void check_ids(const specrt_bundle *b, const char *text, const char *canonical,
                      const int32_t *sizes, int32_t n_sizes) {
    static const int32_t end = 77;
    int32_t given[N_LIST], list[N_LIST];
    float hidden[N_COLS] = {0};
    choose_list(list);
    memcpy(given, list, sizeof list);
    specrt_policy_desc desc = {.text = text,
                               .n_vocab = N_VOCAB,
                               .terminators = &end,
                               .n_terminators = 1,
                               .ids = given,
                               .n_ids = N_LIST};
    specrt_session_params params = {.n_logits = N_VOCAB, .tree = {.topk = 4}};
    specrt_policy *policy = create_policy(b, head, &desc);
    memset(given, 0, sizeof given); /* it was copied */
    CHECK_STR(specrt_policy_get_info(policy)->text, canonical);
    specrt_session *s = create_session(policy, &params, NULL);
    root(s, 77);
    for (int32_t level = 0; level < 6; level++) {
        const specrt_beam beam = {.n = 1, .tokens = &end, .logprobs = hidden};
        bool expected[N_VOCAB] = {
            [77] = true, [3] = b != NULL}; /* rank 0 ends the bundle's texts */
        for (int32_t i = 0; i < sizes[level < n_sizes ? level : n_sizes - 1]; i++)
            expected[list[i]] = true;
        const specrt_shortlist *shortlist = specrt_session_route(s, level, &beam, hidden, NULL);
        REQUIRE(shortlist != NULL);
        check_tokens(shortlist, expected);
    }
    close_both(s, policy);
}

TEST(ids, "the application's list, with and without a bundle, whose ranks are another one") {
    static const int32_t all = N_LIST, some = 40, levels[] = {20, 50, 5};
    open_all();
    for (int with = 0; with < 2; with++) {
        const specrt_bundle *b = with ? bundle : NULL;
        for (int round = 0; round < 5; round++) {
            check_ids(b, "static", "static:60", &all, 1);
            check_ids(b, "static:40", "static:40", &some, 1);
            check_ids(b, "static:20/50/5", "static:20/50/5", levels, 3);
            check_ids(b, "frspec", "static:60", &all, 1); /* 127 of this vocabulary */
        }
    }
}

TEST(ids_and_window, "other sources keep to the bundle: a window is filled up by its ranks") {
    static const int32_t list[] = {400, 401, 402};
    specrt_policy_desc desc = {.text = "static+window:12@min=12", .ids = list, .n_ids = 3};
    specrt_session_params params = {.n_logits = N_VOCAB, .tree = {.topk = 4}};
    bool expected[N_VOCAB] = {[3] = true, [7] = true, [400] = true, [401] = true, [402] = true};
    open_all();
    specrt_policy *policy = create_policy(bundle, head, &desc);
    specrt_session *s = create_session(policy, &params, NULL);
    root(s, 7);
    int32_t n = specrt_session_shortlist(s)->n_rows;
    for (int32_t i = 0; i < n - 5; i++) expected[7 * (i + N_FORCED) + 3] = true;
    CHECK(n > 5 && n <= specrt_policy_get_info(policy)->bound);
    check_tokens(specrt_session_shortlist(s), expected);
    close_both(s, policy);
}

TEST(ids_refused, "lists with doubles, ids or sizes out of range, or no use") {
    const struct {
        const char *text;
        int32_t ids[4], n_ids;
        const char *message;
    } wrong[] = {
        {"static",
         {5, 6, 7, 5},
         4,
         "'static': ids: expected distinct tokens, found 5 at entries 0"},
        {"static", {5, 6, 6, 6}, 4, "ids: expected distinct tokens, found 6 at entries 1 and 2"},
        {"static:2", {5, 6, 6, 6}, 4, "found 6 at entries 1 and 2"}, /* beyond the size, too */
        {"static", {5, -1, 6, 7}, 4, "ids: entry 1: expected a token from 0 to 499 (n_vocab - 1)"},
        {"static", {5, 6, N_VOCAB, 7}, 4, "ids: entry 2: expected a token from 0 to 499"},
        {"static:5", {5, 6, 7, 8}, 4, "static: size: expected 1 (0 forced tokens) to 4, or none"},
        {"static:2/5", {5, 6, 7, 8}, 4, "static: size: expected 1 (0 forced tokens) to 4, or none"},
        {"static", {5}, 0, "ids: expected n_ids tokens, or NULL and 0, found a list and 0"},
        {"static", {5}, -3, "ids: expected n_ids tokens, or NULL and 0, found a list and -3"},
        {"window:40", {5}, 1, "policy 'window:40': ids: expected source static, which takes them"},
        {"full", {5}, 1, "policy 'full': ids: expected source static, which takes them"},
    };
    open_all();
    for (int with = 0; with < 2; with++)
        for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
            specrt_policy_desc desc = {
                .text = wrong[i].text, .ids = wrong[i].ids, .n_ids = wrong[i].n_ids};
            check_refused(with ? bundle : NULL, &desc, SPECRT_STATUS_BAD_ARG, wrong[i].message);
        }
    specrt_policy_desc none = {.text = "static", .n_ids = 3};
    check_refused(bundle, &none, SPECRT_STATUS_BAD_ARG, "or NULL and 0, found NULL and 3");
    none.n_ids = -3;
    check_refused(bundle, &none, SPECRT_STATUS_BAD_ARG, "or NULL and 0, found NULL and -3");
}

/* --- sizes and vocabularies that do not fit each other --- */

/* A head with fewer rows than the bundle has tokens, whatever the vocabulary is said to be. */
TEST(small_head, "a bundle of more tokens than the head has rows") {
    open_all();
    specrt_head_desc desc = {.rows = weights, .n_rows = 300, .n_cols = N_COLS};
    for (int32_t n_vocab = 0; n_vocab <= N_VOCAB; n_vocab += 100) {
        specrt_policy_desc wanted = {.text = "window:9", .n_vocab = n_vocab};
        specrt_policy *policy;
        specrt_error err;
        specrt_head *small = bind_head(NULL, &desc);
        CHECK_INT(specrt_policy_create(bundle, small, &wanted, &policy, &err),
                  SPECRT_STATUS_BUNDLE_MISMATCH);
        CHECK_STR(err.msg,
                  "policy 'window:9': b.specb: expected a head with rows for its 500 tokens, "
                  "found 300 rows; use the bundle made for this model");
        specrt_head_close(small);
    }
}

/* A bundle of a head whose tokenizer nobody named says nothing of the vocabulary. */
TEST(no_tokenizer, "a bundle of a head alone leaves the vocabulary to it") {
    specrt_ident ident = {.n_vocab = 0};
    fixture_section section = {"ident", 1, 0, &ident, sizeof ident, sizeof ident};
    specrt_policy_desc desc = {.text = "full"};
    size_t n;
    open_all();
    uint8_t *bytes = fixture_bundle(&section, 1, &n);
    specrt_bundle *b = open_memory(bytes, n);
    specrt_policy *policy = create_policy(b, head, &desc);
    CHECK_INT(specrt_policy_get_info(policy)->bound, N_VOCAB);
    specrt_policy_close(policy);
    desc.n_vocab = N_VOCAB - 100; /* what the application says goes before */
    policy = create_policy(b, head, &desc);
    CHECK_INT(specrt_policy_get_info(policy)->bound, N_VOCAB - 100);
    specrt_policy_close(policy);
    specrt_bundle_close(b);
    free(bytes);
}

TEST(topk, "topk above the shortlist is refused") {
    open_all();
    specrt_session *session;
    specrt_error err;
    specrt_policy *policy = create_policy(bundle, head, &(specrt_policy_desc){.text = "static:5"});
    CHECK(specrt_session_create(policy, NULL, NULL, &session, &err) == SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "n_logits: expected the columns of the target's logits, at least 500");
    specrt_session_params params = {.n_logits = N_VOCAB};
    CHECK(specrt_session_create(policy, &params, NULL, &session, &err) == SPECRT_STATUS_BAD_ARG);
    CHECK(session == NULL);
    CHECK_HAS(err.msg, "topk: expected at most the 5 rows of policy 'static:5', found 10");
    params.tree.topk = 5;
    CHECK(specrt_session_create(policy, &params, NULL, &session, &err) == SPECRT_STATUS_OK);
    close_both(session, policy);
}

TEST(few_logits, "a target without logits for what may be proposed could not verify it") {
    open_all();
    specrt_policy_desc desc = {.text = "full", .n_vocab = 400};
    specrt_session_params params = {.n_logits = 399};
    specrt_session *session;
    specrt_error err;
    specrt_policy *policy = create_policy(NULL, head, &desc);
    CHECK(specrt_session_create(policy, &params, NULL, &session, &err) == SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "at least 400, one for every token that may be proposed");
    params.n_logits = 400;
    CHECK(specrt_session_create(policy, &params, NULL, &session, &err) == SPECRT_STATUS_OK);
    close_both(session, policy);
}

/* A list that frequencies fill: the bundle's ranks, or ascending ids; at least topk of them. */
TEST(fill, "short windows are filled by frequency") {
    open_all();
    for (int with = 0; with < 2; with++) {
        const int32_t end[2] = {499, 0};
        specrt_policy_desc desc = {
            .text = "window:30@min=12", .terminators = end, .n_terminators = 2};
        specrt_session_params params = {.n_logits = N_VOCAB, .tree = {.topk = 14}};
        specrt_policy *policy = create_policy(with ? bundle : NULL, head, &desc);
        CHECK_INT(specrt_policy_get_info(policy)->bound, with ? 33 : 32);
        CHECK_INT(policy->n_frequent, with ? 499 - 3 : 500); /* all but invalid and forced ones */
        specrt_session *session = create_session(policy, &params, NULL);
        CHECK_INT(specrt_session_shortlist(session)->n_rows, with ? 3 : 2);
        root(session, 7);
        const specrt_shortlist *shortlist = specrt_session_shortlist(session);
        CHECK_INT(shortlist->n_rows, 14);
        bool seen[N_VOCAB] = {false};
        for (int32_t i = 0; i < 14; i++) seen[shortlist->segments[0].ids[i]] = true;
        CHECK(seen[499] && seen[0] && seen[7]);
        /* rank r of the fixture is id (7 r + 3) mod 500; ranks 0 to 2 are forced, 0 a terminator */
        if (with) CHECK(seen[3]);
        CHECK(specrt__pool_valid(session->pool, 496) == !with); /* the last rank */
        for (int32_t i = 0; i < 10; i++) CHECK(seen[with ? 7 * (i + 3) + 3 : i]);
        close_both(session, policy);
    }
}

/* A prompt that goes on while a window that learns from nothing else is filled up. */
TEST(late_prompt, "a prompt that goes on takes the place of what filled up") {
    open_all();
    specrt_policy_desc desc = {.text = "window:8@only=ctx"};
    specrt_session_params params = {.n_logits = N_VOCAB, .tree = {.topk = 8}};
    const specrt_request turn = {.begin = SPECRT_BEGIN_TURN};
    specrt_policy *policy = create_policy(NULL, head, &desc);
    specrt_session *session = create_session(policy, &params, NULL);
    root(session, 7);
    for (int32_t token = 100; token < 130; token++) {
        REQUIRE(specrt_session_begin(session, &turn) == SPECRT_STATUS_OK);
        root_prompt(session, token);
        REQUIRE(specrt_session_observe_chain(session, &token, 1, 0, 5, NULL) == SPECRT_STATUS_OK);
        CHECK_INT(specrt_session_shortlist(session)->n_rows, 8);
        CHECK(specrt_session_member(session, token, 0) == SPECRT_MEMBER_NOW);
        CHECK(specrt_session_member(session, 0, 0) ==
              (token < 106 ? SPECRT_MEMBER_NOW : SPECRT_MEMBER_NO));
    }
    close_both(session, policy);
}

/* `full` over rows that are decoded when packed scores what a static list of all would. */
TEST(full_decoded, "full over a 4-bit head") {
    open_all();
    float hidden[N_COLS], logits[N_VOCAB], row[N_COLS];
    const specrt_session_params params = {.n_logits = N_VOCAB};
    specrt_policy *policy = create_policy(NULL, q4_head, &(specrt_policy_desc){.text = "full"});
    specrt_session *session = create_session(policy, &params, NULL);
    for (int i = 0; i < N_COLS; i++) hidden[i] = fixture_normal(&random_state);
    const specrt_shortlist *shortlist = specrt_session_shortlist(session);
    CHECK_INT(shortlist->n_rows, N_VOCAB);
    REQUIRE(specrt_shortlist_logits(shortlist, hidden, 1, logits) == SPECRT_STATUS_OK);
    for (int id = 0; id < N_VOCAB; id++) {
        double sum = 0, size = 0;
        specrt_row_decode(SPECRT_DTYPE_Q4_0, q4_weights + 18 * id, N_COLS, row);
        for (int i = 0; i < N_COLS; i++)
            sum += (double)row[i] * (double)hidden[i], size += fabs((double)row[i] * hidden[i]);
        CHECK_NEAR(logits[id], sum, 1e-3 * size + 1e-6);
    }
    close_both(session, policy);
}

TEST(no_memory, "memory that runs out at any point leaves nothing behind") {
    open_all();
    specrt_head_desc hd = f32_rows(weights, N_VOCAB, N_COLS);
    static const char *const texts[] = {"full", "static:50+window:40@mode=stream", "microspec",
                                        "static:50/20/90+window:40", "static"};
    static const int32_t list[] = {9, 4, 7, 300, 2, 11, 200, 30, 31, 32};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        specrt_status status = SPECRT_STATUS_NO_MEMORY;
        for (int fail_at = 1; status == SPECRT_STATUS_NO_MEMORY; fail_at++) {
            fixture_allocator a = {0, 0, fail_at};
            specrt_env env = fixture_desc(&a);
            specrt_policy_desc desc = {.text = texts[i]};
            if (i == 4) desc.ids = list, desc.n_ids = 10;
            specrt_head *h = NULL;
            specrt_policy *policy = NULL;
            specrt_session *session = NULL;
            status = specrt_head_bind(bundle, &hd, &env, &h, NULL);
            if (h) status = specrt_policy_create(bundle, h, &desc, &policy, NULL);
            const specrt_session_params params = {.n_logits = N_VOCAB};
            if (policy) status = specrt_session_create(policy, &params, NULL, &session, NULL);
            CHECK((session != NULL) == (status == SPECRT_STATUS_OK));
            close_all(session, policy, h);
            CHECK_INT(a.n_live, 0);
        }
        CHECK_INT(status, SPECRT_STATUS_OK);
    }
    specrt_policy_close(NULL);
    specrt_session_close(NULL);
}

/* Each preset by number is one that parses by name and by what it stands for; errors list the same ones. */
TEST(presets, "presets by number, and what to draft with untried") {
    char text[256], cut[4];
    const char *name;
    specrt_error err, list;
    int32_t n = 0;
    CHECK_INT(specrt_policy_check("nothing", &list), SPECRT_STATUS_BAD_ARG);
    for (; (name = specrt_policy_preset(n, text, sizeof text)) != NULL; n++) {
        CHECK_HAS(list.msg, name);
        CHECK_INT(specrt_policy_check(name, &err), SPECRT_STATUS_OK);
        CHECK_INT(specrt_policy_check(text, &err), SPECRT_STATUS_OK);
        if (strcmp(name, "hybrid") == 0) CHECK_STR(text, "window:3072+successor:256+sketch:256");
        if (strcmp(name, "coral") == 0) CHECK_STR(text, "group");
        CHECK_STR(specrt_policy_preset(n, cut, sizeof cut), name);
        CHECK(strncmp(cut, text, 3) == 0 && cut[3] == 0);
    }
    CHECK_INT(n, 11);
    CHECK(specrt_policy_preset(-1, text, sizeof text) == NULL);
    for (int i = 0; i < 4; i++) {
        const char *untried = specrt_policy_untried(i & 1, i & 2);
        CHECK_INT(specrt_policy_check(untried, &err), SPECRT_STATUS_OK);
        for (int k = 0; k < i; k++)
            CHECK(strcmp(untried, specrt_policy_untried(k & 1, k & 2)) != 0);
    }
    CHECK_STR(specrt_policy_untried(0, 0), "microspec"); /* needs no bundle */
    CHECK_STR(specrt_policy_untried(1, 1), "hybrid");
}
