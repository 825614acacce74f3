/* verify.c : owns the target's sampling distribution and the decision what to emit: draw-and-descend for any
 * draft, rejection for sampled chains. Refuses settings and drafts' distributions that are no sampling
 * distribution. Draws of plain decoding are keyed by position, those of a sampled chain by cycle and level:
 * a position is drafted again after a rejection, when what was rejected may already have changed q. */
#include "decode/verify.h"
#include "core/base.h"
#include "core/shortlist.h"
#include "core/simd.h"

SPECRT__INTERNAL specrt_status specrt__verify_check(int32_t n_logits, int32_t n_vocab,
                                                    const specrt_sampling *s, specrt_error *err) {
    if (n_logits < 1 || n_logits > SPECRT_MAX_VOCAB)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "verifier: n_logits: expected 1 to %d, found %d", SPECRT_MAX_VOCAB,
                                (int)n_logits);
    if (n_vocab < 1 || n_vocab > n_logits)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "verifier: n_vocab: expected 1 to the %d columns of logits, found "
                                "%d",
                                (int)n_logits, (int)n_vocab);
    if (!(s->temperature >= 0 && s->temperature <= 100))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "verifier: temperature: expected 0 to 100, found %g",
                                (double)s->temperature);
    if (s->top_k < 0 || !(s->top_p >= 0 && s->top_p <= 1) || !(s->min_p >= 0 && s->min_p < 1))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "verifier: expected top_k >= 0, top_p in [0, 1] and min_p in [0, "
                                "1), found %d, %g and %g",
                                (int)s->top_k, (double)s->top_p, (double)s->min_p);
    if (s->temperature > 0 && s->session == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "verifier: session: expected a number of 1 or more, another one "
                                "for each session with this seed, since equal numbers draw equal "
                                "texts; found 0");
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_verifier_create(int32_t n_logits, int32_t n_vocab,
                                                const specrt_sampling *sampling,
                                                const specrt_env *env, specrt_verifier **out,
                                                specrt_error *err) {
    specrt_env own = specrt__base_env(env);
    specrt_sampling s;
    if (!out)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "verifier: out: expected a pointer, found NULL");
    *out = NULL;
    memset(&s, 0, sizeof s);
    if (sampling) s = *sampling;
    SPECRT__TRY(specrt__verify_check(n_logits, n_vocab, &s, err));
    size_t n = (size_t)n_vocab, n_blocks = (n + SPECRT__VERIFY_BLOCK - 1) / SPECRT__VERIFY_BLOCK;
    size_t bytes = n_blocks * sizeof(double) + n * (2 * sizeof(float) + sizeof(int32_t));
    specrt_verifier *v = (specrt_verifier *)specrt__base_alloc(&own, sizeof *v + bytes);
    if (!v) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "verifier: out of memory");
    v->env = own;
    v->sampling = s;
    v->n_logits = n_logits;
    v->n_vocab = n_vocab;
    v->n_blocks = (int32_t)n_blocks;
    v->sums = (double *)(void *)(v + 1);
    v->weights = (float *)(void *)(v->sums + n_blocks);
    v->values = v->weights + n;
    v->kept = (int32_t *)(void *)(v->values + n);
    *out = v;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_verifier_close(specrt_verifier *verifier) {
    if (!verifier) return;
    specrt_env env = verifier->env;
    specrt__base_free(&env, verifier);
}

SPECRT_API void specrt_verifier_set_generation(specrt_verifier *verifier, uint64_t generation) {
    if (verifier) verifier->sampling.generation = generation;
}

/* --- weights --- */

/* exp(scale (x - max)), 16 at a time, for compilers to use vectors: 2^n e^r as in >>simd. What is below
 * e^-80 of the best counts as -inf does, and NaN too: exactly 0. Comparisons are of bits, for those of
 * floats may trap and keep their branch; the copy tells that out overlaps nothing. */
