/* costs_file.c : owns the file of costs, its text and where it is kept. Refuses damaged files, and those of
 * another machine or key. */
#include "specrt_adapt.h"
#include "adapt/costs.h"
#include "core/base.h"
#include "core/os.h"

static const char specrt__costs_first_line[] = "specrt costs 1\n";

enum { SPECRT__COSTS_HASH = 16 }; /* hexadecimal digits */

/* The first digits of a digest. out: char [SPECRT__COSTS_HASH + 1] */
static void specrt__costs_hash(const char *bytes, size_t n, char *out) {
    uint8_t digest[32];
    specrt_sha256 sha;
    specrt_sha256_init(&sha);
    specrt_sha256_update(&sha, bytes, n);
    specrt_sha256_final(&sha, digest);
    for (int i = 0; i < SPECRT__COSTS_HASH / 2; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

/* --- where --- */

SPECRT_API void specrt_costs_machine(char *out) {
    char line[SPECRT_COSTS_TEXT], name[128] = "unknown processor";
    if (!out) return;
    FILE *f = specrt__os_fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %127[^\n]", name) == 1 ||
            sscanf(line, "CPU part : %127[^\n]", name) == 1)
            break;
    if (f) fclose(f);
    snprintf(out, SPECRT_COSTS_TEXT, "%s, %ld processors", name, specrt__os_processors());
}

SPECRT__INTERNAL double specrt__costs_load(void) {
    int whole = 0, cents = 0;
    FILE *f = specrt__os_fopen("/proc/loadavg", "r");
    if (f && fscanf(f, "%d.%d", &whole, &cents) != 2) whole = cents = 0;
    if (f) fclose(f);
    return whole + cents / 100.0;
}

static bool specrt__costs_fits(int n) {
    return n > 0 && n < SPECRT_COSTS_PATH;
}

static bool specrt__costs_beside(const char *bundle, const char *hash, char *out) {
    const char *slash = strrchr(bundle, '/');
    char folder[SPECRT_COSTS_PATH] = ".";
    if (slash && !specrt__costs_fits(
                     snprintf(folder, sizeof folder, "%.*s", (int)(slash - bundle) + 1, bundle)))
        return false;
    return specrt__os_can_write(folder) &&
           specrt__costs_fits(snprintf(out, SPECRT_COSTS_PATH, "%s.%s.costs", bundle, hash));
}

static bool specrt__costs_in_cache(const char *hash, char *out) {
    char folder[SPECRT_COSTS_PATH];
    if (!specrt__os_cache(folder, sizeof folder) || !specrt__os_make_folder(folder) ||
        !specrt__costs_fits(snprintf(out, SPECRT_COSTS_PATH, "%s/specrt", folder)) ||
        !specrt__os_make_folder(out))
        return false;
    return specrt__costs_fits(snprintf(out, SPECRT_COSTS_PATH, "%s/specrt/%s.costs", folder, hash));
}

SPECRT_API void specrt_costs_path(const char *bundle, const char *key, char *out) {
    char hash[SPECRT__COSTS_HASH + 1];
    if (!key || !out) return;
    specrt__costs_hash(key, strlen(key), hash);
    if (!(bundle && specrt__costs_beside(bundle, hash, out)) && !specrt__costs_in_cache(hash, out))
        out[0] = '\0';
}

/* --- reading --- */

/* Zero-initialise it. */
typedef struct specrt__costs_reader {
    const char *at, *end;
    int n; /* lines read */
    char line[SPECRT_COSTS_LINE];
} specrt__costs_reader;

/* @return whether there was a line that fits */
static bool specrt__costs_next(specrt__costs_reader *r) {
    const char *end = (const char *)memchr(r->at, '\n', (size_t)(r->end - r->at));
    if (!end || end - r->at >= SPECRT_COSTS_LINE) return false;
    size_t n = (size_t)(end - r->at);
    memcpy(r->line, r->at, n);
    r->line[n] = '\0';
    r->at = end + 1;
    r->n++;
    return true;
}

/* The next line is "NAME VALUE", and VALUE fits in out, char [size]. */
static bool specrt__costs_value(specrt__costs_reader *r, const char *name, char *out, size_t size) {
    size_t n = strlen(name);
    if (!specrt__costs_next(r) || strncmp(r->line, name, n) != 0 || r->line[n] != ' ') return false;
    int written = snprintf(out, size, "%s", r->line + n + 1);
    return written >= 0 && (size_t)written < size;
}

static bool specrt__costs_is_time(double seconds) {
    return seconds >= 1e-12 && seconds < 1e6;
}

/* Numbers are read and written here, for scanf() and printf() take the decimal point of the locale. Moves *at
 * behind a number and the space before it. @return NaN: there is none */
static double specrt__costs_number(const char **at) {
    const char *p = *at + (**at == ' ');
    double digits = 0;
    int exponent = 0, n = 0, after = 0;
    for (; (*p >= '0' && *p <= '9') || (*p == '.' && !after); p++) {
        if (*p == '.') {
            after = 1;
            continue;
        }
        digits = 10 * digits + (*p - '0');
        exponent -= after;
        n++;
    }
    if (n == 0 || n > 99) return NAN;
    if (*p == 'e') {
        bool below = p[1] == '-';
        int power = 0;
        for (p += 1 + (p[1] == '-' || p[1] == '+'); *p >= '0' && *p <= '9'; p++)
            power = power < 1000 ? 10 * power + (*p - '0') : power;
        exponent += below ? -power : power;
    }
    *at = p;
    return exponent < 0 ? digits / pow(10, -exponent) : digits * pow(10, exponent);
}

static bool specrt__costs_take_point(specrt_curve *c, const char *at) {
    double size = specrt__costs_number(&at), seconds = specrt__costs_number(&at), low = seconds,
           high = seconds;
    if (*at) low = specrt__costs_number(&at), high = specrt__costs_number(&at);
    if (*at || !(size >= 1 && size <= INT32_MAX && size == floor(size)) ||
        !(specrt__costs_is_time(low) && low <= seconds && seconds <= high &&
          specrt__costs_is_time(high)) ||
        (c->n > 0 && size <= c->sizes[c->n - 1]))
        return false;
    int32_t i = specrt_curve_add(c, (int32_t)size, seconds);
    if (i >= 0) c->low[i] = low, c->high[i] = high;
    return i >= 0;
}

static bool specrt__costs_take_head(specrt_costs *c, double seconds, const char *policy) {
    size_t n = strlen(policy);
    if (c->n_heads == SPECRT_COSTS_MAX_HEADS || n >= SPECRT_COSTS_TEXT ||
        !specrt__costs_is_time(seconds))
        return false;
    memcpy(c->heads[c->n_heads].policy, policy, n + 1);
    c->heads[c->n_heads++].seconds = seconds;
    return true;
}

/* One that parses. */
static bool specrt__costs_take_policy(specrt_costs *c, double rows, const char *policy) {
    size_t n = strlen(policy);
    if (c->policy[0] || n >= sizeof c->policy || !(rows >= 0 && rows <= INT32_MAX) ||
        specrt_policy_check(policy, NULL) != SPECRT_STATUS_OK)
        return false;
    memcpy(c->policy, policy, n + 1);
    c->policy_rows = (int32_t)rows;
    return true;
}

/* @return what follows NAME and a space; NULL: the line is another */
static const char *specrt__costs_after(const char *line, const char *name) {
    size_t n = strlen(name);
    return strncmp(line, name, n) == 0 && line[n] == ' ' ? line + n + 1 : NULL;
}

static bool specrt__costs_take_line(specrt_costs *c, const char *line) {
    specrt_curve *curve;
    const char *name, *at;
    for (int32_t i = 0; (curve = specrt__costs_curve(c, i, &name)) != NULL; i++)
        if ((at = specrt__costs_after(line, name)) != NULL)
            return specrt__costs_take_point(curve, at);
    if ((at = specrt__costs_after(line, "head")) != NULL) {
        double seconds = specrt__costs_number(&at);
        return *at == ' ' && specrt__costs_take_head(c, seconds, at + 1);
    }
    if ((at = specrt__costs_after(line, "policy")) != NULL) {
        double rows = specrt__costs_number(&at);
        return *at == ' ' && specrt__costs_take_policy(c, rows, at + 1);
    }
    if ((at = specrt__costs_after(line, "error")) != NULL) {
        c->error = specrt__costs_number(&at);
        c->worst = specrt__costs_number(&at);
        return !*at && c->error >= 0 && c->worst >= c->error && c->worst < 1e6;
    }
    if ((at = specrt__costs_after(line, "block")) != NULL) {
        double n = specrt__costs_number(&at);
        c->n_block = n >= 1 && n <= SPECRT_TREE_MAX_STEPS ? (int32_t)n : 0;
        return !*at && c->n_block > 0 && c->n_block == n;
    }
    c->keeps_chains = 1;
    return strcmp(line, "keeps_chains 1") == 0;
}

/* Whether text ends in the checksum of the lines before it, which *n then is the end of. */
static bool specrt__costs_is_whole(const char *text, size_t *n) {
    const size_t last = 4 + SPECRT__COSTS_HASH + 1; /* "sum HASH\n" */
    char sum[4 + SPECRT__COSTS_HASH + 2] = "sum ";
    if (*n < last) return false;
    specrt__costs_hash(text, *n - last, sum + 4);
    sum[last - 1] = '\n';
    *n -= last;
    return memcmp(text + *n, sum, last) == 0 && !memchr(text, 0, *n);
}

static specrt_status specrt__costs_take_lines(specrt__costs_reader *r, const char *name,
                                              specrt_costs *out, specrt_error *err) {
    specrt_curve *curve;
    const char *curve_name;
    bool fits = specrt__costs_value(r, "machine", out->machine, sizeof out->machine) &&
                specrt__costs_value(r, "key", out->key, sizeof out->key);
    while (fits && r->at < r->end)
        fits = specrt__costs_next(r) && specrt__costs_take_line(out, r->line);
    if (!fits)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT,
            "%s: line %d: expected machine, key, then costs, of sizes that ascend, "
            "seconds above 0 and a policy that there is, found %.60s",
            name, r->n, r->line);
    if (out->target.n == 0 || out->draft.n == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected times of target and draft, found %d and %d", name,
                                (int)out->target.n, (int)out->draft.n);
    for (int32_t i = 0; (curve = specrt__costs_curve(out, i, &curve_name)) != NULL; i++)
        specrt_curve_make_monotone(curve);
    specrt__costs_judge(out);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__costs_check_key(const specrt_costs *c, const char *name,
                                             const char *key, specrt_error *err) {
    char machine[SPECRT_COSTS_TEXT];
    if (!key) return SPECRT_STATUS_OK;
    specrt_costs_machine(machine);
    if (strcmp(c->machine, machine) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: machine: expected %s, found %.100s", name, machine,
                                c->machine);
    if (strcmp(c->key, key) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: key: expected these models and settings, found others", name);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__costs_take_all(const char *text, size_t n, const char *name,
                                            const char *key, specrt_costs *out, specrt_error *err) {
    const size_t first = sizeof specrt__costs_first_line - 1;
    specrt__costs_reader r;
    SPECRT__CLEAR(&r, 1);
    if (n < first || memcmp(text, specrt__costs_first_line, first) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected the first line `specrt costs 1`, found another; "
                                "specrt-eval plan --costs-out and specrt-llama --costs write such "
                                "files",
                                name);
    if (!specrt__costs_is_whole(text, &n))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: sum: expected the checksum of its lines at the end, found "
                                "another: the file is damaged",
                                name);
    r.at = text + first;
    r.end = text + n;
    r.n = 1;
    SPECRT__TRY(specrt__costs_take_lines(&r, name, out, err));
    return specrt__costs_check_key(out, name, key, err);
}

SPECRT_API specrt_status specrt_costs_parse(const char *text, size_t n, const char *name,
                                            const char *key, specrt_costs *out, specrt_error *err) {
    SPECRT__NEED(text);
    SPECRT__NEED(name);
    SPECRT__NEED(out);
    SPECRT__CLEAR(out, 1);
    specrt_status status = specrt__costs_take_all(text, n, name, key, out, err);
    if (status != SPECRT_STATUS_OK) SPECRT__CLEAR(out, 1);
    return status;
}

SPECRT_API specrt_status specrt_costs_read(const char *path, const char *key, specrt_costs *out,
                                           specrt_error *err) {
    char text[SPECRT_COSTS_BYTES];
    SPECRT__NEED(path);
    SPECRT__NEED(out);
    SPECRT__CLEAR(out, 1);
    FILE *f = specrt__os_fopen(path, "rb");
    if (!f)
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: expected a file of costs, found none that opens", path);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    return specrt_costs_parse(text, n, path, key, out, err);
}

/* --- or measuring --- */

SPECRT_API specrt_status specrt_costs_find(const specrt_meter *meter, const char *path,
                                           const char *key, specrt_costs *out, char *line,
                                           specrt_error *err) {
    char kept[SPECRT_COSTS_PATH + SPECRT_COSTS_TEXT + 16];
    specrt_error why;
    SPECRT__NEED(meter);
    SPECRT__NEED(path);
    SPECRT__NEED(key);
    SPECRT__NEED(out);
    SPECRT__NEED(line);
    specrt_status found = path[0] ? specrt_costs_read(path, key, out, &why) : SPECRT_STATUS_IO;
    if (found == SPECRT_STATUS_OK) {
        snprintf(line, SPECRT_COSTS_LINE, "costs: read from %s", path);
        return found;
    }
    SPECRT__TRY(specrt_costs_measure(meter, 0, 0, out, err));
    snprintf(out->key, sizeof out->key, "%s", key);
    if (specrt_costs_busy(out, line))
        snprintf(kept, sizeof kept, "not kept: %s", line);
    else
        snprintf(kept, sizeof kept, "kept in %s",
                 path[0] ? path : "no file: there is no cache folder");
    bool again = found != SPECRT_STATUS_IO;
    snprintf(line, SPECRT_COSTS_LINE, "costs: %s%s in %.1f s, %s", again ? why.msg : "",
             again ? "; measured again" : "measured", out->seconds, kept);
    return SPECRT_STATUS_OK;
}

/* --- writing --- */

/* A text of n bytes that grows; all that costs hold fits in SPECRT_COSTS_BYTES. */
typedef struct specrt__costs_writer {
    char *text;
    size_t n;
} specrt__costs_writer;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
specrt__costs_put(specrt__costs_writer *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(w->text + w->n, SPECRT_COSTS_BYTES - w->n, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < SPECRT_COSTS_BYTES - w->n) w->n += (size_t)n;
}

/* What stands for the decimal point in this locale becomes one. */
static void specrt__costs_put_number(specrt__costs_writer *w, double x) {
    char text[48], *to = text;
    snprintf(text, sizeof text, "%.9g", x);
    for (const char *from = text; *from; from++) {
        bool digit = strchr("0123456789+-e", *from) != NULL;
        if (digit || to == text || to[-1] != '.') *to++ = digit ? *from : '.';
    }
    *to = '\0';
    specrt__costs_put(w, " %s", text);
}

static void specrt__costs_put_curve(specrt__costs_writer *w, const char *name,
                                    const specrt_curve *c) {
    for (int32_t i = 0; i < c->n; i++) {
        specrt__costs_put(w, "%s %d", name, (int)c->sizes[i]);
        specrt__costs_put_number(w, c->seconds[i]);
        if (c->low[i] < c->seconds[i] || c->high[i] > c->seconds[i]) {
            specrt__costs_put_number(w, c->low[i]);
            specrt__costs_put_number(w, c->high[i]);
        }
        specrt__costs_put(w, "\n");
    }
}

SPECRT_API size_t specrt_costs_text(const specrt_costs *c, char *out) {
    char hash[SPECRT__COSTS_HASH + 1];
    const char *name;
    const specrt_curve *curve;
    specrt__costs_writer w = {out, 0};
    if (!c || !out) return 0;
    specrt__costs_put(&w, "%smachine %s\nkey %s\n", specrt__costs_first_line, c->machine, c->key);
    for (int32_t i = 0; (curve = specrt__costs_curve((specrt_costs *)c, i, &name)) != NULL; i++)
        specrt__costs_put_curve(&w, name, curve);
    for (int32_t i = 0; i < c->n_heads; i++) {
        specrt__costs_put(&w, "head");
        specrt__costs_put_number(&w, c->heads[i].seconds);
        specrt__costs_put(&w, " %s\n", c->heads[i].policy);
    }
    if (c->n_block > 0) specrt__costs_put(&w, "block %d\n", (int)c->n_block);
    if (c->keeps_chains) specrt__costs_put(&w, "keeps_chains 1\n");
    if (c->policy[0]) specrt__costs_put(&w, "policy %d %s\n", (int)c->policy_rows, c->policy);
    if (c->worst > 0) {
        specrt__costs_put(&w, "error");
        specrt__costs_put_number(&w, c->error);
        specrt__costs_put_number(&w, c->worst);
        specrt__costs_put(&w, "\n");
    }
    specrt__costs_hash(out, w.n, hash);
    specrt__costs_put(&w, "sum %s\n", hash);
    return w.n;
}

SPECRT_API specrt_status specrt_costs_write(specrt_costs *costs, const char *path,
                                            specrt_error *err) {
    char text[SPECRT_COSTS_BYTES];
    SPECRT__NEED(costs);
    SPECRT__NEED(path);
    if (costs->disturbed) return SPECRT_STATUS_OK;
    if (!specrt__os_replace(path, text, specrt_costs_text(costs, text)))
        return specrt_error_set(err, SPECRT_STATUS_IO,
                                "%s: expected a file that can be written, found none", path);
    costs->changed = 0;
    return SPECRT_STATUS_OK;
}
