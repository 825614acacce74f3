/* script.h : which script a document is written in: what can be known of its language without a model. */
#ifndef CORPUS_SCRIPT_H
#define CORPUS_SCRIPT_H

#include <stddef.h>
#include "specrt.h"

enum { SCRIPT_NONE = 26, N_SCRIPTS };

/* sl_script_name() : "Latin", "Han", "Japanese", ...; "other" for a script without a name here, "none" for
 * text without letters.
 *   script : 0 to N_SCRIPTS - 1 */
const char *sl_script_name(int script);

typedef struct script_finder script_finder; /* one per thread */

specrt_status sl_script_finder_new(script_finder **out, specrt_error *err);
void sl_script_finder_free(script_finder *f);

/* sl_script_of() : the script that most bytes of letters are in. Latin letters count a quarter, since names,
 * code and formulas have them in every language. Han beside a tenth or more of kana is Japanese.
 *   text : valid UTF-8 [n]
 * @return 0 to N_SCRIPTS - 1 */
int sl_script_of(script_finder *f, const char *text, size_t n);

#endif
