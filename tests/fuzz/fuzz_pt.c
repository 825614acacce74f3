/* fuzz_pt.c : any bytes as a torch file (zip archive or bare pickle). */
#include "formats/pt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pt *p;
    pt_tensor t;
    if (sl_pt_open_memory(data, size, "fuzz", &p, NULL) != SPECRT_STATUS_OK) return 0;
    const pt_value *root = sl_pt_root(p), *d2t = sl_pt_find(root, "d2t");
    if (root->kind == PT_TENSOR) sl_pt_tensor_get(p, root, &t, NULL);
    if (d2t && d2t->kind == PT_TENSOR) sl_pt_tensor_get(p, d2t, &t, NULL);
    sl_pt_close(p);
    return 0;
}
