/* prompts.c : the prompts that the options name. */
#include "eval.h"

#include "base/error.h"

specrt_status prompts_of(const eval_options *o, prompt_list *out, specrt_error *err) {
    for (int i = 0; i < o->texts.n; i++)
        if (sl_prompts_add(o->texts.items[i], "prompt", out) != SPECRT_STATUS_OK)
            return sl_error_no_memory_for(err, "prompts");
    for (int i = 0; i < o->prompts.n; i++)
        TRY(sl_prompts_read(o->prompts.items[i], &o->choice, out, err));
    return SPECRT_STATUS_OK;
}

specrt_status prompts_given(const eval_options *o, prompt_list *out, specrt_error *err) {
    TRY(prompts_of(o, out, err));
    if (out->n) return SPECRT_STATUS_OK;
    if (o->prompts.n)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: --skip-every %d leaves no prompt; give more prompts",
                                o->prompts.items[0], (int)o->choice.skip_every);
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "expected --prompts FILE or --prompt");
}

void eval_options_free(eval_options *o) {
    sl_cli_list_free(&o->policies);
    sl_cli_list_free(&o->texts);
    sl_cli_list_free(&o->prompts);
}
