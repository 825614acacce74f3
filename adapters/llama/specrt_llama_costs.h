/* specrt_llama_costs.h : what passes cost on this machine, so that `auto` decides by the clock
 * (docs/methods/auto.md, "By the clock").
 *
 *     specrt_llama_costs_measure()    at the start: passes of 1, 2, 4, 8... tokens, in about 2 seconds
 *     specrt_llama_cache_*()          the same figures from a file, at the next start
 *     specrt_llama_costs_policy()     the policy whose drafts are fastest by these figures
 *     specrt_llama_clock_*()          the figures while decoding, from the time of each cycle
 *     specrt_llama_timed_host()       a specrt_host that does the latter for one session
 *
 * Nothing here needs llama.cpp: models are callbacks, so that tests can set the time. */
#ifndef LLAMA_SPECRT_LLAMA_COSTS_H
#define LLAMA_SPECRT_LLAMA_COSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "specrt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SPECRT_LLAMA_SIZES = 12, /* of a curve, at most */
    SPECRT_LLAMA_HEADS = 8,  /* policies with a measured head, at most */
    SPECRT_LLAMA_TEXT = 256,
    SPECRT_LLAMA_KEY = 512,
    SPECRT_LLAMA_LINE = 1536,
    SPECRT_LLAMA_PATH = 1024
};

/* ---- measured at the start ---- */

/* Seconds by size; sizes ascend. */
typedef struct specrt_llama_curve {
    int32_t n, sizes[SPECRT_LLAMA_SIZES];
    double seconds[SPECRT_LLAMA_SIZES];
} specrt_llama_curve;

/* Scoring one level of a draft by a policy. */
typedef struct specrt_llama_scoring {
    char policy[SPECRT_LLAMA_TEXT];
    double seconds;
} specrt_llama_scoring;

/* Zero-initialise it. */
typedef struct specrt_llama_costs {
    specrt_llama_curve target; /* a pass of the target, by tokens, with logits of all tokens */
    specrt_llama_curve draft;  /* a pass of the drafter, by tokens, without its LM head */
    specrt_llama_scoring heads[SPECRT_LLAMA_HEADS];
    int32_t n_heads;
    bool changed; /* since it was read from a file or written to one */
    bool
        disturbed; /* measured on a machine that was too busy: not to be kept, and proof of nothing */
} specrt_llama_costs;

/* The models, for measuring. Each call runs one pass of n tokens, removes them from the cache again, and
 * writes what the pass took. @return 0, or another value where the model failed */
typedef struct specrt_llama_meter {
    void *user;
    int (*target)(void *user, int32_t n, double *seconds);
    int (*draft)(void *user, int32_t n, double *seconds);
} specrt_llama_meter;

/* specrt_llama_curve_at() : Seconds of a size: linear between measured sizes, and beyond the last. */
double specrt_llama_curve_at(const specrt_llama_curve *curve, int32_t size);

/* specrt_llama_costs_measure() : Times passes of both models; the shortest of 5 rounds counts, of more where
 * a time cannot be: longer than a larger pass takes, or than passes that do the same work. Such a time is
 * lowered in the end. No round begins after 1.2 seconds, and no size is added after 2.
 *   most : tokens of the target's largest pass
 * @return 0, or what a callback returned. */
int specrt_llama_costs_measure(const specrt_llama_meter *meter, int32_t most,
                               specrt_llama_costs *out);

/* What a policy is created from, borrowed. */
typedef struct specrt_llama_drafts {
    const specrt_bundle *bundle; /* NULL: none */
    const specrt_head *head;
    int64_t n_cols;               /* columns of the head */
    specrt_policy_desc policy;    /* its text is not read */
    specrt_session_params params; /* the tree of drafts; auto_draft is not read */
} specrt_llama_drafts;

/* specrt_llama_costs_head() : Seconds of scoring a level by a policy: measured once, kept in costs.
 * @return 0: the policy does not open with this bundle and head. */
double specrt_llama_costs_head(specrt_llama_costs *costs, const specrt_llama_drafts *drafts,
                               const char *policy);

/* specrt_llama_costs_policy() : Of full, hybrid, sums with `successor`, and microspec, the policy that gives
 * most tokens for its time, of those that open. A head too small to matter is scored in full. Static text. */
const char *specrt_llama_costs_policy(specrt_llama_costs *costs, const specrt_llama_drafts *drafts);

/* ---- kept in a file ---- */

/* specrt_llama_cache_path() : Beside the bundle, or in specrt/ of the user's cache folder where there is no
 * bundle or its folder cannot be written; created if needed.
 *   key : of model, threads, context and build; the name has a hash of it
 * @return false: there is no such folder; then nothing is kept. */
bool specrt_llama_cache_path(const char *bundle, const char *key, char out[SPECRT_LLAMA_PATH]);

/* specrt_llama_machine() : The processor's name and how many there are. */
void specrt_llama_machine(char out[SPECRT_LLAMA_TEXT]);

/* specrt_llama_cache_read() : @return 1; 0: there is no file; -1: a file that cannot be used, and why: it is
 * damaged, or of another machine or key. Then *out is empty. */
