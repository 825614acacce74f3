/* input.c : see input.h. */
#include "counts/input.h"

#include <inttypes.h>
#include <string.h>
#include "corpus/corpus.h"

static bool reads_stdin(const cli_list *paths) {
    for (int i = 0; i < paths->n; i++)
        if (strcmp(paths->items[i], "-") == 0) return true;
    return false;
}

int sl_counts_input_reading(const char *format) {
    if (!format || strcmp(format, "auto") == 0) return CORPUS_BY_NAME;
    return strcmp(format, "text") == 0   ? CORPUS_AS_TEXT
           : strcmp(format, "json") == 0 ? CORPUS_AS_JSON
                                         : -1;
}

static int check_text(const counts_input *in) {
    if (in->messages && strcmp(in->messages, "assistant") != 0 && strcmp(in->messages, "all") != 0)
        return sl_cli_usage("--messages: expected assistant or all, found '%s'", in->messages);
    if (sl_counts_input_reading(in->format) < 0)
        return sl_cli_usage("--format: expected auto, text or json, found '%s'", in->format);
    if (in->id_bytes != 0 && in->id_bytes != 2 && in->id_bytes != 4)
        return sl_cli_usage("--id-bytes: expected 2 or 4, found %" PRId64, in->id_bytes);
    if (in->field && strpbrk(in->field, "\t\n"))
        return sl_cli_usage("--field: expected a name without tabs and line ends");
    return -1;
}

int sl_counts_input_check(const counts_input *in) {
    bool ids = in->tokenizer && strcmp(in->tokenizer, "none") == 0;
    int code = check_text(in);
    if (code >= 0) return code;
    if (!in->corpus->n && !in->merge->n)
        return sl_cli_usage("expected --corpus PATH, or --merge FILE with count files");
    if (in->corpus->n && !in->tokenizer)
        return sl_cli_usage(
            "--corpus: expected --tokenizer T with it (none for files of token ids)");
    if (ids && in->corpus->n && !in->n_vocab)
        return sl_cli_usage("--tokenizer none: expected --n-vocab N with it");
    if (reads_stdin(in->corpus) && reads_stdin(in->merge))
        return sl_cli_usage(
            "--corpus - and --merge -: expected one of them, since both read stdin");
    return -1;
}
