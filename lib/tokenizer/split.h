/* split.h : cutting text into pieces: by hand-written scanners, regexes, and steps of both. */
#ifndef TOKENIZER_SPLIT_H
#define TOKENIZER_SPLIT_H

#include "tokenizer/tokenizer_impl.h"

/* ---- the pieces of a known tokenizer's regular expression ---- */

/* sl_tok_split() : the ends of the next 1..max pieces of text [n] from offset `from` < n, which is 0 or
 * the end of a piece. Pieces tile the text. Not for TOK_SPLIT_CUSTOM.
 * @return how many. */
size_t sl_tok_split(const tok_unicode *unicode, tok_split_kind kind, const uint8_t *text, size_t n,
                    size_t from, size_t *ends, size_t max);

/* ---- regexes of tokenizer.json files ----
 * They are written for Oniguruma and its own syntax; we translate them to PCRE2 where the two differ and
 * refuse what has no translation. */

typedef struct tok_regex tok_regex;         /* immutable, shared */
typedef struct tok_regex_run tok_regex_run; /* what a match needs, one per thread */

/* sl_tok_regex_compile() : `where` ("tokenizer.json: pre_tokenizer") begins the messages.
 * @return UNSUPPORTED naming the construct, BAD_INPUT with PCRE2's reason, NO_MEMORY. */
specrt_status sl_tok_regex_compile(const char *pattern, size_t n, const char *where,
                                   tok_regex **out, specrt_error *err);
void sl_tok_regex_free(tok_regex *re);

tok_regex_run *sl_tok_regex_run_new(void); /* NULL: out of memory */
void sl_tok_regex_run_free(tok_regex_run *run);

/* sl_tok_regex_find() : the leftmost match at or after `from` in text [n], valid UTF-8; text before
 * `from` is seen by lookbehind.
 *   span : begin and end
 * @return 1, 0 for none, -1 when the match would cost more memory or steps than PCRE2's limits. */
int sl_tok_regex_find(const tok_regex *re, tok_regex_run *run, const uint8_t *text, size_t n,
                      size_t from, size_t span[2]);

/* ---- steps ----
 * A tokenizer.json's pre-tokenizers as a custom splitter: each step cuts the pieces of the one before it. */

typedef enum tok_step_kind {
    TOK_STEP_REGEX,
    TOK_STEP_LITERAL,
    TOK_STEP_CLASS,    /* single code points with a class of `classes` */
    TOK_STEP_SPLITTER, /* a hand-written splitter, whose every piece is a match */
} tok_step_kind;

/* What becomes of a match and of the text between matches, as `tokenizers` defines it. */
typedef enum tok_behavior {
    TOK_ISOLATED,
    TOK_REMOVED,
    TOK_MERGED_WITH_PREVIOUS,
    TOK_MERGED_WITH_NEXT,
    TOK_CONTIGUOUS,
} tok_behavior;

typedef struct tok_step {
    tok_step_kind kind;
    tok_behavior behavior;
    bool invert;           /* matches and gaps change places */
    tok_spelling spelling; /* how the text looks to this step */
    tok_regex *regex;      /* owned */
    char *literal;         /* owned [n_literal] */
    size_t n_literal;
    unsigned classes; /* UC_ flags */
    tok_split_kind splitter;
} tok_step;

#define TOK_MAX_STEPS 16

typedef struct tok_steps {
    const tokenizer *tok; /* whose class table is used, once it is finished */
    tok_step steps[TOK_MAX_STEPS];
    int n;
} tok_steps;

/* sl_tok_steps_use() : make them the tokenizer's splitter, which takes them over (malloc'ed). */
void sl_tok_steps_use(tok_steps *steps, tokenizer *tok);
void sl_tok_steps_free(void *steps);

#endif
