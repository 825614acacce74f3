/* policy_text.c : owns the text of a policy: its sources, presets and options, parsed and printed. Refuses
 * texts that are no policy. */
#include "specrt_adapt.h"
#include "decode/policy.h"
#include "core/base.h"
#include "sources/source.h"
#include "sources/ranks.h"
#include "sources/window.h"
#include "sources/cluster.h"
#include "sources/successor.h"
#include "sources/sketch.h"
#include "sources/retrieve.h"

/* Sources of the table that a small program leaves out. Its saved sessions have lists of `retrieve` all the
 * same. */
#if defined(SPECRT_SMALL)
static const specrt__source specrt__policy_without = {
    SPECRT__SOURCE_HAS_NO_OPTIONS, SPECRT__SOURCE_IS_LEFT_OUT, SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING};
static const specrt__source specrt__retrieve_source = {SPECRT__SOURCE_HAS_NO_OPTIONS,
                                                       SPECRT__SOURCE_IS_LEFT_OUT,
                                                       SPECRT__SOURCE_LEARNS_NOTHING,
                                                       /* n_lists = */ SPECRT__SAVED_RETRIEVAL,
                                                       /* always_saved = */ true,
                                                       NULL,
                                                       NULL,
                                                       NULL};
#define SPECRT__POLICY_LARGE(source) &specrt__policy_without
#else
#define SPECRT__POLICY_LARGE(source) &source
#endif

#define SPECRT__POLICY_KIND(NAME, ...) {__VA_ARGS__},
SPECRT__INTERNAL const specrt__policy_kind specrt__policy_kinds[SPECRT__POLICY_KINDS] = {
    SPECRT__POLICY_TABLE(SPECRT__POLICY_KIND)};

typedef char
    specrt__policy_kinds_fit[(int)SPECRT__POLICY_KINDS <= (int)SPECRT__POLICY_MAX_SOURCES ? 1 : -1];

typedef struct specrt__policy_preset {
    const char *name;
    int kind;
    int32_t size;
    const char *rest; /* its options, and further sources */
} specrt__policy_preset;

/* Sizes of papers, below 0: lists are no longer than there are tokens. CORAL's 32k of 128,256 rows are a
 * quarter of the clusters. DynaSpec's 27.3k are 21.3%, the mean of six levels, of which the first has 52%. */
static const specrt__policy_preset specrt__policy_presets[] = {
    {"frspec", SPECRT__POLICY_STATIC, -32768, ""},
    {"vocabtrim", SPECRT__POLICY_STATIC, -32768, ""},
    {"microspec", SPECRT__POLICY_WINDOW, 3072, "@kver=8@positions=tree@min=3072"},
    {"microspec-paper", SPECRT__POLICY_WINDOW, 3072,
     "@mode=stream@kpre=3@positions=last@emitted=off@min=0"},
    {"hybrid", SPECRT__POLICY_WINDOW, 3072, "+successor:256+sketch:256"},
    {"evospec", SPECRT__POLICY_STATIC, 0, "+retrieve:256"},
    {"evospec-paper", SPECRT__POLICY_STATIC, -32000, "+retrieve:256@sem=hnsw_h"},
    {"dynaspec", SPECRT__POLICY_CLUSTER, 0, ""},
    {"dynaspec-paper", SPECRT__POLICY_CLUSTER, -52, "@schedule=harmonic@beam=per_row@always=0"},
    {"coral", SPECRT__POLICY_GROUP, 0, ""},
    {"coral-paper", SPECRT__POLICY_GROUP, -25, "@schedule=flat@beam=per_row@always=0"},
};
enum { SPECRT__POLICY_PRESETS = sizeof specrt__policy_presets / sizeof specrt__policy_presets[0] };

/* As texts have it; "": as calibrated. */
static const char *specrt__policy_size(int kind, int32_t size, char number[16]) {
    bool share = size < 0 && specrt__policy_kinds[kind].takes_share;
    snprintf(number, 16, ":%d%s", (int)(size < 0 ? -size : size), share ? "%" : "");
    return size == 0 ? "" : number;
}

#if !defined(SPECRT_IMPLEMENTED) || defined(SPECRT_TOOLS)
/* By [graph][sketch]. */
static const char *const specrt__policy_untried[2][2] = {
    {"microspec", "window+sketch:256"},
    {"static:512+window+successor:256", "hybrid"},
};

