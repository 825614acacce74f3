/* verbs.h : the verbs of specrt-bundle, and what several of them share. */
#ifndef SPECRT_BUNDLE_VERBS_H
#define SPECRT_BUNDLE_VERBS_H

#include <json-c/json.h>
#include "base/cli.h"
#include "specrt_tools.h"

cli_verb_main info_main, verify_main, merge_main, extract_main, unpack_main, pack_main, export_main,
    import_main, map_main, check_main, drift_main;

/* verb_start() : parse the verb's flags.
 *   rest : what is no flag; its number must be from `least` to `most`, else a usage error saying `what`
 * @return -1 to go on, else the exit code; `rest` is freed then. */
int verb_start(const cli_tool *tool, int argc, char **argv, cli_common *common, cli_list *rest,
               int least, int most, const char *what);

/* verb_start_one() : the same with one argument, which is a word of argv. */
int verb_start_one(const cli_tool *tool, int argc, char **argv, cli_common *common,
                   const char **argument, const char *what);

/* verb_provenance() : the bundle's provenance by section, owned; NULL when there is none or it is no
 * JSON object. */
json_object *verb_provenance(const specrt_bundle *bundle);

/* verb_print_provenance() : on stdout, a paragraph for each section: its tool and inputs, with `all` its
 * parameters and figures too. */
void verb_print_provenance(json_object *provenance, bool all);

/* verb_coverage() : a number that section "ranks" recorded, as "coverage_holdout" or "n_tokens";
 * borrowed, NULL: not recorded. */
json_object *verb_coverage(json_object *provenance, const char *key);

/* verb_tag() : the section's tag with an end, in one of several static buffers by turns. */
const char *verb_tag(const specrt_bundle_section *section);

/* verb_check_section() : whether the content of a section is what the format says; true of those that the
 * runtime does not read.
 *   path : of the bundle, for messages
 *   head : NULL, or the model's, which sections that depend on it must fit */
specrt_status verb_check_section(const char *path, const specrt_bundle *bundle, const char *tag,
                                 const specrt_head *head, specrt_error *err);

#endif
