/* fuzz_npy.c : any bytes as a .npy file. */
#include "formats/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    npy_array array;
    const uint8_t *values;
    int64_t sum = 0;
    if (sl_npy_values(data, size, "fuzz", &array, &values, NULL) != SPECRT_STATUS_OK) return 0;
    for (int64_t i = 0; i < array.n && array.kind != 'f'; i++) sum ^= sl_npy_int(&array, values, i);
    return sum == 42; /* keeps the reads */
}
