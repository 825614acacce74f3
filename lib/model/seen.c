/* seen.c : figures of bench/results/published.md. */
#include "model/seen.h"

#include <stdio.h>
#include <string.h>

const char *const seen_pairs[SEEN_PAIRS] = {"Qwen2.5-Coder-1.5B with its 0.5B",
                                            "SmolLM2-135M as its own drafter"};

const seen_policy seen_policies[] = {{"static:2048", {67.8, 55.4}},
                                     {"static:8192", {80.3, 73.7}},
                                     {"static:16384", {86.6, 85.7}},
                                     {"static:32768", {92.8, 95.9}},
                                     {"static:2048+retrieve", {81.3, 69.9}},
                                     {"microspec", {95.2, 93.3}},
                                     {"static:512+window+successor:256", {95.0, 90.3}},
                                     {"coral", {89.7, 79.7}},
                                     {"centroid", {92.2, 65.1}},
                                     {"centroid+retrieve@graph=off", {94.8, 74.6}},
                                     {"sketch:64", {99.9, 99.5}},
                                     {"sketch:128", {100.0, 100.0}},
                                     {NULL, {0, 0}}};

bool seen_say(const char *policy, char *out) {
    const seen_policy *s = seen_policies;
    const char *before = "kept ", *of = "% of accept length on ";
    size_t n = 0;
    while (s->policy && strcmp(s->policy, policy) != 0) s++;
    out[0] = '\0';
    for (int i = 0; s->policy && i < SEEN_PAIRS && n < SEEN_MOST; i++) {
        n += (size_t)snprintf(out + n, SEEN_MOST - n, "%s%.1f%s%s", before, s->kept[i], of,
                              seen_pairs[i]);
        before = ", ";
        of = "% on ";
    }
    return s->policy != NULL;
}
