/* steps.h : a tokenizer.json's pre-tokenizers as a custom splitter: each step cuts the pieces of
 * the one before it. */
#ifndef TOKENIZER_STEPS_H
#define TOKENIZER_STEPS_H

#include "tokenizer/regex.h"
#include "tokenizer/spelling.h"

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
    unsigned classes; /* UC_ flags of unicode.h */
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