int specrt_llama_cache_read(const char *path, const char *machine, const char *key,
                            specrt_llama_costs *out, char why[SPECRT_LLAMA_TEXT]);

/* specrt_llama_cache_write() : Writes the file, but not where the machine was too busy.
 * @return false: the file could not be written, and is as it was. */
bool specrt_llama_cache_write(const char *path, const char *machine, const char *key,
                              specrt_llama_costs *costs);

/* specrt_llama_costs_find() : Costs from the file, else measured.
 *   path : NULL: there is no file
 *   line : receives one line for the user: where the costs are from, and why a file was not used
 * @return 0, or what a callback returned. */
int specrt_llama_costs_find(const specrt_llama_meter *meter, int32_t most, const char *path,
                            const char *key, specrt_llama_costs *out, char line[SPECRT_LLAMA_LINE]);

/* ---- while decoding ---- */

/* A cycle of one slot, or of several in one pass of the target. */
typedef struct specrt_llama_cycle {
    int32_t n_slots;                                    /* sequences in the target's pass */
    int32_t n_tokens;                                   /* of that pass, drafts included */
    int32_t n_passes;                                   /* of the drafter; 0: a plain cycle */
    int32_t n_read;                                     /* tokens of the drafter's first pass */
    int32_t n_scored;                                   /* levels that were scored, of all slots */
    double target_seconds, draft_seconds, head_seconds; /* of the first, all that is no drafting */
} specrt_llama_cycle;

/* The figures as they are now. A busy machine makes everything slower, which changes no choice (`slow`); what
 * changes choices is the share of each figure beside it, learned apart. All are natural logs of ratios to the
 * costs measured at the start. */
typedef struct specrt_llama_clock {
    specrt_llama_costs costs;
    specrt_tree_params tree; /* as specrt_tree_get_params() returns it */
    double head;             /* seconds of scoring a level, as measured at the start */
    double slow;
    double target[SPECRT_TREE_MAX_NODES + 1]; /* by tokens of a pass */
    double draft, scoring;
    double drift;                     /* of late, of cycles with a draft */
    int32_t since_plain, since_draft; /* cycles since such a cycle was timed */
    int32_t asked;                    /* plain cycles that are still to be timed */
} specrt_llama_clock;

/* specrt_llama_clock_init() : As measured at the start. */
void specrt_llama_clock_init(specrt_llama_clock *clock, const specrt_llama_costs *costs,
                             const specrt_tree_params *tree, double head);

/* specrt_llama_clock_see() : Learns from a cycle.
 * @return whether to time a plain cycle next: cycles with drafts take other times than expected, or none was
 * plain for long. */
bool specrt_llama_clock_see(specrt_llama_clock *clock, const specrt_llama_cycle *cycle);

/* specrt_llama_clock_table() : costs and read of specrt_auto_desc, for one list, where so many slots draft
 * alike.
 *   cycles : receives f64 [tree.num_steps + 1] */
void specrt_llama_clock_table(const specrt_llama_clock *clock, int32_t n_slots, double *cycles,
                              double *read);

/* specrt_llama_clock_hopeless() : Whether drafts of any length are slower than plain decoding even if 95% of
 * drafted tokens are accepted, as those of a drafter slower than its target.
 *   line : receives why */
bool specrt_llama_clock_hopeless(const specrt_llama_clock *clock, char line[SPECRT_LLAMA_TEXT]);

/* specrt_llama_clock_auto() : A controller by the clock's table; @return as specrt_auto_create(). */
specrt_status specrt_llama_clock_auto(const specrt_llama_clock *clock, bool keeps_chains,
                                      specrt_auto **out, specrt_error *err);

/* specrt_llama_clock_explain() : One line: whether drafts were made, what decided, and what came of it. */
void specrt_llama_clock_explain(const specrt_llama_clock *clock, const specrt_auto_stats *stats,
                                char out[SPECRT_LLAMA_TEXT]);

/* A host whose cycles are timed for a controller. The application keeps it at one place. */
typedef struct specrt_llama_timer {
    specrt_host host; /* whose callbacks are timed */
    specrt_llama_clock clock;
    specrt_auto *auto_draft;  /* borrowed */
    bool keeps_chains;        /* as in specrt_auto_desc */
    double (*now)(void);      /* seconds; monotonic */
    specrt_llama_cycle cycle; /* at hand */
    double began;             /* when the last cycle ended; 0: none has */
    double drafted;           /* when the drafter's last pass ended; 0: it was counted */
    int32_t n_unread;         /* tokens that the drafter's next pass reads */
} specrt_llama_timer;

/* specrt_llama_timed_host() : The callbacks of timer->host, timed. timer: host, clock, auto_draft and
 * keeps_chains are set by the caller, now too where it is no system clock. */
specrt_host specrt_llama_timed_host(specrt_llama_timer *timer);

/* specrt_llama_timer_begin() : Another sequence follows; the time until its first cycle ends is not
 * counted. A prompt that goes through the host's target_prefill does so by itself. */
void specrt_llama_timer_begin(specrt_llama_timer *timer);

/* specrt_llama_seconds() : The system's monotonic clock. */
double specrt_llama_seconds(void);

#ifdef __cplusplus
}
#endif

#endif
