/* specrt_adapt.h : what passes cost on a machine, and what to run there. Tools, engines and `auto` ask these
 * functions and decide nothing of their own. The conventions of specrt.h hold. The single header has it where
 * SPECRT_TOOLS is defined.
 *
 * FUNCTIONS, by task (prefix specrt_):
 *     decide what to run    ratio_outcome, outcome_name, advise, advice_text
 *     know policies         policy_preset, policy_untried
 */
#ifndef SPECRT_ADAPT_H
#define SPECRT_ADAPT_H

#include "specrt.h"

// >>adapt
// Costs of passes; the verdict on policies.

#if !defined(SPECRT_STATIC) || defined(SPECRT_TOOLS)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- the verdict: which policy, and is it faster than plain decoding? ----
 * A request counts whole: reading its prompt, and an answer of a named length. The worst task decides, for an
 * application has one task. */

/* Requests of which an interval of 95% can be told: that all of six lie on one side comes by chance in 1 of
 * 32 cases. Of fewer, give NaN. */
enum { SPECRT_ADVISE_REQUESTS = 6 };

/* A ratio of two speeds. */
typedef struct specrt_ratio {
    double value;     /* above 1: faster */
    double low, high; /* ends of the 95% interval; NaN: not known, as of few requests */
} specrt_ratio;

typedef enum specrt_outcome {
    SPECRT_OUTCOME_SLOWER = -1, /* the interval ends below 1 */
    SPECRT_OUTCOME_TIE = 0,     /* as fast, within the error; also where no interval is known */
    SPECRT_OUTCOME_FASTER = 1   /* the interval begins above 1 */
} specrt_outcome;

/* specrt_ratio_outcome() : Faster, a tie or slower.
 *   ratio : any; NULL: a tie */
SPECRT_API specrt_outcome specrt_ratio_outcome(const specrt_ratio *ratio);

/* specrt_outcome_name() : "slower", "a tie" or "faster"; static.
 *   outcome : any; others are "a tie" */
SPECRT_API const char *specrt_outcome_name(specrt_outcome outcome);

/* A policy with its tree, as it was measured or as costs foretell. */
typedef struct specrt_way {
    const char *name;      /* borrowed; the policy as texts show it */
    double bytes;          /* of the head, read by a pass of the drafter: decides among ties */
    double accept_length;  /* tokens a cycle */
    double prompt_seconds; /* of reading the prompt, the drafter's part included */
    double token_seconds;  /* of a token of the answer */
    specrt_ratio ratio; /* of its speed over whole requests in its worst task to plain decoding's */
    const char *task;   /* borrowed; the worst one; NULL: requests name fewer than two tasks */
} specrt_way;

/* Plain decoding of the same requests. */
typedef struct specrt_plain {
    double prompt_seconds; /* of reading the prompt */
    double token_seconds;  /* of a token of the answer */
    double prompt_tokens;  /* of a request, in the mean; 0: prompts were not timed */
    double answer_tokens; /* of a request, in the mean: 2 or more, for the prompt gives the first */
} specrt_plain;

typedef struct specrt_advice {
    int32_t chosen;         /* index of the way to draft with */
    int32_t n_ties;         /* other ways that are as fast as the fastest, within the error */
    specrt_outcome outcome; /* of the chosen way beside plain decoding */
    /* Plain decoding's time of an answer is reached from these on; INFINITY: never. Where it is reached, 0.
     * */
    double answer_tokens; /* answers so long, at the same accept length */
    double accept_length; /* tokens a cycle, at the same length of answer */
} specrt_advice;

/* specrt_advise() : Chooses among ways. Of those that are as fast as the fastest within the error, and at
 * most 5% slower, the one that reads the fewest bytes.
 *   ways : [n], n >= 1; ratios above 0
 *   plain : of the same requests
 *   ties : u8 [n], written: 1 for the chosen way and those that tie with the fastest; NULL: not wanted
 * @return OK; BAD_ARG: no way, or a time or ratio that is none. */
SPECRT_API specrt_status specrt_advise(const specrt_way *ways, int32_t n, const specrt_plain *plain,
                                       uint8_t *ties, specrt_advice *out, specrt_error *err);

/* specrt_advice_text() : The verdict in two or three sentences: what to run, whether it is faster over which
 * requests, the reason, and what would change it.
 *   ways, plain, advice : of specrt_advise()
 *   out : char [size], written, cut at its size and always terminated */
SPECRT_API void specrt_advice_text(const specrt_way *ways, const specrt_plain *plain,
                                   const specrt_advice *advice, char *out, size_t size);

/* ---- where nothing was measured ---- */

/* specrt_policy_preset() : A preset by its number, in the order in which errors list them.
 *   i : from 0
 *   text : char [size], written: the policy that the name stands for; NULL: not wanted
 *   size : of text
 * @return the name, static; NULL: there are fewer. */
SPECRT_API const char *specrt_policy_preset(int32_t i, char *text, size_t size);

/* specrt_policy_untried() : What to draft with before anything of the pair was measured: of the policies
 * whose sections are there, the one that retained most of the accept length on published models
 * (bench/results/held-out.md).
 *   has_graph : whether the bundle has a section `cograph`
 *   has_sketch : whether the bundle has a section `sketch`
 * @return static text of a policy. */
SPECRT_API const char *specrt_policy_untried(int has_graph, int has_sketch);

#ifdef __cplusplus
}
#endif
#endif

#endif
