/* advice.c : what is said of a sketch whose states were too few, and where figures of others are. */
#include <inttypes.h>
#include "specrt_adapt.h"
#include "build.h"

/* Where the accept lengths on published models are. */
#define ADVICE_FIGURES "figures: bench/results/held-out.md"

/* Fewer leave directions out that states have. */
static int32_t states_enough(const sketch_facts *f) {
    return 2 * f->n_cols;
}

void advice_warn(const sketch_facts *f) {
    if (!f->trace || f->n_states >= states_enough(f)) return;
    sl_cli_warn("%s: %" PRId32 " states choose directions of %" PRId32 " columns: record %" PRId32
                " states or more (specrt-eval record with more prompts or --max-tokens)",
                f->trace, f->n_states, f->n_cols, states_enough(f) + f->n_measured);
}

void advice_say(const sketch_facts *f, char *out) {
    if (!f->trace)
        snprintf(out, ADVICE_MOST, "record states and give --trace before this drafts");
    else if (f->n_states < states_enough(f))
        snprintf(out, ADVICE_MOST,
                 "--policy %s, with cograph-build's graph, once %" PRId32
                 " states chose the sketch's directions (" ADVICE_FIGURES ")",
                 specrt_policy_untried(1, 1), states_enough(f));
    else
        snprintf(out, ADVICE_MOST,
                 "--policy %s, with cograph-build's graph; without it %s (" ADVICE_FIGURES ")",
                 specrt_policy_untried(1, 1), specrt_policy_untried(0, 1));
}