SPECRT_API const char *specrt_policy_preset(int32_t i, char *text, size_t size) {
    if (i < 0 || i >= SPECRT__POLICY_PRESETS) return NULL;
    const specrt__policy_preset *preset = &specrt__policy_presets[i];
    char number[16];
    if (text && size)
        snprintf(text, size, "%s%s%s", specrt__policy_kinds[preset->kind].name,
                 specrt__policy_size(preset->kind, preset->size, number), preset->rest);
    return preset->name;
}

SPECRT_API const char *specrt_policy_untried(int has_graph, int has_sketch) {
    return specrt__policy_untried[has_graph != 0][has_sketch != 0];
}
#endif

/* --- parsing --- */

typedef struct specrt__policy_parser {
    const char *text, *at;
    specrt_error *err;
} specrt__policy_parser;

/* The length of the word at a place. */
static int specrt__policy_word(const char *at) {
    return (int)strcspn(at, "+:/@=");
}

/* The length of a name, which a blank ends where others follow it. */
static int specrt__policy_name(const char *name) {
    return (int)strcspn(name, " ");
}

static bool specrt__policy_is(const char *at, const char *name) {
    int n = specrt__policy_word(at);
    return specrt__policy_name(name) == n && strncmp(at, name, (size_t)n) == 0;
}

static specrt_status specrt__policy_fail(const specrt__policy_parser *p, const char *expected) {
    int n = specrt__policy_word(p->at);
    if (n == 0 && *p->at) n = 1; /* a delimiter */
    if (n > 40) n = 40;
    return specrt_error_set(
        p->err, SPECRT_STATUS_BAD_ARG, "policy '%.100s': position %d: expected %s, found %s%.*s%s",
        p->text, (int)(p->at - p->text) + 1, expected, n ? "'" : "the end", n, p->at, n ? "'" : "");
}

/* The decimal number of the next n characters, within limits. */
static specrt_status specrt__policy_digits(specrt__policy_parser *p, int n, int32_t least,
                                           int32_t most, int32_t *out) {
    char expected[64];
    int64_t value = 0;
    bool good = n > 0 && n <= 10;
    for (int i = 0; i < n && good; i++) {
        good = p->at[i] >= '0' && p->at[i] <= '9';
        value = 10 * value + (p->at[i] - '0');
    }
    if (!good || value < least || value > most) {
        snprintf(expected, sizeof expected, "a number from %d to %d", (int)least, (int)most);
        return specrt__policy_fail(p, expected);
    }
    *out = (int32_t)value;
    p->at += n;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__policy_number(specrt__policy_parser *p, int32_t least, int32_t most,
                                           int32_t *out) {
    return specrt__policy_digits(p, specrt__policy_word(p->at), least, most, out);
}

/* :N%, below 0. */
static specrt_status specrt__policy_share_of(specrt__policy_parser *p, int32_t *size) {
    p->at++;
    SPECRT__TRY(specrt__policy_digits(p, specrt__policy_word(p->at) - 1, 1, 100, size));
    *size = -*size;
    p->at++;
    return SPECRT_STATUS_OK;
}

/* :N, or :N/M/... for level by level; what only repeats the last is left out. */
static specrt_status specrt__policy_sizes(specrt__policy_parser *p, const specrt__policy_kind *kind,
                                          specrt__policy_source *source) {
    int32_t n = 0, *levels = source->levels, most = kind->n_sizes;
    if (kind->takes_share && p->at[specrt__policy_word(p->at + 1)] == '%')
        return specrt__policy_share_of(p, &source->size);
    do {
        p->at++;
        if (n == most) return specrt__policy_fail(p, "no more sizes");
        SPECRT__TRY(specrt__policy_number(p, 1, SPECRT_MAX_VOCAB, &levels[n++]));
    } while (*p->at == '/' && most > 1);
    source->size = levels[0];
    while (n > 1 && levels[n - 1] == levels[n - 2]) levels[--n] = 0;
    if (n == 1) levels[--n] = 0;
    source->n_levels = n;
    return SPECRT_STATUS_OK;
}

/* Adds a name to a list "a, b or c"; `left` names follow it. */
static void specrt__policy_list(char *text, size_t size, const char *name, int left) {
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%.*s%s", specrt__policy_name(name), name,
             left > 1    ? ", "
             : left == 1 ? " or "
                         : "");
}

/* The value's name and those that follow it; NULL: it has none. */
static const char *specrt__policy_value_name(const specrt__source_option *option, int32_t value) {
    const char *name = option->names;
    for (; name && value > 0; value--) {
        name = strchr(name, ' ');
        if (name) name++;
    }
    return name;
}

