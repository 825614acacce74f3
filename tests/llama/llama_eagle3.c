/* llama_eagle3.c : a few passes of an EAGLE-3 head inside llama.cpp, for eagle3_head (tests/programs) to
 * compare with our engine's; that file says which passes, and what OUT holds.
 *
 *     llama_eagle3 TARGET.gguf EAGLE3.gguf OUT
 */
#include "inside.h"

enum { N_PASSES = 3 };

/* The target's three states become a feature: the drafter's encoder. */
static const float *fuse(struct llama_context *ctx, const float *states, size_t n) {
    struct llama_batch_ext *batch = llama_batch_ext_init(ctx);
    struct llama_embd embd = {states, 1, n};
    llama_pos position = 0;
    int32_t i = llama_batch_ext_add_embd(batch, 0, embd);
    llama_batch_ext_set_pos(batch, i, &position);
    llama_batch_ext_set_output_embd(batch, i, true);
    int32_t code = llama_process(ctx, LLAMA_PROCESS_TYPE_ENCODE, batch);
    llama_batch_ext_free(batch);
    return code == 0 ? get_nextn(ctx, 0) : NULL;
}

static int draft(struct llama_context *ctx, llama_token token, llama_pos position,
                 const float *feature, size_t d) {
    struct llama_batch_ext *batch = llama_batch_ext_init(ctx);
    struct llama_embd embd = {feature, 1, d};
    int32_t i = llama_batch_ext_add_token(batch, 0, token);
    llama_batch_ext_set_embd_token(batch, i, embd);
    llama_batch_ext_set_pos(batch, i, &position);
    llama_batch_ext_set_output_logits(batch, i, true);
    int32_t code = llama_process(ctx, LLAMA_PROCESS_TYPE_DECODE, batch);
    llama_batch_ext_free(batch);
    return code;
}

int main(int argc, char **argv) {
    if (argc != 4) return fail("llama_eagle3", "expected TARGET EAGLE3 OUT");
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model *target = llama_model_load_from_file(argv[1], llama_model_default_params());
    struct llama_model *head = llama_model_load_from_file(argv[2], llama_model_default_params());
    if (!target || !head) return fail("llama_eagle3", "llama.cpp does not load a file");
    struct llama_context *of_target = open_context(target, NULL);
    struct llama_context *ctx = open_context(head, of_target);
    FILE *out = fopen(argv[3], "wb");
    if (!of_target || !ctx || !out) return fail("llama_eagle3", "no context or file");
    size_t n_vocab = (size_t)llama_vocab_n_tokens(llama_model_get_vocab(head));
    size_t d = (size_t)llama_model_n_embd(head), n = 3 * (size_t)llama_model_n_embd(target);
    float *states = malloc(n * sizeof *states), *feature = malloc(d * sizeof *feature);
    if (!states || !feature) return fail("llama_eagle3", "no memory");
    for (size_t i = 0; i < n; i++) states[i] = sinf(0.7f * (float)i);
    set_nextn(ctx, true, true);
    const float *found = fuse(ctx, states, n);
    for (int i = 0; i < N_PASSES; i++) {
        if (!found) return fail("llama_eagle3", "no feature came back");
        for (size_t j = 0; j < d; j++) feature[j] = found[j];
        if (draft(ctx, 17 * i + 11, i, feature, d)) return fail("llama_eagle3", "a pass failed");
        const float *logits = llama_get_logits_ith(ctx, 0);
        found = get_nextn(ctx, 0);
        if (!logits || !found || fwrite(found, sizeof *found, d, out) != d ||
            fwrite(logits, sizeof *logits, n_vocab, out) != n_vocab)
            return fail("llama_eagle3", "no logits, or no room for them");
    }
    fclose(out);
    free(states), free(feature);
    llama_free(ctx), llama_free(of_target);
    llama_model_free(head), llama_model_free(target);
    return 0;
}
