/* advice.c : what recorded states of published models say of such a sketch (bench/results/sketch.md, "How
 * many states"; published.md). */
#include <inttypes.h>
#include "build.h"

/* Where the accept lengths on published models are. */
#define ADVICE_FIGURES "figures: bench/results/published.md"

/* Fewer leave directions out that states have. */
static int32_t states_enough(const sketch_facts *f) {
    return 2 * f->n_cols;
}

void advice_warn(const sketch_facts *f) {
    if (!f->trace || f->n_states >= states_enough(f)) return;
    sl_cli_warn(
        "%s: %" PRId32 " states choose directions of %" PRId32 " columns, and 128 rows hold "
        "%.1f%% of the ten best; of SmolLM2-135M's, 576 columns, 336 states gave 94.8%%, 1,000 "
        "99.5%%: record %" PRId32
        " states or more (specrt-eval record with more prompts or --max-tokens)",
        f->trace, f->n_states, f->n_cols, 100 * f->recall, states_enough(f) + f->n_measured);
}

void advice_say(const sketch_facts *f, char *out) {
    if (!f->trace)
        snprintf(out, ADVICE_MOST, "record states and give --trace before this drafts");
    else if (f->n_states < states_enough(f))
        snprintf(out, ADVICE_MOST,
                 "--policy sketch:512; sketch:128 once %" PRId32
                 " states chose its directions (" ADVICE_FIGURES ")",
                 states_enough(f));
    else
        snprintf(out, ADVICE_MOST, "--policy sketch:128 (" ADVICE_FIGURES ")");
}