static void specrt__verify_exp16(const float *in, float max, float scale, float *out) {
    const uint32_t limit = 0x42a00000u; /* of 80 */
    float x[16];
    memcpy(x, in, sizeof x);
    for (int i = 0; i < 16; i++) {
        uint32_t size = specrt__base_bits((x[i] - max) * scale) & 0x7fffffffu;
        uint32_t mask = 0u - (uint32_t)(size < limit);
        float t = -specrt__base_float((size & mask) | (limit & ~mask));
        float z = t * 1.44269504f + 12582912.0f, n = z - 12582912.0f;
        float r = (t - n * 0.693359375f) + n * 2.12194440e-4f;
        float y = r * (1 / 5040.0f) + 1 / 720.0f;
        y = y * r + 1 / 120.0f;
        y = y * r + 1 / 24.0f;
        y = y * r + 1 / 6.0f;
        y = y * r + 0.5f;
        y = y * r + 1.0f;
        y = y * r + 1.0f;
        y *= specrt__base_float((specrt__base_bits(z) + 127) << 23);
        x[i] = specrt__base_float(specrt__base_bits(y) & mask);
    }
    memcpy(out, x, sizeof x);
}

/* Weights of n logits, in place if out is x. */
static void specrt__verify_exp(const float *x, int32_t n, float max, float temperature,
                               float *out) {
    float scale = temperature > 1e-30f ? 1 / temperature : 1e30f, tail[16];
    int32_t n_whole = n - n % 16;
    for (int32_t i = 0; i < n_whole; i += 16) specrt__verify_exp16(x + i, max, scale, out + i);
    for (int32_t i = n_whole; i < n_whole + 16; i++) tail[i % 16] = i < n ? x[i] : -INFINITY;
    specrt__verify_exp16(tail, max, scale, tail);
    for (int32_t i = n_whole; i < n; i++) out[i] = tail[i % 16];
}

