/* align.c : policies whose drafter learns while it is compared: settings, one drafter and controller
 * each, and what is told of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/io.h"
#include "base/text.h"
#include "compare.h"
#include "engine/backend/own.h"

/* ---- settings ---- */

static bool parse_optimiser(const char *text, engine_optimiser *out) {
    *out = strcmp(text, "sgd") == 0 ? ENGINE_SGD : ENGINE_ADAMW;
    return *out == ENGINE_SGD || strcmp(text, "adamw") == 0;
}

/* "lora", "lora-paper" (EvoSpec's own descent) or "osd". */
static engine_controller_params defaults_of(const comparison *c, const char *mode) {
    engine_controller_params p = ENGINE_CONTROLLER_DEFAULTS;
    bool full = strcmp(mode, "osd") == 0;
    p.align.mode = full ? ENGINE_ALIGN_FULL : ENGINE_ALIGN_LORA;
    if (full) p.align.rate = 1e-4f;
    if (strcmp(mode, "lora-paper") == 0)
        p.align.optimiser = ENGINE_SGD, p.align.rate = 1e-5f, p.align.clip = 0;
    p.align.alpha = -1; /* the rank, unless it is given */
    p.align.seed = (uint64_t)c->options.common.seed;
    p.async = c->align.async;
    return p;
}

/* "rate=1e-3" into the settings. @return false: there is no such key, or no such value. */
static bool set_key(engine_controller_params *p, const char *text) {
    const struct {
        const char *name;
        float *real;
        int32_t *whole;
        double least, most;
    } keys[] = {{"rate", &p->align.rate, NULL, 0, 1e9},
                {"clip", &p->align.clip, NULL, 0, 1e9},
                {"alpha", &p->align.alpha, NULL, 0, 1e9},
                {"temperature", &p->gate.temperature, NULL, 0, 1000},
                {"beta", &p->gate.beta, NULL, 0, 1000},
                {"epsilon", &p->gate.epsilon, NULL, 0, 1e9},
                {"rank", NULL, &p->align.rank, 1, 256},
                {"batch", NULL, &p->gate.n_batch, 1, SPECRT_ALIGN_MAX_BATCH},
                {"gamma", NULL, &p->gate.n_steps, 1, SPECRT_TREE_MAX_NODES},
                {"top", NULL, &p->gate.n_top, 1, SPECRT_ALIGN_MAX_TOP},
                {"guard", NULL, &p->guard, 0, 1e6},
                {"interval", NULL, &p->interval, 1, 1e6}};
    size_t n = strcspn(text, "=");
    char *end = NULL;
    double value = text[n] ? strtod(text + n + 1, &end) : NAN;
    if (n == 9 && memcmp(text, "optimiser", n) == 0 && text[n])
        return parse_optimiser(text + n + 1, &p->align.optimiser);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strlen(keys[i].name) != n || memcmp(text, keys[i].name, n) != 0) continue;
        if (!(value >= keys[i].least && value <= keys[i].most) || *end) return false;
        if (keys[i].whole) *keys[i].whole = (int32_t)value;
        if (keys[i].real) *keys[i].real = (float)value;
        return true;
    }
    return false;
}

/* One of the list: mode[@key=value]... */
static specrt_status parse_one(const comparison *c, char *text, engine_controller_params *out,
                               specrt_error *err) {
    char *mode = strsep(&text, "@");
    if (strcmp(mode, "lora") != 0 && strcmp(mode, "lora-paper") != 0 && strcmp(mode, "osd") != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--align: expected off, lora, lora-paper or osd, found '%s'", mode);
    *out = defaults_of(c, mode);
    for (char *key; (key = strsep(&text, "@")) != NULL;)
        if (!set_key(out, key))
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "--align: '%s': expected rate, clip, alpha, rank, optimiser, "
                                    "batch, gamma, top, temperature, beta, epsilon, guard or "
                                    "interval, with a value in its range",
                                    key);
    if (out->align.alpha < 0) out->align.alpha = (float)out->align.rank;
    return SPECRT_STATUS_OK;
}

static specrt_status parse_all(comparison *c, specrt_error *err) {
    char *copy = strdup(c->align.list), *rest = copy;
    specrt_status status = copy ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "the comparison");
    for (char *text; status == SPECRT_STATUS_OK && (text = strsep(&rest, ",")) != NULL;) {
        alignment *a = &c->alignments[c->n_alignments];
        if (c->n_alignments == COMPARE_ALIGNMENTS)
            status =
                specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                 "--align: expected at most %d, found more", COMPARE_ALIGNMENTS);
        else
            snprintf(a->name, sizeof a->name, "%s", text),
                status = parse_one(c, text, &a->params, err), c->n_alignments++;
    }
    free(copy);
    return status;
}

