/* drafter_folder.c : see drafter_folder.h. */
#include "drafter_folder.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/io.h"
#include "base/out_folder.h"
#include "formats/pt.h"

/* Wider types first, then by name, as safetensors writes them. */
static int in_file_order(const void *a, const void *b) {
    const st_tensor *x = (const st_tensor *)a, *y = (const st_tensor *)b;
    size_t width[2] = {0, 0};
    const st_tensor *both[2] = {x, y};
    for (int i = 0; i < 2; i++) {
        size_t n = 1;
        for (int32_t j = 0; j < both[i]->n_dims; j++) n *= (size_t)both[i]->shape[j];
        width[i] = n ? both[i]->bytes / n : 0;
    }
    return width[0] != width[1] ? (width[0] > width[1] ? -1 : 1) : strcmp(x->name, y->name);
}

static specrt_status write_config(const drafter_folder *f, out_file *out, specrt_error *err) {
    const file_view *was = &f->c->text;
    if (!f->config_changed) return sl_out_write(out, was->bytes, was->n, err);
    const char *text = json_object_to_json_string_ext(
        f->c->config, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
    if (!text) return sl_error_no_memory(err, f->c->folder);
    TRY(sl_out_write(out, text, strlen(text), err));
    return sl_out_write(out, "\n", 1, err);
}

static specrt_status copy_file(const char *path, out_file *out, specrt_error *err) {
    file_view file;
    TRY(sl_file_map(path, &file, err));
    specrt_status status = sl_out_write(out, file.bytes, file.n, err);
    sl_file_unmap(&file);
    return status;
}

static specrt_status write_weights(drafter_folder *f, out_file *out, specrt_error *err) {
    static const char *const metadata[] = {"format", "pt"};
    const char *path = f->c->m.path;
    size_t n = strlen(path);
    bool one_file = n < 5 || strcmp(path + n - 5, ".json") != 0;
    if (!f->weights_changed && one_file) return copy_file(path, out, err);
    if (f->weights_changed)
        qsort(f->tensors, (size_t)f->n_tensors, sizeof *f->tensors, in_file_order);
    return sl_st_write(f->tensors, f->n_tensors, metadata, 1, out, err);
}

static const char *const companions[] = {"generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "tokenizer.model",
                                         "vocab.json",
                                         "merges.txt",
                                         "chat_template.jinja",
                                         "mask_embedding.pt",
                                         "LICENSE",
                                         "LICENSE.txt",
                                         "NOTICE",
                                         "README.md"};
enum { N_COMPANIONS = sizeof companions / sizeof companions[0] };

static specrt_status write_files(drafter_folder *f, out_folder *folder, specrt_error *err) {
    out_file *out;
    char path[4096];
    TRY(sl_out_folder_next(folder, &out, err));
    TRY(write_config(f, out, err));
    TRY(sl_out_folder_next(folder, &out, err));
    TRY(write_weights(f, out, err));
    if (f->list) {
        TRY(sl_out_folder_next(folder, &out, err));
        TRY(sl_pt_write_list(f->list, f->n_list, out, err));
    }
    while (folder->n < folder->n_names) {
        snprintf(path, sizeof path, "%s%s", f->c->folder, folder->names[folder->n]);
        TRY(sl_out_folder_next(folder, &out, err));
        TRY(copy_file(path, out, err));
    }
    return SPECRT_STATUS_OK;
}

/* What is not written now may be there from an export of another drafter, or for another engine. */
specrt_status drafter_folder_write(drafter_folder *f, const char *output, bool force,
                                   specrt_error *err) {
    const char *names[OUT_FOLDER_FILES] = {"config.json", "model.safetensors"};
    const char *absent[OUT_FOLDER_FILES];
    int n = 2, n_absent = 0;
    char path[4096];
    out_folder folder;
    if (f->list)
        names[n++] = "token_map.pt";
    else
        absent[n_absent++] = "token_map.pt";
    for (int i = 0; i < N_COMPANIONS; i++) {
        snprintf(path, sizeof path, "%s%s", f->c->folder, companions[i]);
        if (sl_io_is_file(path) && access(path, R_OK) == 0) /* a pipe might never end */
            names[n++] = companions[i];
        else
            absent[n_absent++] = companions[i];
    }
    memcpy((void *)(names + n), (const void *)absent, (size_t)n_absent * sizeof *absent);
    TRY(sl_out_folder_open(&folder, output, names, n, n + n_absent, false, force, err));
    return sl_out_folder_finish(&folder, write_files(f, &folder, err), err);
}
