/* pt.h : read and write torch.save files that hold integers: lists, dicts and 1-D tensors.
 *
 * A .pt is a zip archive around a Python pickle. The pickle is never executed: a small machine knows
 * the few opcodes such data needs and refuses every other one by name. */
#ifndef FORMATS_PT_H
#define FORMATS_PT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/io.h"
#include "specrt.h"

typedef enum pt_kind {
    PT_NONE,
    PT_BOOL,
    PT_INT,
    PT_STRING,
    PT_TUPLE,
    PT_LIST,
    PT_DICT,    /* items are key, value, key, value... */
    PT_GLOBAL,  /* a name the machine knows */
    PT_STORAGE, /* of a tensor */
    PT_TENSOR
} pt_kind;

typedef struct pt_value {
    pt_kind kind;
    int64_t i;                /* PT_INT, PT_BOOL; PT_GLOBAL: which */
    struct pt_object *object; /* the others; owned by the pt */
} pt_value;

typedef struct pt_object {
    pt_value *items;
    int64_t n;
    const char *text; /* PT_STRING: [n] borrowed from the file */
    struct pt_object *next;
} pt_object;

typedef struct pt pt;

bool sl_pt_probe(const void *bytes, size_t n); /* starts like a zip archive or a pickle */

/* sl_pt_open_memory() : a .pt, or a bare pickle, whose bytes are borrowed until sl_pt_close().
 * @return BAD_INPUT; UNSUPPORTED naming the opcode or the Python name that is no plain data. */
specrt_status sl_pt_open_memory(const void *bytes, size_t n, const char *name, pt **out,
                                specrt_error *err);
void sl_pt_close(pt *p);
const pt_value *sl_pt_root(const pt *p);
const char *sl_pt_kind_name(pt_kind kind);

/* sl_pt_find() : the value of a string key of a dict; NULL: absent. */
const pt_value *sl_pt_find(const pt_value *dict, const char *key);

typedef struct pt_tensor {
    const char *name; /* writing: its key in the dict */
    char kind;        /* 'i' signed, 'u' unsigned, 'b' bool, 'f' float */
    int item_bytes;
    int64_t n;
    const void *values; /* little-endian, unaligned; borrowed */
} pt_tensor;

/* sl_pt_tensor_get() : the values of a contiguous 1-D tensor. */
specrt_status sl_pt_tensor_get(const pt *p, const pt_value *value, pt_tensor *out,
                               specrt_error *err);

/* sl_pt_write_list() : a list of ints, as Python pickles it. sl_pt_write_counts() : a dict {id: count} in the
 * given order. sl_pt_write_tensors() : a dict of int64 and bool tensors, at most 4. */
specrt_status sl_pt_write_list(const int32_t *ids, int64_t n, out_file *out, specrt_error *err);
specrt_status sl_pt_write_counts(const int32_t *ids, const uint64_t *counts, int64_t n,
                                 out_file *out, specrt_error *err);
specrt_status sl_pt_write_tensors(const pt_tensor *tensors, int n, out_file *out,
                                  specrt_error *err);

#endif
