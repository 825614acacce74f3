/* engines.c : the engines of specrt-eval, and of tests. A program with more defines the table in an object of
 * its own, which the linker takes instead of this one: nothing else may be here. */
#include "engine/backend/own.h"
#include "eval.h"

const eval_engine eval_engines[] = {{"specrt", own_open}, {NULL, NULL}};
