/* auto.h : what `auto` would have made of recorded cycles, by costs, beside the fixed choices that it
 * has and the best of them for each prompt, chosen afterwards. docs/methods/auto.md has the rules. */
#ifndef SPECRT_EVAL_REPLAY_AUTO_H
#define SPECRT_EVAL_REPLAY_AUTO_H

#include "engine/infer/auto.h"
#include "replay.h"

enum { AUTO_WAYS = 2 };

/* All borrowed for the run. */
typedef struct auto_params {
    const replay *replay; /* with params.tells */
    const specrt_costs *costs;
    int first_tree, n_trees; /* of the replay's: one class, of 1, 2, ... levels */
    const int *lists; /* [n_lists] policies that auto chooses from, each holding those before it */
    int n_lists;
} auto_params;

/* Over the sequences of a domain; of times, as shares. */
typedef struct auto_figures {
    double speedup; /* times plain decoding */
    replay_figure
        of_best; /* of the speed of the best fixed choice, or plain decoding, for each prompt */
    double plain_cycles; /* share of the cycles */
    double steps, rows;  /* mean of the others */
    double n_probes;     /* by 1,000 tokens */
} auto_figures;

typedef struct auto_run auto_run;

/* auto_run_all() : @return NO_MEMORY, BAD_ARG. */
specrt_status auto_run_all(const auto_params *params, auto_run **out, specrt_error *err);
void auto_run_free(auto_run *a);

/* auto_way_name() : 0 is auto, 1 the best fixed choice of all prompts. */
const char *auto_way_name(int way);
void auto_figures_of(const auto_run *a, int way, int domain, auto_figures *out);
/* auto_best_choice() : the fixed one of a domain (-1: of all) in words; n: its levels, 0: plain decoding. */
const char *auto_best_choice(const auto_run *a, int domain, int *n);

void auto_print(const auto_run *a);
struct json_object *auto_json(const auto_run *a);

#endif
