/* main.c : specrt-llama, answers by llama.cpp with drafts by specrt.
 *
 *     options.c, models.c -> adapters/llama (two contexts as a specrt_host), policies, sessions
 *     auto.c -> sessions that draft by the clock     plain.c -> decoding without a drafter
 *     prompts.c, template.c -> token ids -> answer.c: text     bench.c: ways of decoding in turns
 */
#include "specrt_tools.h"
#include "tool.h"

static specrt_status run(const options *o, models *m, inputs *in, specrt_error *err) {
    TRY(models_open(o, m, err));
    if (o->texts.n + o->files.n + o->prompts.n > 0) TRY(inputs_read(o, m, in, err));
    if (o->costs) return costs_measure(o, m, in, err);
    if (m->pair)
        sl_cli_info(
            "drafter's %lld rows of %s times its state are llama.cpp's logits (relative rms "
            "%.2g); no pass computes its head",
            (long long)m->rows.desc.n_rows, specrt_dtype_name(m->rows.desc.dtype),
            specrt_llama_relative_rms(m->pair));
    TRY(o->bench ? bench_all(o, m, in, err) : answer_all(o, m, in, err));
    return sl_out_flush_stdout(err);
}

int main(int argc, char **argv) {
    options o;
    models m = {0};
    inputs in = {0};
    specrt_error err = {0};
    int code = options_parse(argc, argv, &o);
    if (code >= 0) return code;
    specrt_status status = run(&o, &m, &in, &err);
    inputs_free(&in);
    models_close(&m);
    options_free(&o);
    return status == SPECRT_STATUS_OK ? CLI_OK : sl_cli_fail(&err);
}
