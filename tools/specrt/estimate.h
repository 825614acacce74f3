/* estimate.h : how long the steps of a preparation take, from sizes of files and what one core was measured
 * to do (README.md). Seconds; 0: unknown, as of a file that is not there. */
#ifndef SPECRT_ESTIMATE_H
#define SPECRT_ESTIMATE_H

#include "base/cli.h"

double estimate_ranks(const cli_list *text);
double estimate_graph(const cli_list *text);
double estimate_copy(const char *path);
double estimate_sketch(const char *model);
double estimate_clusters(const char *model);

/* estimate_decode() : of so many tokens, one at a time; a token reads the whole model. */
double estimate_decode(const char *model, double n_tokens);

/* estimate_text() : "about 40 s", "about 3 min", in a static buffer; "": unknown. */
const char *estimate_text(double seconds);

#endif
