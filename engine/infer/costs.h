/* costs.h : what a product of the head, a pass of the drafter and one of the target take on a machine, by
 * size: of our engine by specrt-eval plan, of llama.cpp by specrt-llama --costs; exchanged as JSON. */
#ifndef INFER_COSTS_H
#define INFER_COSTS_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include "specrt.h"
#include "base/curve.h"

enum { PASS_WIDTHS = 3 };
extern const int32_t pass_widths[PASS_WIDTHS]; /* topk of trees: 1, 4, 10 */

typedef struct pass_costs {
    const char *file;  /* that they were read from, borrowed; NULL: none */
    char policy[1024]; /* that auto drafts from, as plan found it fastest; "": none was compared */
    int32_t policy_rows; /* that it scored in the mean, rounded up; 0: not known */
    curve head_first;    /* by rows of the head, for the one hidden row after the target's pass */
    curve head[PASS_WIDTHS]; /* the same for topk hidden rows of a cycle's next levels */
    curve draft, target;     /* by tokens, nodes */
    bool keeps_chains; /* the drafter need not read again what it drafted itself and was accepted */
    double error,
        worst; /* at sizes between the measured ones: median and greatest share; 0: not known */
    double seconds; /* that measuring took; 0: not known */
} pass_costs;

/* pass_costs_put() : the curves as keys of an object: head_first [{rows, seconds}], head [{topk, points}],
 * draft [{tokens, seconds}], target [{nodes, seconds}]; keeps_chains where it is so,
 * policy and policy_rows where there are any. */
void pass_costs_put(const pass_costs *costs, json_object *o);

/* pass_costs_read() : a file with those keys; curves become monotone.
 *   path : borrowed by *out
 * @return IO, NO_MEMORY, BAD_INPUT naming file and key. */
specrt_status pass_costs_read(const char *path, pass_costs *out, specrt_error *err);

/* pass_costs_write() : such a file; one that is there needs force. */
specrt_status pass_costs_write(const pass_costs *costs, const char *path, bool force,
                               specrt_error *err);

#endif
