/* head_type.c : policies over a copy of the drafter's head in another type: POLICY@head=q4_0. */
#include "eval.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "model/head_quantise.h"

const char *eval_head_suffix(const char *text) {
    const char *at = strstr(text, "@head=");
    return at ? at : text + strlen(text);
}

static int type_named(const char *name) {
    for (int type = 0; type <= SPECRT_DTYPE_BF16; type++)
        if (sl_quantises((specrt_dtype)type) &&
            strcmp(name, specrt_dtype_name((specrt_dtype)type)) == 0)
            return type;
    return EVAL_HEAD_STORED;
}

specrt_status eval_split_head(const char *text, char policy[EVAL_POLICY_TEXT], int *type,
                              specrt_error *err) {
    const char *suffix = eval_head_suffix(text);
    *type = EVAL_HEAD_STORED;
    snprintf(policy, EVAL_POLICY_TEXT, "%.*s", (int)(suffix - text), text);
    if (!*suffix) return SPECRT_STATUS_OK;
    *type = type_named(suffix + strlen("@head="));
    if (*type == EVAL_HEAD_STORED)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "policy '%.60s': head: expected " SL_QUANTISED
                                " at its end, found '%.40s'",
                                text, suffix + strlen("@head="));
    if (auto_is_named(policy))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "policy '%.60s': head: expected a fixed policy, since auto drafts "
                                "from the head as stored",
                                text);
    return SPECRT_STATUS_OK;
}

const char *eval_policy_text(const specrt_policy *policy, const char *text,
                             char out[EVAL_CANONICAL]) {
    snprintf(out, EVAL_CANONICAL, "%s%s", specrt_policy_get_info(policy)->text,
             eval_head_suffix(text));
    return out;
}

bool eval_same_policy(const specrt_policy *a, const char *text_a, const specrt_policy *b,
                      const char *text_b) {
    char x[EVAL_CANONICAL], y[EVAL_CANONICAL];
    return strcmp(eval_policy_text(a, text_a, x), eval_policy_text(b, text_b, y)) == 0;
}

void eval_put_head(FILE *f, const char *text) {
    const char *suffix = eval_head_suffix(text);
    if (*suffix)
        fprintf(f,
                "It scores a copy of the drafter's head in %s. An engine needs this head in the "
                "drafter's file: llama-quantize --output-tensor-type %s writes one.\n",
                suffix + strlen("@head="), suffix + strlen("@head="));
}

specrt_status eval_head_bind(const specrt_bundle *bundle, const specrt_head_desc *desc, int type,
                             const specrt_env *env, eval_head *out, specrt_error *err) {
    specrt_head_desc copy;
    *out = (eval_head){.type = type};
    TRY(sl_head_quantise(desc, (specrt_dtype)type, &copy, &out->rows, err));
    specrt_status status = specrt_head_bind(bundle, &copy, env, &out->head, err);
    if (status != SPECRT_STATUS_OK) eval_head_close(out);
    return status;
}

void eval_head_close(eval_head *h) {
    specrt_head_close(h->head);
    free(h->rows);
    *h = (eval_head){.type = EVAL_HEAD_STORED};
}
