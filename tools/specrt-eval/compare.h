/* compare.h : what specrt-eval compare measures, and the figures made of it. */
#ifndef COMPARE_H
#define COMPARE_H

#include "eval.h"

enum { COMPARE_POSITIONS = 16 }; /* draft positions shown */

/* One turn under one policy. */
typedef struct turn_sample {
    int domain, prompt;
    int64_t n_prompt, n_tokens;
    int64_t n_loop; /* tokens inside repetitions */
    double seconds; /* after the prompt */
    decode_times times;
    specrt_session_stats stats;
} turn_sample;

typedef struct contestant {
    char name[160]; /* the policy as it was given, or "plain" */
    specrt_policy *policy;
    decoder *decoder;
    int64_t bytes_extra; /* packed rows beside the head's own, at most */
    run_result result;
    turn_sample *samples; /* [n_turns] */
} contestant;

typedef struct comparison {
    eval_options options;
    const char *report;
    eval_models models;
    chat *chat;
    contestant *contestants; /* plain first, then full, then the others */
    int n_contestants;
    char **domains;
    int n_domains;
    int n_turns, capacity;
    int prompt; /* being decoded, from 0 */
    int64_t n_compared;
    bool diverged;
    char divergence[320]; /* where the first one was */
} comparison;

enum { PLAIN = 0, FULL = 1 };

/* A 95% percentile interval by the bootstrap over prompts, whose turns stay together; NaN for fewer
 * than two prompts. */
typedef struct interval {
    double low, high;
} interval;

/* Of one policy over a domain's turns, or all. Times are seconds per cycle (plain: per token). */
typedef struct figures {
    int64_t n_prompts, n_turns, n_tokens;
    double accept_length, coverage, active_rows, loop_share;
    double draft, head, target, verify, update, prefill; /* prefill: per turn */
    double tokens_per_second, speedup_plain, speedup_full;
    double acceptance
        [COMPARE_POSITIONS]; /* of position i + 1, given that i was accepted; NaN: never */
    interval accept_length_ci, tokens_per_second_ci, speedup_plain_ci, speedup_full_ci;
} figures;

/* check_tokens() : count a turn's tokens as compared, and keep where the first differs. Sampled drafts
 * give the target's law but not its draws, and are not compared. */
void check_tokens(comparison *c, const contestant *k, const char *domain);
const char *check_outcome(const comparison *c); /* in words */

int compare_num_steps(const comparison *c); /* levels of its trees */

/* figures_of() : domain -1 takes all turns. */
void figures_of(const comparison *c, int entrant, int domain, figures *out);

/* loop_tokens() : how many of the tokens repeat. A token does when, for some period p of 1 to 64, it
 * ends a stretch of at least max(2 p, 8) tokens each equal to the one p before. */
int64_t loop_tokens(const int32_t *tokens, size_t n);

void compare_print_table(const comparison *c);
void compare_print_json(const comparison *c);
specrt_status compare_write_report(const comparison *c, const char *path, bool force,
                                   specrt_error *err);

#endif
