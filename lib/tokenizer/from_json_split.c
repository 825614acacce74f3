/* from_json_split.c : the "normalizer" and "pre_tokenizer" members of a tokenizer.json. Common
 * combinations become the encoder's own fields and hand-written splitters, other pre-tokenizers a
 * list of steps. */
#include <stdlib.h>
#include <string.h>
#include "tokenizer/from_json.h"
#include "base/error.h"
#include "tokenizer/split.h"

#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */
#define MAX_DEPTH  8              /* of Sequences in Sequences */

static bool same(const char *text, size_t n, const char *word) {
    return n == strlen(word) && memcmp(text, word, n) == 0;
}

static specrt_status unsupported(const tokenizer *tok, const char *where, const char *what,
                                 size_t n, const char *supported, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED, "%s: %s is %.*s; supported: %s",
                            tok->path, where, n > 60 ? 60 : (int)n, what, supported);
}

/* The type member of a normalizer or pre-tokenizer. */
static specrt_status read_type(const tokenizer *tok, json_object *spec, const char *where,
                               const char **type, size_t *n, specrt_error *err) {
    if (!json_object_is_type(spec, json_type_object))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: %s; expected an object",
                                tok->path, where);
    return sl_tok_json_string(tok, spec, where, "type", true, type, n, err);
}

/* The members of a Sequence. */
static specrt_status read_list(const tokenizer *tok, json_object *spec, const char *where,
                               const char *key, json_object **list, specrt_error *err) {
    if (json_object_object_get_ex(spec, key, list) && json_object_is_type(*list, json_type_array))
        return SPECRT_STATUS_OK;
    return sl_tok_json_bad(tok, where, key, *list, "an array", err);
}

/* The pattern of a Split or Replace: {"String": ...} or {"Regex": ...}. */
static specrt_status read_pattern(const tokenizer *tok, json_object *spec, const char *where,
                                  const char **pattern, size_t *n, bool *regex, specrt_error *err) {
    json_object *object = NULL;
    if (!json_object_object_get_ex(spec, "pattern", &object) ||
        !json_object_is_type(object, json_type_object))
        return sl_tok_json_bad(tok, where, "pattern", object, "an object with String or Regex",
                               err);
    *regex = json_object_object_get_ex(object, "Regex", NULL);
    return sl_tok_json_string(tok, object, where, *regex ? "Regex" : "String", true, pattern, n,
                              err);
}

/* ---- normalizer ---- */

static const char normalizers[] = "NFC, NFD, NFKC, NFKD, Prepend, Replace (of a String), Sequence";

static specrt_status read_replace(tokenizer *tok, json_object *spec, specrt_error *err) {
    static const char where[] = "normalizer.Replace";
    const char *from, *to;
    size_t n_from, n_to;
    bool regex;
    specrt_status status = read_pattern(tok, spec, where, &from, &n_from, &regex, err);
    if (!status) status = sl_tok_json_string(tok, spec, where, "content", true, &to, &n_to, err);
    if (status) return status;
    if (regex) return unsupported(tok, where, "of a Regex", 10, normalizers, err);
    if (same(from, n_from, " ") && same(to, n_to, SPACE_MARK)) {
        tok->spm_spaces = true;
        return SPECRT_STATUS_OK;
    }
    if (tok->spm_spaces)
        return unsupported(tok, where, "behind that of spaces", 21, normalizers, err);
    return sl_tok_add_normal(tok, TOK_NORMAL_REPLACE, from, n_from, to, n_to, err);
}

static specrt_status read_prepend(tokenizer *tok, json_object *spec, specrt_error *err) {
    const char *text;
    size_t n;
    specrt_status status =
        sl_tok_json_string(tok, spec, "normalizer.Prepend", "prepend", true, &text, &n, err);
    return status ? status : sl_tok_add_normal(tok, TOK_NORMAL_PREPEND, "", 0, text, n, err);
}

static specrt_status read_normalizer(tokenizer *tok, json_object *spec, int depth,
                                     specrt_error *err) {
    static const struct {
        const char *name;
        tok_normal_kind kind;
    } forms[] = {{"NFC", TOK_NORMAL_NFC},
                 {"NFD", TOK_NORMAL_NFD},
                 {"NFKC", TOK_NORMAL_NFKC},
                 {"NFKD", TOK_NORMAL_NFKD}};
    const char *type;
    size_t n;
    specrt_status status = read_type(tok, spec, "normalizer", &type, &n, err);
    if (status) return status;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (same(type, n, forms[i].name))
            return sl_tok_add_normal(tok, forms[i].kind, "", 0, "", 0, err);
    if (same(type, n, "Replace")) return read_replace(tok, spec, err);
    if (same(type, n, "Prepend")) return read_prepend(tok, spec, err);
    if (!same(type, n, "Sequence") || depth == MAX_DEPTH)
        return unsupported(tok, "normalizer", type, n, normalizers, err);
    json_object *list = NULL;
    status = read_list(tok, spec, "normalizer.Sequence", "normalizers", &list, err);
    for (size_t i = 0; !status && i < json_object_array_length(list); i++)
        status = read_normalizer(tok, json_object_array_get_idx(list, i), depth + 1, err);
    return status;
}