specrt_status compare_align_check(comparison *c, specrt_error *err) {
    align_options *o = &c->align;
    if (o->list && strcmp(o->list, "off") != 0) TRY(parse_all(c, err));
    if (c->n_alignments == 0 && (o->save || o->load))
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "--align-save and --align-load: expected --align lora or osd with them");
    if (o->save && (c->n_alignments > 1 || c->options.policies.n != 1 ||
                    strchr(c->options.policies.items[0], ',')))
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "--align-save: expected one --policy and one --align, since one drafter is saved");
    return o->save ? sl_out_check(o->save, c->options.common.force, err) : SPECRT_STATUS_OK;
}

/* ---- a drafter that learns ---- */

specrt_status compare_align_open(comparison *c, compare_way *k, const alignment *a,
                                 specrt_error *err) {
    const engine_model *target = own_target(c->models.engine);
    const backend_info *info = c->models.info;
    size_t n = strlen(k->name);
    snprintf(k->name + n, sizeof k->name - n, " (%s)", a->name);
    if (!target)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--align: expected the engine specrt, whose drafters learn, found "
                                "%s",
                                info->engine);
    TRY(engine_drafter_open(c->options.draft, target, &k->drafter, err));
    TRY(engine_controller_create(k->drafter, c->models.head, info->n_logits, info->n_context,
                                 &a->params, &k->controller, err));
    TRY(own_sequence(c->models.engine, k->drafter, &k->sequence, err));
    return c->align.load ? engine_controller_load(k->controller, c->align.load, err)
                         : SPECRT_STATUS_OK;
}

void compare_align_close(compare_way *k) {
    sequence_free(k->sequence);
    engine_controller_free(k->controller);
    engine_drafter_close(k->drafter);
}

void compare_align_begin(compare_way *k, bool warm_up) {
    if (!k->controller) return;
    engine_controller_pause(k->controller, warm_up);
    engine_controller_get_stats(k->controller, &k->align_before);
}

/* Sums of a turn: now less what they were when it began. */
void compare_align_end(const compare_way *k, engine_controller_stats *out) {
    const engine_controller_stats *b = &k->align_before;
    *out = (engine_controller_stats){0};
    if (!k->controller) return;
    engine_controller_get_stats(k->controller, out);
    out->n_positions -= b->n_positions;
    out->n_missing -= b->n_missing;
    out->n_rejected -= b->n_rejected;
    out->n_kept -= b->n_kept;
    out->n_dropped -= b->n_dropped;
    out->n_invalid -= b->n_invalid;
    out->n_steps -= b->n_steps;
    out->n_bad_steps -= b->n_bad_steps;
    out->n_learnt -= b->n_learnt;
    out->loss -= b->loss;
    out->divergence -= b->divergence;
    out->seconds -= b->seconds;
    out->waited -= b->waited;
    out->n_looks -= b->n_looks;
    out->n_taken -= b->n_taken;
    out->n_returns -= b->n_returns;
    out->n_restarts -= b->n_restarts;
    out->look_seconds -= b->look_seconds;
}

specrt_status compare_align_save(comparison *c, specrt_error *err) {
    for (int i = FULL; c->align.save && i < c->n_ways; i++)
        if (c->ways[i].controller)
            return engine_controller_save(c->ways[i].controller, c->align.save,
                                          c->options.common.force, err);
    return SPECRT_STATUS_OK;
}

/* ---- what is told ---- */

static void put_stats(json_object *o, const engine_controller_stats *s) {
    sl_json_put(o, "n_positions", sl_json_whole((uint64_t)s->n_positions));
    sl_json_put(o, "n_path_a", sl_json_whole((uint64_t)s->n_missing));
    sl_json_put(o, "n_path_b", sl_json_whole((uint64_t)s->n_kept));
    sl_json_put(o, "n_rejected", sl_json_whole((uint64_t)s->n_rejected));
    sl_json_put(o, "n_dropped", sl_json_whole((uint64_t)s->n_dropped));
    sl_json_put(o, "n_invalid", sl_json_whole((uint64_t)s->n_invalid));
    sl_json_put(o, "n_steps", sl_json_whole((uint64_t)s->n_steps));
    sl_json_put(o, "n_bad_steps", sl_json_whole((uint64_t)s->n_bad_steps));
    sl_json_put(o, "n_learnt", sl_json_whole((uint64_t)s->n_learnt));
    sl_json_put(o, "loss", sl_json_real(s->n_learnt ? s->loss / (double)s->n_learnt : NAN));
    sl_json_put(o, "divergence",
                sl_json_real(s->n_positions ? s->divergence / (double)s->n_positions : NAN));
    sl_json_put(o, "update_ms", sl_json_real(s->seconds * 1e3));
    sl_json_put(o, "decoder_ms", sl_json_real(s->waited * 1e3));
    sl_json_put(o, "n_looks", sl_json_whole((uint64_t)s->n_looks));
    sl_json_put(o, "n_taken", sl_json_whole((uint64_t)s->n_taken));
    sl_json_put(o, "n_returns", sl_json_whole((uint64_t)s->n_returns));
    sl_json_put(o, "n_restarts", sl_json_whole((uint64_t)s->n_restarts));
    sl_json_put(o, "look_ms", sl_json_real(s->look_seconds * 1e3));
}

