/* regex.h : the regexes of tokenizer.json files. They are written for Oniguruma and
 * its own syntax; we translate them to PCRE2 where the two differ and refuse what has no translation. */
#ifndef TOKENIZER_REGEX_H
#define TOKENIZER_REGEX_H

#include <stddef.h>
#include <stdint.h>
#include "specrt.h"

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

#endif
