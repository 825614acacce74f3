/* seen.h : what policies kept of accept length on models that others trained, for tools to say beside what
 * they recommend. Figures are those of bench/results/published.md ("of full"), which tests/model/test_seen.c
 * compares. */
#ifndef MODEL_SEEN_H
#define MODEL_SEEN_H

#include <stdbool.h>
#include <stddef.h>

enum { SEEN_PAIRS = 2, SEEN_MOST = 256 };

extern const char *const seen_pairs[SEEN_PAIRS];

typedef struct seen_policy {
    const char *policy;
    double kept[SEEN_PAIRS]; /* percent of the full vocabulary's accept length, on each pair */
} seen_policy;

/* Ends with a policy of NULL. */
extern const seen_policy seen_policies[];

/* seen_say() : "kept 93.3% of accept length on this pair, 98.0% on that one".
 *   out : [SEEN_MOST]; "" where no published pair was measured with the policy
 * @return whether one was. */
bool seen_say(const char *policy, char *out);

#endif