json_object *compare_align_json(const compare_way *k) {
    if (!k->controller) return NULL;
    json_object *o = json_object_new_object(), *bytes = json_object_new_object();
    engine_controller_stats s;
    engine_align_bytes b = engine_controller_get_bytes(k->controller);
    engine_controller_get_stats(k->controller, &s);
    put_stats(o, &s);
    sl_json_put(bytes, "parameters", sl_json_whole(b.parameters));
    sl_json_put(bytes, "gradients", sl_json_whole(b.gradients));
    sl_json_put(bytes, "moments", sl_json_whole(b.moments));
    sl_json_put(bytes, "drafting", sl_json_whole(b.drafting));
    sl_json_put(bytes, "activations", sl_json_whole(b.activations));
    sl_json_put(o, "bytes", bytes);
    return o;
}

static json_object *request_of(const comparison *c, const compare_way *k, const turn_sample *t) {
    json_object *o = json_object_new_object();
    double cycles = (double)t->stats.n_cycles;
    sl_json_put(o, "policy", sl_json_text(k->name));
    sl_json_put(o, "domain", sl_json_text(c->domains[t->domain]));
    sl_json_put(o, "prompt", sl_json_whole((uint64_t)t->prompt));
    sl_json_put(o, "n_tokens", sl_json_whole((uint64_t)t->n_tokens));
    sl_json_put(o, "n_loop", sl_json_whole((uint64_t)t->n_loop));
    sl_json_put(o, "n_cycles", sl_json_whole((uint64_t)t->stats.n_cycles));
    sl_json_put(o, "n_emitted", sl_json_whole((uint64_t)t->stats.n_emitted));
    sl_json_put(o, "accept_length",
                sl_json_real(cycles > 0 ? (double)t->stats.n_emitted / cycles : NAN));
    sl_json_put(o, "seconds", sl_json_real(t->seconds));
    if (k->controller) put_stats(o, &t->align);
    return o;
}

json_object *compare_align_requests(const comparison *c) {
    json_object *array = json_object_new_array();
    for (int t = 0; t < c->n_turns; t++)
        for (int i = FULL; i < c->n_ways; i++)
            json_object_array_add(array, request_of(c, &c->ways[i], &c->ways[i].samples[t]));
    return array;
}

void compare_align_print(const comparison *c, int width) {
    printf("\n%-*s %10s %8s %8s %8s %7s %6s %8s %9s %9s %7s %7s %8s\n", width, "alignment",
           "positions", "path A", "path B", "dropped", "steps", "bad", "loss", "ms/step", "MiB",
           "looks", "back", "restarts");
    for (int i = FULL; i < c->n_ways; i++) {
        const compare_way *k = &c->ways[i];
        engine_controller_stats s;
        if (!k->controller) continue;
        engine_align_bytes b = engine_controller_get_bytes(k->controller);
        engine_controller_get_stats(k->controller, &s);
        double steps = (double)(s.n_steps + s.n_bad_steps);
        printf("%-*s %10s %8s %8s %8s %7s %6s", width, k->name,
               sl_text_count((uint64_t)s.n_positions), sl_text_count((uint64_t)s.n_missing),
               sl_text_count((uint64_t)s.n_kept), sl_text_count((uint64_t)s.n_dropped),
               sl_text_count((uint64_t)s.n_steps), sl_text_count((uint64_t)s.n_bad_steps));
        printf(" %8.3f %9.1f %9.1f %7s %7s %8s\n", s.n_learnt ? s.loss / (double)s.n_learnt : 0.0,
               steps > 0 ? s.seconds * 1e3 / steps : 0.0,
               (double)(b.parameters + b.gradients + b.moments + b.drafting + b.activations) /
                   1048576.0,
               sl_text_count((uint64_t)s.n_looks), sl_text_count((uint64_t)s.n_returns),
               sl_text_count((uint64_t)s.n_restarts));
    }
}