/* What stands after `key=`. */
static specrt_status specrt__policy_value(specrt__policy_parser *p,
                                          const specrt__source_option *option, int32_t *out) {
    char expected[128] = "";
    int32_t n = 0;
    if (!option->names) return specrt__policy_number(p, option->least, option->most, out);
    while (specrt__policy_value_name(option, n)) n++;
    for (int32_t i = 0; i < n; i++) {
        const char *name = specrt__policy_value_name(option, i);
        if (!specrt__policy_is(p->at, name)) {
            specrt__policy_list(expected, sizeof expected, name, (int)(n - 1 - i));
            continue;
        }
        *out = i;
        p->at += specrt__policy_word(p->at);
        return SPECRT_STATUS_OK;
    }
    return specrt__policy_fail(p, expected);
}

static specrt_status specrt__policy_no_option(const specrt__policy_parser *p,
                                              const specrt__policy_kind *kind) {
    char expected[200] = "";
    int n = specrt__policy_n_options(kind);
    if (n == 0) return specrt__policy_fail(p, "no option for this source");
    for (int i = 0; i < n; i++)
        specrt__policy_list(expected, sizeof expected, kind->source->options[i].key, n - 1 - i);
    return specrt__policy_fail(p, expected);
}

/* Any number of @key=value. */
static specrt_status specrt__policy_parse_options(specrt__policy_parser *p,
                                                  const specrt__policy_kind *kind, int32_t *out) {
    unsigned seen = 0;
    while (*p->at == '@') {
        int i = 0, n = specrt__policy_n_options(kind);
        p->at++;
        while (i < n && !specrt__policy_is(p->at, kind->source->options[i].key)) i++;
        if (i == n) return specrt__policy_no_option(p, kind);
        if (seen >> i & 1) return specrt__policy_fail(p, "each option once");
        seen |= 1u << i;
        p->at += specrt__policy_word(p->at);
        if (*p->at != '=') return specrt__policy_fail(p, "'='");
        p->at++;
        SPECRT__TRY(specrt__policy_value(p, &kind->source->options[i], &out[i]));
    }
    return SPECRT_STATUS_OK;
}

/* A text that other programs understand. */
static specrt_status specrt__policy_left_out(const specrt__policy_parser *p, int kind) {
    return specrt_error_set(
        p->err, SPECRT_STATUS_UNSUPPORTED,
        "policy '%.100s': position %d: expected full, static or window, found '%s'; compile "
        "specrt.h without SPECRT_SMALL",
        p->text, (int)(p->at - p->text) + 1, specrt__policy_kinds[kind].name);
}

