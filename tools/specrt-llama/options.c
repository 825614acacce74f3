/* options.c : the command line of specrt-llama. */
#include "tool.h"

static int check(options *o) {
    specrt_error err;
    if (!o->target) return cli_usage("expected -m FILE, the target");
    if (!o->draft) return cli_usage("expected -md FILE, the drafter");
    if (o->costs) {
        o->num_steps = 2;
        o->topk = 10;
        o->num_draft_tokens = 60;
        return -1;
    }
    if (o->texts.n + o->files.n + o->prompts.n == 0)
        return cli_usage("expected a prompt: -p TEXT, -f FILE or --prompts FILE");
    if (o->policies.n > 1 && !o->bench) return cli_usage("--policy: expected one without --bench");
    if (o->system && !o->conversation) return cli_usage("-sys: expected -cnv with it");
    if (o->bench && o->temperature > 0)
        return cli_usage("--bench compares greedy decoding; expected no --temp");
    for (int i = 0; i < o->policies.n; i++)
        if (specrt_policy_check(auto_policy(o->policies.items[i], NULL), &err) != SPECRT_STATUS_OK)
            return cli_fail(&err);
    if (o->bench && o->p_min > 0)
        return cli_usage("--bench compares drafts of one length; expected no --draft-p-min");
    if (o->bench && (o->n_predict == 0 || o->n_predict == 1))
        return cli_usage("--bench: expected -n 2 or more: an answer's first token comes with its "
                         "prompt and is not timed");
    if (o->bench && o->record) return cli_usage("--record: expected no --bench with it");
    if (o->num_draft_tokens == 0) o->num_draft_tokens = o->topk == 1 ? o->num_steps + 1 : 32;
    return -1;
}

/* clang-format off */
#define OPTIONS_MODELS(o) \
    cli_heading("Models"), \
    cli_letter('m', cli_string("model", "FILE", &(o).target, "the target, a GGUF")), \
    cli_also("-md", cli_string("model-draft", "FILE", &(o).draft, \
     "the drafter, a GGUF of the same vocabulary, or an EAGLE-3 head")), \
    cli_letter('c', cli_int("ctx-size", "N", &(o).n_context, 0, 1e9, \
     "positions; 0 (default): the target's, at most 4096")), \
    cli_letter('t', cli_int("threads", "N", &(o).n_threads, 0, 512, \
     "of llama.cpp; 0 (default): its own choice")), \
    cli_also("-ngl --n-gpu-layers", cli_int("gpu-layers", "N", &(o).n_gpu_layers, -1, 1e6, \
     "of the target on a GPU")), \
    cli_also("-ngld --n-gpu-layers-draft", \
     cli_int("gpu-layers-draft", "N", &(o).n_gpu_layers_draft, -1, 1e6, \
      "of the drafter: all of them or 0"))
#define OPTIONS_DRAFTS(o) \
    cli_heading("Drafts"), \
    cli_string("bundle", "FILE", &(o).bundle, "what policies need beyond the drafter"), \
    cli_strings("policy", "SPEC", &(o).policies, \
     "what may be drafted: full, microspec (the default), static:N+window...; auto, or auto+SPEC: " \
     "as much as pays; with --bench any number of them"), \
    cli_also("--draft-max --draft", cli_int("num-steps", "N", &(o).num_steps, 1, \
     SPECRT_TREE_MAX_STEPS, "passes of the drafter in a cycle (4)")), \
    cli_also("--spec-draft-p-min", cli_real("draft-p-min", "P", &(o).p_min, 0, 1, \
     "no pass follows where the best path is less probable; 0, the default: all do")), \
    cli_int("topk", "N", &(o).topk, 1, SPECRT_TREE_MAX_TOPK, \
     "branches of a draft tree; 1, the default, is a chain"), \
    cli_int("num-draft-tokens", "N", &(o).num_draft_tokens, 0, SPECRT_TREE_MAX_NODES, \
     "nodes to verify, root included (a whole chain; of a tree 32)")
