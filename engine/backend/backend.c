/* backend.c : see backend.h. */
#include "engine/backend/backend.h"

#include <stddef.h>

void backend_close(backend *b) {
    if (b) b->ops->close(b);
}

specrt_status sequence_create(backend *b, sequence **out, specrt_error *err) {
    *out = NULL;
    return b->ops->sequence_create(b, out, err);
}

void sequence_free(sequence *s) {
    if (s) s->of->ops->sequence_free(s);
}

void sequence_reset(sequence *s) {
    s->reads_late = s->is_plain = false;
    s->learning = 0;
    s->of->ops->reset(s);
}

const char *sequence_fault(const sequence *s) {
    return s->of->ops->fault(s);
}

void sequence_use_own(sequence *s, bool use) {
    if (s->of->info.has_own) s->of->ops->use_own(s, use);
}

const float *sequence_own_logits(sequence *s) {
    return s->of->ops->own_logits(s);
}