/* The source that a word begins, with its defaults. */
static specrt_status specrt__policy_begin(specrt__policy_parser *p, specrt__policy_spec *spec,
                                          int kind, int32_t size, specrt__policy_source **out) {
    specrt__policy_source *source = &spec->sources[kind];
    bool first = true;
    for (int i = 0; i < (int)SPECRT__POLICY_KINDS; i++) first = first && !spec->sources[i].present;
    if (specrt__policy_kinds[kind].source && !specrt__policy_kinds[kind].source->share)
        return specrt__policy_left_out(p, kind);
    if (source->present) return specrt__policy_fail(p, "each source once");
    if (!first && (kind == SPECRT__POLICY_FULL || spec->sources[SPECRT__POLICY_FULL].present))
        return specrt__policy_fail(p, "'full' without other sources, because it has every token");
    source->present = true;
    source->size = size;
    for (int i = 0; i < specrt__policy_n_options(&specrt__policy_kinds[kind]); i++)
        source->options[i] = specrt__policy_kinds[kind].source->options[i].value;
    *out = source;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__policy_parse_source(specrt__policy_parser *p,
                                                 specrt__policy_spec *spec);

static specrt_status specrt__policy_parse_preset(specrt__policy_parser *p,
                                                 const specrt__policy_preset *preset,
                                                 specrt__policy_spec *spec) {
    specrt__policy_source *source;
    specrt__policy_parser rest = {preset->rest, preset->rest, p->err};
    SPECRT__TRY(specrt__policy_begin(p, spec, preset->kind, preset->size, &source));
    p->at += specrt__policy_word(p->at);
    if (*p->at && *p->at != '+')
        return specrt__policy_fail(p, "'+' or the end, since a preset takes no size or options");
    SPECRT__TRY(
        specrt__policy_parse_options(&rest, &specrt__policy_kinds[preset->kind], source->options));
    while (*rest.at == '+') {
        rest.at++;
        SPECRT__TRY(specrt__policy_parse_source(&rest, spec));
    }
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__policy_no_source(const specrt__policy_parser *p) {
    char expected[300] = "";
    int n_presets = SPECRT__POLICY_PRESETS;
    for (int i = 0; i < (int)SPECRT__POLICY_KINDS; i++)
        specrt__policy_list(expected, sizeof expected, specrt__policy_kinds[i].name,
                            (int)SPECRT__POLICY_KINDS + n_presets - 1 - i);
    for (int i = 0; i < n_presets; i++)
        specrt__policy_list(expected, sizeof expected, specrt__policy_presets[i].name,
                            n_presets - 1 - i);
    return specrt__policy_fail(p, expected);
}

static specrt_status specrt__policy_parse_source(specrt__policy_parser *p,
                                                 specrt__policy_spec *spec) {
    specrt__policy_source *source;
    int kind = 0;
    for (int i = 0; i < SPECRT__POLICY_PRESETS; i++)
        if (specrt__policy_is(p->at, specrt__policy_presets[i].name))
            return specrt__policy_parse_preset(p, &specrt__policy_presets[i], spec);
    while (kind < (int)SPECRT__POLICY_KINDS &&
           !specrt__policy_is(p->at, specrt__policy_kinds[kind].name))
        kind++;
    if (kind == (int)SPECRT__POLICY_KINDS) return specrt__policy_no_source(p);
    SPECRT__TRY(specrt__policy_begin(p, spec, kind, specrt__policy_kinds[kind].size, &source));
    p->at += specrt__policy_word(p->at);
    if (*p->at == ':' && specrt__policy_kinds[kind].n_sizes > 0)
        SPECRT__TRY(specrt__policy_sizes(p, &specrt__policy_kinds[kind], source));
    return specrt__policy_parse_options(p, &specrt__policy_kinds[kind], source->options);
}

SPECRT__INTERNAL specrt_status specrt__policy_parse(const char *text, specrt__policy_spec *out,
                                                    specrt_error *err) {
    specrt__policy_parser p = {text, text, err};
    memset(out, 0, sizeof *out);
    for (;;) {
        SPECRT__TRY(specrt__policy_parse_source(&p, out));
        if (!*p.at) return SPECRT_STATUS_OK;
        if (*p.at != '+') return specrt__policy_fail(&p, "'+' or the end");
        p.at++;
    }
}

SPECRT_API specrt_status specrt_policy_check(const char *text, specrt_error *err) {
    specrt__policy_spec spec;
    SPECRT__NEED(text);
    return specrt__policy_parse(text, &spec, err);
}

/* --- printing --- */

/* Adds to a text that has room for every policy. */
static void specrt__policy_append(char *text, const char *a, const char *b, const char *c) {
    size_t n = strlen(text);
    snprintf(text + n, SPECRT__POLICY_MAX_TEXT - n, "%s%s%s", a, b, c);
}

static void specrt__policy_print_options(const specrt__policy_kind *kind,
                                         const specrt__policy_source *source, char *text) {
    char number[16], name[32];
    for (int i = 0; i < specrt__policy_n_options(kind); i++) {
        const specrt__source_option *option = &kind->source->options[i];
        const char *names = specrt__policy_value_name(option, source->options[i]);
        if (source->options[i] == option->value) continue;
        snprintf(number, sizeof number, "%d", (int)source->options[i]);
        if (names) snprintf(name, sizeof name, "%.*s", specrt__policy_name(names), names);
        specrt__policy_append(text, "@", option->key, "=");
        specrt__policy_append(text, names ? name : number, "", "");
    }
}

SPECRT__INTERNAL void specrt__policy_print(const specrt__policy_spec *spec, char *text) {
    char number[16];
    text[0] = '\0';
    for (int kind = 0; kind < (int)SPECRT__POLICY_KINDS; kind++) {
        const specrt__policy_source *source = &spec->sources[kind];
        if (!source->present) continue;
        specrt__policy_append(text, text[0] ? "+" : "", specrt__policy_kinds[kind].name,
                              specrt__policy_size(kind, source->size, number));
        for (int i = 1; i < source->n_levels; i++) {
            snprintf(number, sizeof number, "/%d", (int)source->levels[i]);
            specrt__policy_append(text, number, "", "");
        }
        specrt__policy_print_options(&specrt__policy_kinds[kind], source, text);
    }
}