#define OPTIONS_PROMPTS(o) \
    cli_heading("Prompts"), \
    cli_letter('p', cli_strings("prompt", "TEXT", &(o).texts, "a prompt; repeats")), \
    cli_letter('f', cli_strings("file", "FILE", &(o).files, "a prompt from a file; repeats")), \
    cli_strings("prompts", "FILE", &(o).prompts, \
     "JSON Lines (.gz, .zst) as specrt-eval takes them: the first turn of each"), \
    cli_int("limit", "N", &(o).limit, 1, 1e9, \
     "so many prompts of each such file, spread over it"), \
    cli_also("-cnv", cli_flag("conversation", &(o).conversation, \
     "prompts are a user's messages, in the target's chat template")), \
    cli_also("-sys", cli_string("system-prompt", "TEXT", &(o).system, "with -cnv")), \
    cli_also("--n-predict", cli_letter('n', cli_int("predict", "N", &(o).n_predict, -1, 1e9, \
     "tokens of an answer (128); -1: until it ends")))
#define OPTIONS_SAMPLING(o) \
    cli_heading("Sampling"), \
    cli_also("--temperature", cli_real("temp", "T", &(o).temperature, 0, 100, \
     "0, the default: greedy")), \
    cli_int("top-k", "N", &(o).top_k, 0, 1e9, "sample from the N best; 0: off"), \
    cli_real("top-p", "P", &(o).top_p, 0, 1, "from the best of mass P; 0: off"), \
    cli_real("min-p", "P", &(o).min_p, 0, 0.999, "relative to the best; 0: off"), \
    cli_letter('s', cli_int("seed", "N", &(o).common.seed, 0, 9e15, "of sampling (default 1)"))
#define OPTIONS_TRACE(o) \
    cli_heading("Trace"), \
    cli_string("record", "FILE", &(o).record, \
     "every cycle to a trace, for specrt-eval replay and plan; best with --policy full"), \
    cli_string("costs", "FILE", &(o).costs, \
     "no answers: what head, drafter and target cost here, for specrt-eval plan --costs"), \
    cli_string("auto-costs", "FILE", &(o).auto_costs, "what --policy auto chooses by, of --costs " \
     "or of specrt-eval plan --costs-out")
#define OPTIONS_BENCH(o) \
    cli_heading("Comparison"), \
    cli_flag("bench", &(o).bench, \
     "plain decoding, drafts by llama.cpp's whole head, `full` and the policies in turns: " \
     "speed, and whether tokens are plain decoding's"), \
    cli_int("rounds", "N", &(o).rounds, 1, 1000, "of --bench, the best counts (5)")
/* clang-format on */

int options_parse(int argc, char **argv, options *o) {
    *o = (options){.n_predict = 128,
                   .num_steps = 4,
                   .topk = 1,
                   .rounds = 5,
                   .n_gpu_layers = -1,
                   .n_gpu_layers_draft = -1};
    const cli_option table[] = {OPTIONS_MODELS(*o),
                                OPTIONS_DRAFTS(*o),
                                OPTIONS_PROMPTS(*o),
                                OPTIONS_SAMPLING(*o),
                                OPTIONS_TRACE(*o),
                                OPTIONS_BENCH(*o),
                                {0}};
    const cli_tool tool = {
        "specrt-llama", "specrt-llama -m target.gguf -md draft.gguf -p \"The patient has\" -n 64",
        "Answers prompts with llama.cpp, drafting with few rows of the drafter's "
        "head. The output is the target's own.",
        "specrt-llama -m FILE -md FILE -p TEXT [options]", table};
    int code = cli_parse(&tool, argc, argv, &o->common, NULL);
    if (code < 0) code = check(o);
    if (code >= 0) options_free(o);
    return code;
}

void options_free(options *o) {
    cli_list_free(&o->policies);
    cli_list_free(&o->texts);
    cli_list_free(&o->files);
    cli_list_free(&o->prompts);
}