specrt_status sl_tok_json_normalizer(tokenizer *tok, json_object *spec, specrt_error *err) {
    return spec ? read_normalizer(tok, spec, 0, err) : SPECRT_STATUS_OK;
}

/* ---- pre_tokenizer ---- */

static const char pre_tokenizers[] =
    "Split, ByteLevel, Digits, Punctuation, Metaspace, Whitespace, WhitespaceSplit, "
    "CharDelimiterSplit, Sequence";

/* `tokenizers` has Rust's \w here, which takes in the joiners. */
#define WORD_SET   "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\u200c\\u200d"
#define WHITESPACE "[" WORD_SET "]+|[^" WORD_SET "\\s]+"

#define GPT2         "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL         "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *regex;
    tok_split_kind kind;
} known_regexes[] = {
    {GPT2, TOK_SPLIT_GPT2},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL,
     TOK_SPLIT_LLAMA3},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL,
     TOK_SPLIT_QWEN2},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+"
                  "[\\r\\n]*|" TAIL,
     TOK_SPLIT_QWEN35},
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
     "+" CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}"
     "\\p{Lm}\\p{Lo}\\p{M}]*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL,
     TOK_SPLIT_O200K},
};

/* What reading the list builds. */
typedef struct builder {
    tokenizer *tok;
    tok_steps *steps;
    tok_spelling spelling; /* of the text at this point of the list */
    bool byte_level;
    specrt_error *err;
} builder;

static specrt_status add_step(builder *b, tok_step step) {
    if (b->steps->n == TOK_MAX_STEPS) {
        sl_tok_regex_free(step.regex);
        free(step.literal);
        return specrt_error_set(b->err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: pre_tokenizer has more than %d steps", b->tok->path,
                                TOK_MAX_STEPS);
    }
    step.spelling = b->spelling;
    b->steps->steps[b->steps->n++] = step;
    return SPECRT_STATUS_OK;
}

static specrt_status add_regex(builder *b, const char *regex, size_t n, tok_behavior behavior,
                               bool invert) {
    tok_step step = {.kind = TOK_STEP_REGEX, .behavior = behavior, .invert = invert};
    /* Those leave no gaps, so that every way to keep the matches is the same. */
    bool keeps = invert ? behavior == TOK_REMOVED : behavior == TOK_ISOLATED;
    for (size_t i = 0; keeps && i < sizeof known_regexes / sizeof known_regexes[0]; i++) {
        if (!same(regex, n, known_regexes[i].regex)) continue;
        step = (tok_step){.kind = TOK_STEP_SPLITTER, .splitter = known_regexes[i].kind};
        return add_step(b, step);
    }
    char where[300];
    snprintf(where, sizeof where, "%s: pre_tokenizer", b->tok->path);
    specrt_status status = sl_tok_regex_compile(regex, n, where, &step.regex, b->err);
    return status ? status : add_step(b, step);
}

static specrt_status add_literal(builder *b, const char *literal, size_t n, tok_behavior behavior,
                                 bool invert) {
    tok_step step = {
        .kind = TOK_STEP_LITERAL, .behavior = behavior, .invert = invert, .n_literal = n};
    if (n == 0) return SPECRT_STATUS_OK; /* matches nothing */
    step.literal = malloc(n);
    if (!step.literal) return sl_error_no_memory(b->err, b->tok->path);
    memcpy(step.literal, literal, n);
    return add_step(b, step);
}

static specrt_status read_behavior(builder *b, json_object *spec, const char *where, bool required,
                                   tok_behavior *out) {
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name = names[*out];
    size_t n = strlen(name);
    specrt_status status =
        sl_tok_json_string(b->tok, spec, where, "behavior", required, &name, &n, b->err);
    if (status) return status;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (same(name, n, names[i])) return *out = (tok_behavior)i, SPECRT_STATUS_OK;
    return unsupported(b->tok, "pre_tokenizer behavior", name, n,
                       "Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous", b->err);
}

