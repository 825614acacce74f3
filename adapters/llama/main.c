/* main.c : specrt-llama, answers by llama.cpp with drafts by specrt. */
#include "tool.h"

#include <string.h>

static int exit_code(specrt_status status) {
    switch (status) {
    case SPECRT_STATUS_OK: return 0;
    case SPECRT_STATUS_IO:
    case SPECRT_STATUS_NO_MEMORY:
    case SPECRT_STATUS_HOST: return EXIT_IO;
    case SPECRT_STATUS_BAD_ARG: return EXIT_USAGE;
    default: return EXIT_INVALID;
    }
}

static specrt_status run(const options *o, models *m, prompts *p, specrt_error *err) {
    TRY(models_open(o, m, err));
    TRY(prompts_read(o, m, p, err));
    specrt_llama_check check = specrt_llama_get_check(m->pair);
    if (!o->quiet)
        fprintf(stderr,
                "specrt-llama: drafter's %lld rows of %s times its state are llama.cpp's logits "
                "(relative rms %.2g); no pass computes its head\n",
                (long long)m->rows.desc.n_rows, specrt_dtype_name(m->rows.desc.dtype),
                check.relative_rms);
    return o->bench ? bench_all(o, m, p, err) : answer_all(o, m, p, err);
}

int main(int argc, char **argv) {
    options o;
    models m;
    prompts p = {0};
    specrt_error err = {0};
    memset(&m, 0, sizeof m);
    int code = options_parse(argc, argv, &o);
    if (code < 0) {
        specrt_status status = run(&o, &m, &p, &err);
        if (status != SPECRT_STATUS_OK)
            fprintf(stderr, "specrt-llama: %s\n", err.msg);
        else if (fflush(stdout) != 0 || ferror(stdout))
            status = SPECRT_STATUS_IO, fputs("specrt-llama: stdout: cannot write\n", stderr);
        code = exit_code(status);
        prompts_free(&p);
        models_close(&m);
    }
    options_free(&o);
    return code;
}
