/* input.h : the flags of tools that count a corpus: what they read and in which part. */
#ifndef COUNTS_INPUT_H
#define COUNTS_INPUT_H

#include "base/cli.h"
#include "counts/counts.h"

/* Rows of a tool's table for options `o` with the fields tokenizer, corpus, messages, field, exclude and
 * format; strict, id_bytes and n_vocab; COUNTS_INPUT() takes merge too. */
/* clang-format off */
#define COUNTS_INPUT_TEXT(o) \
    sl_cli_string("tokenizer", "T", &(o).tokenizer, \
               "GGUF, tokenizer.json, tiktoken ranks; none: the corpus has token ids"), \
    sl_cli_strings("corpus", "PATH...", &(o).corpus, \
                "files and folders: text, code, .jsonl, .json, also .gz .zst; .bin .npy ids; - is stdin"), \
    sl_cli_string("messages", "WHICH", &(o).messages, \
               "messages of conversations to count: assistant (default; the target's part) or all"), \
    sl_cli_string("field", "NAME", &(o).field, "take this field of each JSON record"), \
    sl_cli_string("exclude", "PATH", &(o).exclude, "leave this file or folder out of folders"), \
    sl_cli_string("format", "WHICH", &(o).format, \
               "read every file as text or as json (records); auto (default): by name and content")
#define COUNTS_INPUT_IDS(o) \
    sl_cli_flag("strict", &(o).strict, "stop at a bad record instead of skipping it"), \
    sl_cli_int("id-bytes", "2|4", &(o).id_bytes, 0, 0, "width of the ids of .bin files"), \
    sl_cli_int("n-vocab", "N", &(o).n_vocab, 1, COUNTS_MAX_VOCAB, "vocabulary of --tokenizer none")
#define COUNTS_INPUT(o) \
    (counts_input){.tokenizer = (o).tokenizer, .messages = (o).messages, .field = (o).field, \
                   .format = (o).format, \
                   .corpus = &(o).corpus, .merge = &(o).merge, .id_bytes = (o).id_bytes, \
                   .n_vocab = (o).n_vocab}
/* clang-format on */

/* What was given, borrowed from such options by COUNTS_INPUT(). */
typedef struct counts_input {
    const char *tokenizer, *messages, *field, *format; /* NULL: not given */
    const cli_list *corpus, *merge;
    int64_t id_bytes, n_vocab;
} counts_input;

/* sl_counts_input_check() : what may stand together. @return -1, or CLI_USAGE after saying what may not. */
int sl_counts_input_check(const counts_input *in);

/* sl_counts_input_reading() : of --format; NULL is auto. @return -1: another word. */
int sl_counts_input_reading(const char *format);

#endif
