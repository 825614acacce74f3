/* prompts.c : the prompts that the options name. */
#include "eval.h"

#include "base/error.h"
#include "base/io.h"

specrt_status prompts_of(const eval_options *o, prompt_list *out, specrt_error *err) {
    if (o->prompt && sl_prompts_add(o->prompt, "prompt", out) != SPECRT_STATUS_OK)
        return sl_error_no_memory_for(err, "prompts");
    for (int i = 0; i < o->prompts.n; i++)
        TRY(sl_prompts_read(o->prompts.items[i], o->limit, out, err));
    return SPECRT_STATUS_OK;
}

specrt_status prompts_given(const eval_options *o, prompt_list *out, specrt_error *err) {
    TRY(prompts_of(o, out, err));
    if (out->n) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "expected --prompts FILE or --prompt");
}