static specrt_status read_split(builder *b, json_object *spec) {
    static const char where[] = "pre_tokenizer.Split";
    const char *pattern;
    size_t n;
    bool regex, invert = false;
    tok_behavior behavior = TOK_ISOLATED;
    specrt_status status = read_pattern(b->tok, spec, where, &pattern, &n, &regex, b->err);
    if (!status) status = read_behavior(b, spec, where, true, &behavior);
    if (!status) status = sl_tok_json_bool(b->tok, spec, where, "invert", false, &invert, b->err);
    if (status) return status;
    return regex ? add_regex(b, pattern, n, behavior, invert)
                 : add_literal(b, pattern, n, behavior, invert);
}

/* The space that ByteLevel or Metaspace puts in front. */
static specrt_status set_prefix(builder *b, const char *where, bool every_segment) {
    if (b->steps->n || b->byte_level || b->tok->prefix)
        return unsupported(b->tok, where, "adding a space behind another step", 34,
                           "the same as the first step", b->err);
    b->tok->prefix = TOK_PREFIX_IF_MISSING;
    b->tok->prefix_every_segment = every_segment;
    return SPECRT_STATUS_OK;
}

static specrt_status read_byte_level(builder *b, json_object *spec) {
    static const char where[] = "pre_tokenizer.ByteLevel";
    bool prefix = true, use_regex = true;
    specrt_status status =
        sl_tok_json_bool(b->tok, spec, where, "add_prefix_space", true, &prefix, b->err);
    if (!status)
        status = sl_tok_json_bool(b->tok, spec, where, "use_regex", false, &use_regex, b->err);
    if (!status && prefix) status = set_prefix(b, where, true);
    if (!status && use_regex) status = add_regex(b, GPT2, strlen(GPT2), TOK_ISOLATED, false);
    if (!status && (b->byte_level || b->spelling == TOK_SPELL_SPACES))
        status = unsupported(b->tok, where, "behind ByteLevel or Metaspace", 29,
                             "one change of alphabet", b->err);
    b->byte_level = true;
    b->spelling = TOK_SPELL_BYTE_LEVEL;
    return status;
}

static specrt_status read_digits(builder *b, json_object *spec) {
    bool each = false;
    specrt_status status = sl_tok_json_bool(b->tok, spec, "pre_tokenizer.Digits",
                                            "individual_digits", true, &each, b->err);
    if (status) return status;
    return add_step(b, (tok_step){.kind = TOK_STEP_CLASS,
                                  .behavior = each ? TOK_ISOLATED : TOK_CONTIGUOUS,
                                  .classes = UC_NUMBER});
}

static specrt_status read_punctuation(builder *b, json_object *spec) {
    tok_step step = {.kind = TOK_STEP_CLASS, .classes = UC_MARKS};
    specrt_status status =
        read_behavior(b, spec, "pre_tokenizer.Punctuation", false, &step.behavior);
    return status ? status : add_step(b, step);
}

/* U+2581 in the text is a space to us from the start, so no step may look at either before. */
static bool keep_spaces(const tok_steps *steps) {
    for (int i = 0; i < steps->n; i++)
        if (steps->steps[i].kind != TOK_STEP_CLASS || steps->steps[i].classes & UC_SPACE)
            return false;
    return true;
}

/* Older files say add_prefix_space for prepend_scheme always. */
static specrt_status read_metaspace(builder *b, json_object *spec) {
    static const char where[] = "pre_tokenizer.Metaspace";
    const char *mark = SPACE_MARK, *scheme = NULL;
    size_t n_mark = 3, n_scheme = 0;
    bool prefix = true, split = true;
    specrt_status status =
        sl_tok_json_string(b->tok, spec, where, "replacement", true, &mark, &n_mark, b->err);
    if (!status)
        status = sl_tok_json_string(b->tok, spec, where, "prepend_scheme", false, &scheme,
                                    &n_scheme, b->err);
    if (!status)
        status = sl_tok_json_bool(b->tok, spec, where, "add_prefix_space", false, &prefix, b->err);
    if (!status) status = sl_tok_json_bool(b->tok, spec, where, "split", false, &split, b->err);
    if (status) return status;
    if (!same(mark, n_mark, SPACE_MARK))
        return unsupported(b->tok, where, "not with U+2581", 15, "replacement U+2581", b->err);
    if (b->byte_level || !keep_spaces(b->steps))
        return unsupported(b->tok, where, "behind a step that may see spaces", 33,
                           "the same first, or behind Digits or Punctuation", b->err);
    if (!scheme) scheme = prefix ? "always" : "never", n_scheme = strlen(scheme);
    if (!same(scheme, n_scheme, "never")) {
        if (!same(scheme, n_scheme, "always") && !same(scheme, n_scheme, "first"))
            return unsupported(b->tok, where, scheme, n_scheme,
                               "prepend_scheme always, first, never", b->err);
        status = set_prefix(b, where, same(scheme, n_scheme, "always"));
    }
    b->tok->spm_spaces = true;
    b->spelling = TOK_SPELL_SPACES;
    if (status || !split) return status;
    return add_literal(b, SPACE_MARK, 3, TOK_MERGED_WITH_NEXT, false);
}

