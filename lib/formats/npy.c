/* npy.c : see npy.h. The header is a Python dict literal; only the three keys NumPy writes are known. */
#include "specrt_tools.h"
#include "formats/npy.h"

#include <inttypes.h>
#include <string.h>

#define MAGIC       "\x93NUMPY"
#define MAGIC_BYTES 6
enum { ALIGN = 64 }; /* NumPy pads its headers to this */

bool sl_npy_probe(const void *bytes, size_t n) {
    return n >= MAGIC_BYTES && memcmp(bytes, MAGIC, MAGIC_BYTES) == 0;
}

/* A cursor over the header's text. */
typedef struct cursor {
    const char *p, *end;
} cursor;

static void skip_spaces(cursor *c) {
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n')) c->p++;
}

static bool take(cursor *c, const char *word) {
    size_t n = strlen(word);
    skip_spaces(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0) return false;
    c->p += n;
    return true;
}

static bool take_number(cursor *c, int64_t *out) {
    skip_spaces(c);
    const char *start = c->p;
    int64_t x = 0;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++) {
        if (x > (INT64_MAX - 9) / 10) return false;
        x = x * 10 + (*c->p - '0');
    }
    *out = x;
    return c->p > start;
}

/* '<i8': byte order ('|' for single bytes), kind, bytes. */
static bool take_descr(cursor *c, npy_array *out) {
    if (!take(c, "'") || c->end - c->p < 4) return false;
    char order = c->p[0], kind = c->p[1];
    out->item_bytes = c->p[2] - '0';
    c->p += 3;
    bool size_known = out->item_bytes == 1 || out->item_bytes == 2 || out->item_bytes == 4 ||
                      out->item_bytes == 8;
    out->kind = kind;
    if (kind == 0 || !strchr("iubf", kind) || !size_known) return false;
    if (kind == 'b' && out->item_bytes != 1) return false;
    return (order == '<' || (order == '|' && out->item_bytes == 1)) && take(c, "'");
}

static bool take_shape(cursor *c, npy_array *out) {
    if (!take(c, "(")) return false;
    out->n = 1;
    while (!take(c, ")")) {
        int64_t d;
        if (out->n_dims == NPY_MAX_DIMS || !take_number(c, &d)) return false;
        if (d != 0 && out->n > INT64_MAX / 8 / d) return false;
        out->shape[out->n_dims++] = d;
        out->n *= d;
        if (!take(c, ",") && (c->p == c->end || *c->p != ')')) return false;
    }
    return true;
}

/* @return NULL, or the field that cannot be read. */
static const char *parse_dict(cursor *c, npy_array *out) {
    bool descr = false, order = false, shape = false;
    if (!take(c, "{")) return "header";
    while (!take(c, "}")) {
        if (!descr && take(c, "'descr':")) {
            if (!take_descr(c, out)) return "descr";
            descr = true;
        } else if (!order && take(c, "'fortran_order':")) {
            out->fortran = take(c, "True");
            if (!out->fortran && !take(c, "False")) return "fortran_order";
            order = true;
        } else if (!shape && take(c, "'shape':")) {
            if (!take_shape(c, out)) return "shape";
            shape = true;
        } else {
            return "header";
        }
        take(c, ",");
    }
    return descr ? order ? shape ? NULL : "shape" : "fortran_order" : "descr";
}

specrt_status sl_npy_header(const void *bytes, size_t n, const char *name, npy_array *out,
                            specrt_error *err) {
    const uint8_t *b = (const uint8_t *)bytes;
    *out = (npy_array){0};
    if (!sl_npy_probe(bytes, n))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected a .npy file, found other bytes", name);
    int version = n > MAGIC_BYTES ? b[MAGIC_BYTES] : 0;
    if (n > MAGIC_BYTES && (version < 1 || version > 3))
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: .npy version %d; expected 1 to 3", name, version);
    size_t start = version == 1 ? 10 : 12, length = 0;
    for (size_t i = start; i > 8 && n >= start; i--) length = length << 8 | b[i - 1];
    if (n < start || length > n - start)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: .npy header is cut off; expected %zu bytes, found %zu", name,
                                start + length, n);
    cursor c = {(const char *)b + start, (const char *)b + start + length};
    out->header_bytes = start + length;
    const char *bad = parse_dict(&c, out);
    if (!bad) return SPECRT_STATUS_OK;
    *out = (npy_array){0};
    return specrt_error_set(
        err, SPECRT_STATUS_BAD_INPUT,
        "%s: .npy field '%s' cannot be read; expected an array of little-endian "
        "integers, bools or floats",
        name, bad);
}

specrt_status sl_npy_values(const void *bytes, size_t n, const char *name, npy_array *out,
                            const uint8_t **values, specrt_error *err) {
    *values = NULL;
    specrt_status status = sl_npy_header(bytes, n, name, out, err);
    if (status != SPECRT_STATUS_OK) return status;
    uint64_t expected = (uint64_t)out->n * (uint64_t)out->item_bytes;
    if (n - out->header_bytes != expected) {
        size_t found = n - out->header_bytes;
        *out = (npy_array){0};
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: .npy values: expected %" PRIu64 " bytes, found %zu", name,
                                expected, found);
    }
    *values = (const uint8_t *)bytes + out->header_bytes;
    return SPECRT_STATUS_OK;
}

int64_t sl_npy_int(const npy_array *array, const uint8_t *values, int64_t i) {
    const uint8_t *p = values + i * array->item_bytes;
    uint64_t x = 0;
    for (int b = array->item_bytes; b-- > 0;) x = x << 8 | p[b];
    if (array->kind != 'i') return x > INT64_MAX ? INT64_MAX : (int64_t)x;
    int unused = 64 - 8 * array->item_bytes; /* extend the sign */
    return (int64_t)(x << unused) >> unused;
}

specrt_status sl_npy_write(char kind, int item_bytes, const void *values, int64_t n, out_file *out,
                           specrt_error *err) {
    char header[2 * ALIGN];
    memset(header, ' ', sizeof header);
    memcpy(header, MAGIC "\x01\x00", 8);
    header[8] = (char)(sizeof header - 10);
    header[9] = 0;
    int length = snprintf(header + 10, sizeof header - 10,
                          "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (%" PRId64 ",), }",
                          item_bytes == 1 ? '|' : '<', kind, item_bytes, n);
    header[10 + length] = ' '; /* over snprintf's NUL */
    header[sizeof header - 1] = '\n';
    specrt_status status = sl_out_write(out, header, sizeof header, err);
    if (status != SPECRT_STATUS_OK) return status;
    return sl_out_write(out, values, (size_t)n * (size_t)item_bytes, err);
}
