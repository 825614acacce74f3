/* fuzz_token_map.c : the first byte picks the options, the rest is a token map of any kind. */
#include "model/token_map.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    token_map map;
    if (size == 0) return 0;
    const token_map_options o = {.values = (token_map_values)(data[0] % 4),
                                 .n_vocab = data[0] & 4 ? 300 : 0,
                                 .dedupe = (data[0] & 8) != 0};
    if (sl_token_map_read_memory(data + 1, size - 1, "fuzz", &o, &map, NULL) != SPECRT_STATUS_OK)
        return 0;
    for (int32_t i = 0; i < map.n; i++)
        if (map.ids[i] < 0 || (o.n_vocab && map.ids[i] >= o.n_vocab)) abort();
    sl_token_map_free(&map);
    return 0;
}
