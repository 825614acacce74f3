/* specrt_llama_cache.c : measured costs in a file, a few lines of text that end in a checksum:
 *
 *     specrt costs 1
 *     machine Intel(R) Xeon(R) Platinum 8481C, 2 processors
 *     key target ... threads 2, context 4096, ...
 *     target 1 0.0672
 *     draft 1 0.0113
 *     head 0.00031 window:3072@...
 *     sum 5f0c8d1a2b3e4f60
 *
 * Seconds follow sizes; a head's policy ends its line. */
#include "specrt_llama_costs.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 16384, MOST_LINE = 2048 };
static const char first_line[] = "specrt costs 1\n";

/* ---- where -------------------------------------------------------------------------------------- */

/* The first 16 hexadecimal digits of a digest. */
static void hash_of(const char *bytes, size_t n, char out[17]) {
    uint8_t digest[32];
    specrt_sha256 sha;
    specrt_sha256_init(&sha);
    specrt_sha256_update(&sha, bytes, n);
    specrt_sha256_final(&sha, digest);
    for (int i = 0; i < 8; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

static bool fits(int n) {
    return n > 0 && n < SPECRT_LLAMA_PATH;
}

static bool beside(const char *bundle, const char *hash, char out[SPECRT_LLAMA_PATH]) {
    const char *slash = strrchr(bundle, '/');
    char folder[SPECRT_LLAMA_PATH] = ".";
    if (slash && !fits(snprintf(folder, sizeof folder, "%.*s", (int)(slash - bundle) + 1, bundle)))
        return false;
    return access(folder, W_OK) == 0 &&
           fits(snprintf(out, SPECRT_LLAMA_PATH, "%s.%s.costs", bundle, hash));
}

static bool is_folder(const char *path) {
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

static bool in_cache(const char *hash, char out[SPECRT_LLAMA_PATH]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[SPECRT_LLAMA_PATH];
    bool given = cache && cache[0];
    if (!given && !(home && home[0])) return false;
    if (!fits(given ? snprintf(folder, sizeof folder, "%s", cache)
                    : snprintf(folder, sizeof folder, "%s/.cache", home)) ||
        !is_folder(folder) || !fits(snprintf(out, SPECRT_LLAMA_PATH, "%s/specrt", folder)) ||
        !is_folder(out))
        return false;
    return fits(snprintf(out, SPECRT_LLAMA_PATH, "%s/specrt/%s.costs", folder, hash));
}

bool specrt_llama_cache_path(const char *bundle, const char *key, char out[SPECRT_LLAMA_PATH]) {
    char hash[17];
    hash_of(key, strlen(key), hash);
    return (bundle && beside(bundle, hash, out)) || in_cache(hash, out);
}

void specrt_llama_machine(char out[SPECRT_LLAMA_TEXT]) {
    char line[SPECRT_LLAMA_TEXT], name[128] = "unknown processor";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %127[^\n]", name) == 1 ||
            sscanf(line, "CPU part : %127[^\n]", name) == 1)
            break;
    if (f) fclose(f);
    snprintf(out, SPECRT_LLAMA_TEXT, "%s, %ld processors", name, sysconf(_SC_NPROCESSORS_ONLN));
}

/* ---- reading ------------------------------------------------------------------------------------ */

static int refuse(char why[SPECRT_LLAMA_TEXT], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static int refuse(char why[SPECRT_LLAMA_TEXT], const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why, SPECRT_LLAMA_TEXT, format, args);
    va_end(args);
    return -1;
}

static bool is_time(double seconds) {
    return seconds > 0 && seconds < 1e6;
}

static bool take_point(specrt_llama_curve *c, long size, double seconds) {
    if (c->n == SPECRT_LLAMA_SIZES || size < 1 || size > 1 << 20 || !is_time(seconds) ||
        (c->n > 0 && size <= c->sizes[c->n - 1]))
        return false;
    c->sizes[c->n] = (int32_t)size;
    c->seconds[c->n++] = seconds;
    return true;
}

static bool take_head(specrt_llama_costs *c, double seconds, const char *policy) {
    size_t n = strlen(policy);
    if (c->n_heads == SPECRT_LLAMA_HEADS || n >= SPECRT_LLAMA_TEXT || !is_time(seconds))
        return false;
    memcpy(c->heads[c->n_heads].policy, policy, n + 1);
    c->heads[c->n_heads++].seconds = seconds;
    return true;
}

static bool take_line(specrt_llama_costs *c, const char *line) {
    long size;
    double seconds;
    int at = 0;
    if (sscanf(line, "target %ld %lf", &size, &seconds) == 2)
        return take_point(&c->target, size, seconds);
    if (sscanf(line, "draft %ld %lf", &size, &seconds) == 2)
        return take_point(&c->draft, size, seconds);
    if (sscanf(line, "head %lf %n", &seconds, &at) == 1 && at > 0)
        return take_head(c, seconds, line + at);
    return false;
}

/* The value of a line "NAME value", and where the next line begins; NULL: another line. */
static char *value_of(char **text, const char *name) {
    size_t n = strlen(name);
    char *value = *text + n + 1, *end = strchr(*text, '\n');
    if (!end || strncmp(*text, name, n) != 0 || (*text)[n] != ' ') return NULL;
    *end = '\0';
    *text = end + 1;
    return value;
}

static bool take_all(char *text, specrt_llama_costs *out) {
    while (*text) {
        char *end = strchr(text, '\n');
        if (!end) return false;
        *end = '\0';
        if (!take_line(out, text)) return false;
        text = end + 1;
    }
    return out->target.n > 0 && out->draft.n > 0;
}

/* Whether the last line is the checksum of those before it, which it cuts off. */
static bool is_whole(char *text, size_t n) {
    char hash[17], *last = NULL;
    for (char *at = strstr(text, "\nsum "); at; at = strstr(at + 1, "\nsum ")) last = at + 1;
    if (strlen(text) != n || !last || strlen(last) != 4 + 16 + 1) return false;
    hash_of(text, (size_t)(last - text), hash);
    if (strncmp(last + 4, hash, 16) != 0 || last[20] != '\n') return false;
    *last = '\0';
    return true;
}

static int take_file(char *text, size_t n, const char *machine, const char *key,
                     specrt_llama_costs *out, char why[SPECRT_LLAMA_TEXT]) {
    const char *found;
    if (strncmp(text, first_line, sizeof first_line - 1) != 0 || !is_whole(text, n))
        return refuse(why, "damaged");
    text += sizeof first_line - 1;
    found = value_of(&text, "machine");
    if (found && strcmp(found, machine) != 0)
        return refuse(why, "of another machine: expected %s, found %.100s", machine, found);
    if (found) found = value_of(&text, "key");
    if (found && strcmp(found, key) != 0) return refuse(why, "of other models or settings");
    return found && take_all(text, out) ? 1 : refuse(why, "damaged");
}

int specrt_llama_cache_read(const char *path, const char *machine, const char *key,
                            specrt_llama_costs *out, char why[SPECRT_LLAMA_TEXT]) {
    char text[MOST_BYTES + 1];
    FILE *f = fopen(path, "rb");
    memset(out, 0, sizeof *out);
    if (!f) return 0;
    size_t n = fread(text, 1, MOST_BYTES, f);
    fclose(f);
    text[n] = '\0';
    int code = take_file(text, n, machine, key, out, why);
    if (code < 0) memset(out, 0, sizeof *out);
    return code;
}

/* ---- or measuring ------------------------------------------------------------------------------ */

int specrt_llama_costs_find(const specrt_llama_meter *meter, int32_t most, const char *path,
                            const char *key, specrt_llama_costs *out,
                            char line[SPECRT_LLAMA_LINE]) {
    static const char busy[] = " on a busy machine, not kept";
    char machine[SPECRT_LLAMA_TEXT], why[SPECRT_LLAMA_TEXT];
    specrt_llama_machine(machine);
    int found = path ? specrt_llama_cache_read(path, machine, key, out, why) : 0;
    if (found > 0) return snprintf(line, SPECRT_LLAMA_LINE, "costs: read from %s", path), 0;
    double began = specrt_llama_seconds();
    memset(out, 0, sizeof *out);
    int code = specrt_llama_costs_measure(meter, most, out);
    double seconds = specrt_llama_seconds() - began;
    if (found < 0)
        snprintf(line, SPECRT_LLAMA_LINE, "costs: %s: %s; measured again in %.1f s%s", path, why,
                 seconds, out->disturbed ? busy : "");
    else
        snprintf(line, SPECRT_LLAMA_LINE, "costs: measured in %.1f s%s%s", seconds,
                 out->disturbed ? busy : ", kept in ",
                 out->disturbed ? ""
                 : path         ? path
                                : "no file: there is no cache folder");
    return code;
}

/* ---- writing ------------------------------------------------------------------------------------ */

static void put_curve(FILE *f, const char *name, const specrt_llama_curve *c) {
    for (int32_t i = 0; i < c->n; i++)
        fprintf(f, "%s %d %.9g\n", name, (int)c->sizes[i], c->seconds[i]);
}

static void put_costs(FILE *f, const char *machine, const char *key, const specrt_llama_costs *c) {
    fprintf(f, "%smachine %s\nkey %s\n", first_line, machine, key);
    put_curve(f, "target", &c->target);
    put_curve(f, "draft", &c->draft);
    for (int32_t i = 0; i < c->n_heads; i++)
        fprintf(f, "head %.9g %s\n", c->heads[i].seconds, c->heads[i].policy);
}

static bool write_whole(const char *path, const char *text, size_t n) {
    char hash[17];
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    hash_of(text, n, hash);
    bool written = fwrite(text, 1, n, f) == n && fprintf(f, "sum %s\n", hash) > 0;
    return fclose(f) == 0 && written;
}

bool specrt_llama_cache_write(const char *path, const char *machine, const char *key,
                              specrt_llama_costs *c) {
    char part[SPECRT_LLAMA_PATH + 32], *text = NULL;
    size_t n = 0;
    if (c->disturbed) return true;
    FILE *f = open_memstream(&text, &n);
    if (!f) return false;
    put_costs(f, machine, key, c);
    fclose(f);
    snprintf(part, sizeof part, "%s.%ld.tmp", path, (long)getpid());
    bool written = text && write_whole(part, text, n) && rename(part, path) == 0;
    if (!written) unlink(part);
    free(text);
    if (written) c->changed = false;
    return written;
}
