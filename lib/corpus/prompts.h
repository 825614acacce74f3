/* prompts.h : prompt files as benchmarks have them, JSON Lines (.gz, .zst) or a JSON array: prompt, question,
 * turns, instruction, text, messages or prompt_ids, also in the "body" of a batch's request and in
 * the "request" of a log. */
#ifndef CORPUS_PROMPTS_H
#define CORPUS_PROMPTS_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include "specrt.h"

typedef struct prompt {
    char place[96]; /* "questions.jsonl:17", or "--prompt" */
    char *system;   /* its own system message; NULL: none */
    char **turns;   /* [n_turns] text, or */
    int n_turns;
    int32_t *ids; /* [n_ids] token ids of the only turn, taken as they are */
    int32_t n_ids;
    /* its "domain", "category" or "task" (Spec-Bench's MT-Bench kinds are mt_bench), else the
     * file's name */
    char *domain;
} prompt;

typedef struct prompt_list {
    prompt *items;
    int n;
    /* passed over: without text and not in items; that could not be decoded */
    int n_empty, n_unfit;
    char first_empty[96];  /* its place */
    char first_unfit[512]; /* its place, and why */
} prompt_list;

/* Which prompts of a file are taken. Zeros: all. */
typedef struct prompt_choice {
    int64_t every;      /* every Nth, the first included */
    int64_t skip_every; /* all but those */
    int64_t limit;      /* so many of what is left, evenly spread */
} prompt_choice;

/* sl_prompts_read() : append a file's prompts. Empty ones are passed over and counted.
 *   choice : NULL: all
 * @return IO; BAD_INPUT naming file, line and what was expected, or a file that has none. */
specrt_status sl_prompts_read(const char *path, const prompt_choice *choice, prompt_list *out,
                              specrt_error *err);
specrt_status sl_prompts_add(const char *text, const char *domain, prompt_list *out);
void sl_prompts_free(prompt_list *list);

/* sl_prompts_pass_over() : count one that could not be decoded, or not all of its turns: longer than the
 * context, say. The only prompt is not passed over.
 * @return whether to go on without it */
bool sl_prompts_pass_over(prompt_list *list, const prompt *p, const specrt_error *why);

/* sl_prompts_account() : one line on stderr that says how many were passed over and why; none if none.
 *   n_decoded : turns or prompts that were
 * @return BAD_INPUT with that line where none was */
specrt_status sl_prompts_account(const prompt_list *list, int64_t n_decoded, specrt_error *err);
void sl_prompts_put_json(const prompt_list *list, json_object *to); /* n_empty, n_unfit */

#endif
