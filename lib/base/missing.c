/* missing.c : see missing.h. */
#include "specrt_tools.h"
#include "base/missing.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool ends_in(const char *name, const char *ending) {
    size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

static bool is_file_name(const char *name) {
    static const char *const endings[] = {".gguf", ".safetensors", ".json",     ".bin",
                                          ".pt",   ".model",       ".tiktoken", ".txt"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (ends_in(name, endings[i])) return true;
    return false;
}

/* ORG/NAME of letters, digits, '.', '_' and '-'; *name is behind the slash. */
static bool is_hub_name(const char *path, const char **name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
                      all[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strspn(path, all);
    char *org = strndup(path, n);
    *name = path + n + 1;
    bool is = org && path[n] == '/' && access(org, F_OK) != 0 && strspn(path, letters) > 0 &&
              strspn(*name, letters) > 0 && (*name)[strspn(*name, all)] == '\0' &&
              !is_file_name(*name);
    free(org);
    return is;
}

specrt_status sl_missing(const char *path, specrt_error *err) {
    const char *name, *why = strerror(errno);
    if (errno != ENOENT || !is_hub_name(path, &name))
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot open: %s", path, why);
    return specrt_error_set(err, SPECRT_STATUS_IO,
                            "%s: cannot open: %s; if this is a name on the Hugging Face hub, "
                            "download it and give the folder: hf download %s --local-dir %s",
                            path, why, path, name);
}