SPECRT__INTERNAL double specrt__verify_sum(const float *x, int32_t n) {
    double lanes[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) lanes[k] += (double)x[i + k];
    for (; i < n; i++) lanes[0] += (double)x[i];
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
           ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/* Sums of the weights as they are; given logits, of the weights that those have. */
static void specrt__verify_weigh(specrt_verifier *v, const float *logits, float max) {
    v->total = 0;
    for (int32_t b = 0; b < v->n_blocks; b++) {
        int32_t n = specrt__verify_block(v, b), begin = b * SPECRT__VERIFY_BLOCK;
        if (logits)
            specrt__verify_exp(logits + begin, n, max, v->sampling.temperature, v->weights + begin);
        v->sums[b] = specrt__verify_sum(v->weights + begin, n);
        v->total += v->sums[b];
    }
}

/* --- filters --- */

/* Rank order: greater logit first, then lower id. */
static bool specrt__verify_above(const float *x, int32_t a, int32_t b) {
    return x[a] > x[b] || (x[a] == x[b] && a < b);
}

/* Of a heap with the last of its ids in rank order on top. */
static void specrt__verify_sift(const float *x, int32_t *heap, int32_t n, int32_t at) {
    int32_t id = heap[at];
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= n) break;
        if (child + 1 < n && specrt__verify_above(x, heap[child], heap[child + 1])) child++;
        if (specrt__verify_above(x, heap[child], id)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = id;
}

static void specrt__verify_heapify(const float *x, int32_t *heap, int32_t n) {
    for (int32_t i = n / 2 - 1; i >= 0; i--) specrt__verify_sift(x, heap, n, i);
}

/* Tokens whose x is above a bound, into kept; with k, the k best of them. @return how many. */
static int32_t specrt__verify_collect(specrt_verifier *v, const float *x, float bound, int32_t k) {
    const specrt__simd_kernels *kernels = specrt__simd_choose();
    int32_t n = 0;
    for (int32_t i = 0; i < v->n_vocab; i++) {
        if (i % SPECRT__SIMD_SCAN == 0) i += (int32_t)kernels->find(x + i, v->n_vocab - i, bound);
        if (i >= v->n_vocab) break;
        if (!(x[i] > bound)) continue;
        if (n == k && k > 0) {
            v->kept[0] = i;
            specrt__verify_sift(x, v->kept, n, 0);
        } else {
            v->kept[n++] = i;
            if (n == k) specrt__verify_heapify(x, v->kept, n);
        }
        if (n == k) bound = x[v->kept[0]]; /* an equal one that comes later ranks lower */
    }
    return n;
}

/* Weights that share sign, exponent and three bits; those from 0 to 1 fall into buckets 0 to 1016. */
static int32_t specrt__verify_bucket(float weight) {
    return (int32_t)(specrt__base_bits(weight) >> 20);
}

/* Tokens of kept [begin, n) from a bucket on come first. @return where they end. */
static int32_t specrt__verify_part(specrt_verifier *v, int32_t begin, int32_t n, int32_t bucket) {
    for (int32_t i = begin; i < n; i++) {
        int32_t id = v->kept[i];
        if (specrt__verify_bucket(v->weights[id]) < bucket) continue;
        v->kept[i] = v->kept[begin];
        v->kept[begin++] = id;
    }
    return begin;
}

/* Of the n kept the fewest, best first, whose weights reach a mass. @return how many: they come first.
 * A histogram finds the bucket that the mass is reached in; only that one is put in order. */
static int32_t specrt__verify_nucleus(specrt_verifier *v, const float *logits, double mass,
                                      int32_t n) {
    double masses[1024], sum = 0;
    int32_t bucket = 1023;
    memset(masses, 0, sizeof masses);
    for (int32_t i = 0; i < n; i++) {
        float weight = v->weights[v->kept[i]];
        masses[specrt__verify_bucket(weight)] += (double)weight;
    }
    while (bucket > 0 && sum + masses[bucket] < mass) sum += masses[bucket--];
    int32_t n_above = specrt__verify_part(v, 0, n, bucket + 1);
    int32_t *heap = v->kept + n_above,
            n_heap = specrt__verify_part(v, n_above, n, bucket) - n_above;
    specrt__verify_heapify(logits, heap, n_heap);
    sum += masses[bucket];
    while (n_heap > 1 && sum - (double)v->weights[heap[0]] >= mass) {
        sum -= (double)v->weights[heap[0]];
        heap[0] = heap[--n_heap];
        specrt__verify_sift(logits, heap, n_heap, 0);
    }
    return n_above + n_heap;
}

/* All weights but those of the n kept become 0, and theirs too if min_p says so. */
static void specrt__verify_keep(specrt_verifier *v, int32_t n) {
    const int32_t *ids = v->kept;
    for (int32_t i = 0; i < n; i++) v->values[i] = v->weights[ids[i]];
    memset(v->weights, 0, (size_t)v->n_vocab * sizeof *v->weights);
    memset(v->sums, 0, (size_t)v->n_blocks * sizeof *v->sums);
    v->total = 0;
    for (int32_t i = 0; i < n; i++) {
        if (v->values[i] < v->sampling.min_p) continue; /* the best weighs 1 */
        v->weights[ids[i]] = v->values[i];
        v->sums[ids[i] / SPECRT__VERIFY_BLOCK] += (double)v->values[i];
        v->total += (double)v->values[i];
    }
}

/* The distribution of a row of logits, into weights, sums and total.
 * A nucleus is found without sorting the vocabulary: tokens below (1 - top_p) / n_vocab of the total
 * weigh less than 1 - top_p of it together, so the nucleus ends above that. */
SPECRT__INTERNAL bool specrt__verify_distribution(specrt_verifier *v, const float *logits) {
    const specrt_sampling *s = &v->sampling;
    int32_t n = v->n_vocab, best = specrt__shortlist_argmax(logits, n);
    bool top_k = s->top_k > 0 && s->top_k<n, top_p = s->top_p> 0 && s->top_p < 1;
    if (best < 0) return false;
    float max = logits[best];
    const int32_t *ids = v->kept;
    if (s->temperature == 0 || max == INFINITY) {
        v->weights[best] = 1;
        v->kept[0] = best;
        specrt__verify_keep(v, 1);
        return true;
    }
    if (top_k) {
        n = specrt__verify_collect(v, logits, -INFINITY, s->top_k);
        for (int32_t i = 0; i < n; i++) v->values[i] = logits[ids[i]];
        specrt__verify_exp(v->values, n, max, s->temperature, v->values);
        for (int32_t i = 0; i < n; i++) v->weights[ids[i]] = v->values[i];
        v->total = specrt__verify_sum(v->values, n);
    } else {
        specrt__verify_weigh(v, logits, max);
        if (!top_p && !(s->min_p > 0)) return true;
        float least = top_p ? (float)(0.99 * (1 - (double)s->top_p) * v->total / n) : s->min_p;
        if (least < s->min_p) least = s->min_p;
        n = specrt__verify_collect(v, v->weights, nextafterf(least, 0), 0);
    }
    if (top_p) n = specrt__verify_nucleus(v, logits, (double)s->top_p * v->total, n);
    specrt__verify_keep(v, n);
    return true;
}

SPECRT__INTERNAL int32_t specrt__verify_pick(const specrt_verifier *v, double u) {
    double target = u * v->total, sum = 0, before = 0;
    int32_t block = 0, token = 0;
    for (int32_t b = 0; b < v->n_blocks && sum <= target; b++) {
        if (!(v->sums[b] > 0)) continue;
        block = b;
        before = sum;
        sum += v->sums[b];
    }
    int32_t begin = block * SPECRT__VERIFY_BLOCK, end = begin + specrt__verify_block(v, block);
    for (int32_t i = begin; i < end && before <= target; i++) {
        if (!(v->weights[i] > 0)) continue;
        token = i;
        before += (double)v->weights[i];
    }
    return token;
}

SPECRT_API int32_t specrt_verifier_draw(specrt_verifier *v, const float *logits, int64_t position) {
    if (!v || !logits || position < 0) return -1;
    if (v->sampling.temperature == 0) return specrt__shortlist_argmax(logits, v->n_vocab);
    if (!specrt__verify_distribution(v, logits)) return -1;
    return specrt__verify_pick(
        v, specrt__verify_uniform(&v->sampling, SPECRT__VERIFY_DRAW, position, 0));
}

/* --- draw-and-descend --- */

SPECRT__INTERNAL int32_t specrt__verify_stray(const specrt_draft *draft) {
    for (int32_t i = 1; i < draft->n; i++)
        if (draft->parents[i] < 0 || draft->parents[i] >= i) return i;
    return 0;
}

static bool specrt__verify_is_tree(const specrt_draft *draft) {
    return draft && draft->n >= 1 && draft->n <= SPECRT_TREE_MAX_NODES && draft->tokens &&
           draft->parents && specrt__verify_stray(draft) == 0;
}

static int32_t specrt__verify_child(const specrt_draft *draft, int32_t parent, int32_t token) {
    for (int32_t i = parent + 1; i < draft->n; i++)
        if (draft->parents[i] == parent && draft->tokens[i] == token) return i;
    return -1;
}

SPECRT_API specrt_status specrt_verify_tree(specrt_verifier *v, const specrt_draft *draft,
                                            const float *logits, int64_t position,
                                            specrt_verdict *out) {
    if (!out) return SPECRT_STATUS_BAD_ARG;
    memset(out, 0, sizeof *out);
    if (!v || !logits || position < 0 || !specrt__verify_is_tree(draft))
        return SPECRT_STATUS_BAD_ARG;
    for (int32_t node = 0; node >= 0;) {
        int32_t token = specrt_verifier_draw(v, logits + (int64_t)node * v->n_logits, position++);
        if (token < 0) return memset(out, 0, sizeof *out), SPECRT_STATUS_BAD_INPUT;
        out->nodes[out->n] = node;
        out->tokens[out->n++] = token;
        node = specrt__verify_child(draft, node, token);
    }
    return SPECRT_STATUS_OK;
}

/* --- rejection sampling --- */

/* The pick is made from the very numbers that are handed out as q. */
SPECRT_API int32_t specrt_verifier_propose(const specrt_verifier *v, const float *logits, int32_t n,
                                           float temperature, int64_t cycle, int32_t level,
                                           float *probs) {
    int32_t best = 0;
    double target, sum = 0;
    if (!v || !logits || !probs) return -1;
    for (int32_t i = 0; i < n; i++) probs[i] = 0;
    if (!(temperature > 0 && temperature <= 100) || specrt_logits_topk(logits, n, 1, &best) == 0)
        return -1;
    if (logits[best] == INFINITY) {
        probs[best] = 1;
        return best;
    }
    specrt__verify_exp(logits, n, logits[best], temperature, probs);
    double scale = 1 / specrt__verify_sum(probs, n);
    for (int32_t i = 0; i < n; i++) probs[i] = (float)((double)probs[i] * scale);
    target = specrt__verify_uniform(&v->sampling, SPECRT__VERIFY_DRAFT, cycle, level) *
             specrt__verify_sum(probs, n);
    for (int32_t i = 0; i < n && sum <= target; i++) {
        if (!(probs[i] > 0)) continue;
        best = i;
        sum += (double)probs[i];
    }
    return best;
}

/* q of a token; 0 when the distribution is none. */
static double specrt__verify_chance(const specrt_verifier *v,
                                    const specrt_draft_distribution *distribution, int32_t token) {
    if (distribution->n < 1 || !distribution->ids || !distribution->probs) return 0;
    double sum = specrt__verify_sum(distribution->probs, distribution->n), q = 0;
    if (!(fabs(sum - 1) <= 1e-3)) return 0;
    for (int32_t i = 0; i < distribution->n; i++) {
        if (distribution->probs[i] == 0) continue; /* masked rows may stand for no token */
        if (distribution->ids[i] < 0 || distribution->ids[i] >= v->n_vocab ||
            distribution->probs[i] < 0)
            return 0;
        if (distribution->ids[i] == token) q += (double)distribution->probs[i];
    }
    return q;
}

/* The weights become those of max(0, p - q). @return false when that is 0 everywhere. */
SPECRT__INTERNAL bool specrt__verify_subtract(specrt_verifier *v,
                                              const specrt_draft_distribution *distribution) {
    double total = v->total;
    for (int32_t i = 0; i < distribution->n; i++)
        if (distribution->probs[i] > 0)
            v->weights[distribution->ids[i]] -= (float)((double)distribution->probs[i] * total);
    for (int32_t i = 0; i < distribution->n; i++)
        if (distribution->probs[i] > 0 && v->weights[distribution->ids[i]] < 0)
            v->weights[distribution->ids[i]] = 0;
    specrt__verify_weigh(v, NULL, 0);
    return v->total > 1e-12 * total;
}

SPECRT_API specrt_status specrt_verify_chain(specrt_verifier *v, const int32_t *tokens,
                                             const specrt_draft_distribution *distributions,
                                             int32_t n, const float *logits, int64_t cycle,
                                             specrt_verdict *out) {
    double q[SPECRT_TREE_MAX_NODES];
    if (!out) return SPECRT_STATUS_BAD_ARG;
    memset(out, 0, sizeof *out);
    if (!v || !logits || n < 0 || n >= SPECRT_TREE_MAX_NODES ||
        (n > 0 && (!tokens || !distributions)))
        return SPECRT_STATUS_BAD_ARG;
    for (int32_t i = 0; i < n; i++) {
        q[i] = specrt__verify_chance(v, &distributions[i], tokens[i]);
        if (!(q[i] > 0)) return SPECRT_STATUS_BAD_ARG;
    }
    for (int32_t i = 0; i <= n; i++, logits += v->n_logits) {
        if (!specrt__verify_distribution(v, logits))
            return memset(out, 0, sizeof *out), SPECRT_STATUS_BAD_INPUT;
        out->nodes[i] = i;
        out->n = i + 1;
        if (i < n) {
            double p = (double)v->weights[tokens[i]] / v->total;
            out->tokens[i] = tokens[i];
            if (specrt__verify_uniform(&v->sampling, SPECRT__VERIFY_ACCEPT, cycle, i) * q[i] < p)
                continue;
            if (!specrt__verify_subtract(v, &distributions[i]))
                (void)specrt__verify_distribution(v, logits);
        }
        out->tokens[i] = specrt__verify_pick(
            v, specrt__verify_uniform(&v->sampling, SPECRT__VERIFY_INSTEAD, cycle, i));
        break;
    }
    return SPECRT_STATUS_OK;
}