static specrt_status read_delimiter(builder *b, json_object *spec) {
    const char *delimiter;
    size_t n;
    specrt_status status = sl_tok_json_string(b->tok, spec, "pre_tokenizer.CharDelimiterSplit",
                                              "delimiter", true, &delimiter, &n, b->err);
    return status ? status : add_literal(b, delimiter, n, TOK_REMOVED, false);
}

static specrt_status read_whitespace(builder *b, json_object *spec) {
    (void)spec;
    return add_regex(b, WHITESPACE, strlen(WHITESPACE), TOK_REMOVED, true);
}

static specrt_status read_whitespace_split(builder *b, json_object *spec) {
    (void)spec;
    return add_step(
        b, (tok_step){.kind = TOK_STEP_CLASS, .behavior = TOK_REMOVED, .classes = UC_SPACE});
}

static specrt_status read_pre_tokenizer(builder *b, json_object *spec, int depth) {
    static const struct {
        const char *name;
        specrt_status (*read)(builder *b, json_object *spec);
    } kinds[] = {
        {"Split", read_split},
        {"ByteLevel", read_byte_level},
        {"Digits", read_digits},
        {"Punctuation", read_punctuation},
        {"Metaspace", read_metaspace},
        {"Whitespace", read_whitespace},
        {"WhitespaceSplit", read_whitespace_split},
        {"CharDelimiterSplit", read_delimiter},
    };
    const char *type;
    size_t n;
    specrt_status status = read_type(b->tok, spec, "pre_tokenizer", &type, &n, b->err);
    if (status) return status;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (same(type, n, kinds[i].name)) return kinds[i].read(b, spec);
    if (!same(type, n, "Sequence") || depth == MAX_DEPTH)
        return unsupported(b->tok, "pre_tokenizer", type, n, pre_tokenizers, b->err);
    json_object *list = NULL;
    status = read_list(b->tok, spec, "pre_tokenizer.Sequence", "pretokenizers", &list, b->err);
    for (size_t i = 0; !status && i < json_object_array_length(list); i++)
        status = read_pre_tokenizer(b, json_object_array_get_idx(list, i), depth + 1);
    return status;
}

/* A step alone that the encoder has a splitter for; TOK_SPLIT_CUSTOM if there is none. */
static tok_split_kind simple_splitter(const tok_steps *steps) {
    const tok_step *step = &steps->steps[0];
    if (steps->n == 0) return TOK_SPLIT_NONE;
    if (steps->n > 1) return TOK_SPLIT_CUSTOM;
    if (step->kind == TOK_STEP_SPLITTER && step->spelling == TOK_SPELL_PLAIN) return step->splitter;
    bool words = step->kind == TOK_STEP_LITERAL && step->spelling == TOK_SPELL_SPACES &&
                 step->behavior == TOK_MERGED_WITH_NEXT && !step->invert &&
                 same(step->literal, step->n_literal, SPACE_MARK);
    return words ? TOK_SPLIT_SPACE : TOK_SPLIT_CUSTOM;
}

specrt_status sl_tok_json_pre_tokenizer(tokenizer *tok, json_object *spec, tok_spelling *spelling,
                                        specrt_error *err) {
    builder b = {.tok = tok, .spelling = tok->spm_spaces ? TOK_SPELL_SPACES : TOK_SPELL_PLAIN};
    b.err = err;
    b.steps = calloc(1, sizeof *b.steps);
    if (!b.steps) return sl_error_no_memory(err, tok->path);
    specrt_status status = spec ? read_pre_tokenizer(&b, spec, 0) : SPECRT_STATUS_OK;
    *spelling = b.spelling;
    tok_split_kind kind = simple_splitter(b.steps);
    if (!status && kind == TOK_SPLIT_CUSTOM) {
        sl_tok_steps_use(b.steps, tok);
        return SPECRT_STATUS_OK;
    }
    tok->split = kind;
    sl_tok_steps_free(b.steps);
    return status;
}
