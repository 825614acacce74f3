/* compare.h : what specrt-eval compare measures, and the figures made of it. */
#ifndef SPECRT_EVAL_COMPARE_H
#define SPECRT_EVAL_COMPARE_H

#include "../shared/retained.h"
#include "../shared/eval.h"
#include "engine/train/controller.h"
#include "specrt_adapt.h"

enum { COMPARE_POSITIONS = 16 }; /* draft positions shown */

enum { WATCH_TOPS = 3, WATCH_SPANS = 6 };

/* What lists held of what the target wanted, over positions of emitted tokens. */
typedef struct list_sums {
    int64_t n_positions;
    double mass;                /* of the target's distribution at temperature 1, in the list */
    int64_t wanted[WATCH_TOPS], /* its best watch_top() tokens */
        held[WATCH_TOPS],       /* of those in the list */
        beyond[WATCH_TOPS],     /* of those in no fixed source */
        brought[WATCH_TOPS];    /* of these in the list */
} list_sums;

typedef struct span_sums {
    int64_t n_emitted, n_cycles;
} span_sums;

/* One turn under one policy. */
typedef struct turn_sample {
    int domain, prompt;
    int64_t n_prompt, n_tokens;
    int64_t n_loop;                /* tokens inside repetitions */
    double seconds, seconds_short; /* after the prompt; of an answer cut at --short */
    decoder_times times;
    specrt_session_stats stats;
    list_sums lists;
    double event_update;           /* of times.update, in cycles with an event */
    engine_controller_stats align; /* zeros where the drafter does not learn */
} turn_sample;

/* Of one policy, cycle by cycle. */
typedef struct cycle_watch {
    struct comparison *c;
    struct compare_way *k;
    list_sums lists; /* of the turn */
    double update, event_update;
    int64_t n_events, n_since;
    uint8_t *lengths; /* [n_lengths] of the cycles since the change of domain */
    size_t n_lengths, capacity;
    span_sums spans[WATCH_SPANS]; /* before and after changes */
} cycle_watch;

/* One of --align's list. */
enum { COMPARE_ALIGNMENTS = 8 };
typedef struct alignment {
    char name[64];
    engine_controller_params params;
} alignment;

/* A way to decode: by a policy, by the engine's own drafts, or plainly. */
typedef struct compare_way {
    char name[160];        /* the policy as it was given, or "plain" */
    specrt_policy *policy; /* NULL: plain decoding, or the engine's own drafts */
    eval_drafts drafts;    /* that own it and the controller */
    bool is_own;           /* chains of the engine's whole head */
    decoder *decoder;
    engine_drafter *drafter;    /* of its own, which learns; NULL: the models', on their sequence */
    sequence *sequence;         /* with that drafter */
    const alignment *alignment; /* how; NULL: it stays */
    engine_controller *controller;
    engine_controller_stats align_before; /* the turn */
    int64_t bytes_extra;                  /* packed rows beside the head's own, at most */
    run_result result;
    int64_t short_tokens, n_seen;   /* of the answer at hand */
    double first_at, seconds_short; /* seconds_short 0: the answer was no longer */
    turn_sample *samples;           /* [n_turns] */
    int n_same;                     /* turns with plain decoding's tokens */
    cycle_watch watch;
} compare_way;

/* --align and what goes with it. */
typedef struct align_options {
    const char *list, *save, *load; /* list: MODE[@KEY=VALUE]..., by commas */
    bool async;
} align_options;

/* What a comparison comes to. */
typedef struct compare_verdict {
    /* [n_ways - FULL], of ways from FULL on */
    retained *kept;
    specrt_way *worst; /* in their worst tasks */
    uint8_t *ties;     /* as fast as the fastest */
    specrt_plain plain;
    specrt_advice advice;
    specrt_ratio pruned; /* the chosen one beside the full vocabulary; value NaN: it is that */
    int chosen;          /* way to draft with; 0: there is no verdict */
    int to_run;          /* the same, or PLAIN where drafts are slower */
    char text[640];      /* of specrt_advice_text() */
} compare_verdict;

/* A token that is not plain decoding's, of an engine that rounds larger passes otherwise. */
typedef struct split {
    int way, prompt, turn, token; /* token: of the answer, from 0 */
    double
        margin; /* logits of plain decoding's token and of this one, as plain decoding had them */
    bool repeated; /* by the target, fed the same passes */
} split;

typedef struct comparison {
    eval_options options;
    int64_t rounds;       /* of each turn; the fastest counts */
    int64_t short_tokens; /* 0: whole answers alone */
    const char *report;
    bool stream, lists; /* prompts are one stream; lists are looked into */
    const char *memory; /* NULL: off */
    bool remembers;     /* later turns begin with what the earlier ones taught */
    int turn;           /* of the conversation at hand, from 0 */
    eval_costs costs;   /* what auto chooses by */
    align_options align;
    /* Each policy's drafter stays, and learns in further runs beside it. */
    alignment alignments[COMPARE_ALIGNMENTS];
    int n_alignments;
    eval_models models;
    chat *chat;
    prompt_list prompts;
    compare_way *ways; /* plain first, then full, then the others */
    int n_ways;
    char **domains;
    int n_domains;
    int n_turns, capacity;
    int n_unanswered; /* turns whose answer ends with its first token */
    split *splits;
    int n_splits;
    int prompt;            /* being decoded, from 0 */
    int domain, n_changes; /* of the stream; -1 before it begins */
    int64_t since;         /* tokens of its domain before this turn */
    int64_t n_compared;
    bool diverged;
    char divergence[320];    /* where the first one was */
    compare_verdict verdict; /* by compare_decide() */
} comparison;

enum { PLAIN = 0, FULL = 1 };

/* A 95% percentile interval by the bootstrap over prompts, whose turns stay together; NaN for fewer
 * than two prompts. */
typedef struct interval {
    double low, high;
} interval;

/* Of one policy over a domain's turns, or all. Times are seconds per cycle (plain: per token). */
typedef struct figures {
    int64_t n_prompts, n_turns, n_tokens;
    double accept_length, accept_full; /* the latter: as a share of the full vocabulary's */
    retained kept;                     /* compare_retained() of all turns; zeros: of a domain */
    double accept_worst;               /* its worst share; NaN: fewer than two tasks */
    double coverage, shortlist_rows, loop_share;
    double bytes_pass;  /* read for a drafter's pass: rows scored, and what they were chosen by */
    double rows_copied; /* a cycle */
    double draft, head, target, verify, update;
    double cycle;       /* their sum */
    double prefill;     /* per turn */
    double align;       /* the decoder's share of alignment */
    double bytes_extra; /* packed rows beside the head's own, at most */
    double tokens_per_second, speedup_plain, speedup_full;
    double speedup_request;          /* over whole requests, beside plain decoding */
    double speedup_short;            /* the same, of answers cut at --short */
    double tokens_per_second_prompt; /* the prompt's time counted too */
    double mass, recall[WATCH_TOPS], recall_beyond[WATCH_TOPS]; /* of lists; NaN: not looked into */
    double events;                                              /* a cycle */
    double update_event, update_other; /* of cycles with and without one; NaN: none */
    /* of position i + 1, given that i was accepted; NaN: never */
    double acceptance[COMPARE_POSITIONS];
    interval accept_length_ci, accept_full_ci; /* the latter: of prompts in pairs */
    interval tokens_per_second_ci, speedup_plain_ci, speedup_full_ci, speedup_request_ci,
        speedup_short_ci;
} figures;

/* compare_is_answered() : false where the first token ended the turn at hand: nothing was decoded. */
bool compare_is_answered(const comparison *c);

/* compare_check() : count a turn's tokens as compared, and keep where the first differs. Of an engine that
 * rounds larger passes otherwise a token that differs is looked into. Sampled drafts give the target's
 * distribution but not its draws, and are not compared.
 *   ids : the turn's prompt
 * @return OK; NO_MEMORY; HOST: the target failed */
specrt_status compare_check(comparison *c, compare_way *k, const id_list *ids, const char *domain,
                            specrt_error *err);
const char *compare_outcome(const comparison *c); /* in words */
void compare_print_splits(const comparison *c);
json_object *compare_splits_json(const comparison *c);

int compare_num_steps(const comparison *c); /* levels of its trees */

/* figures_of() : domain -1 takes all turns. */
void figures_of(const comparison *c, int way, int domain, figures *out);

/* compare_ratio() : the speed of way a over whole requests to that of b, with the interval over
 * prompts in pairs. A share multiplies a way's speed after the prompt, as of its worst task; 1: as
 * measured.
 * compare_retained() : accept length as a share of the full vocabulary's, in the mean and the worst task. */
specrt_ratio compare_ratio(const comparison *c, int a, double share, int b, double other_share);
retained compare_retained(const comparison *c, int way);

/* compare_span() : accept length over a span around changes of domain; NaN: no cycle was there. */
double compare_span(const comparison *c, int way, int span);

int watch_top(int i);                  /* how many best tokens: 10, 50, 100 */
const char *watch_span_name(int span); /* tokens since a change of domain; 0: before it */

/* watch_begin(), watch_end() : around a turn of one policy; watch_change() : the stream's domain is another
 * from now on. */
void watch_begin(comparison *c, compare_way *k);
void watch_end(compare_way *k, turn_sample *out);
void watch_change(comparison *c);
void watch_add_cycle(cycle_watch *w, int32_t n_emitted);

/* watch_greatest() : ids of the k greatest logits, best first; of equal ones the lower ids come first.
 * @return how many there are */
enum {
    WATCH_MOST = 100,  /* of these */
    WATCH_BEFORE = 128 /* tokens before a change of domain that its first span looks at */
};
int watch_greatest(const float *logits, int32_t n, int k, int32_t *ids);

/* compare_align_check() : of the settings, before models are loaded.
 * compare_align_open() : a way's own drafter, its controller and sequence; its name says so. */
specrt_status compare_align_check(comparison *c, specrt_error *err);
specrt_status compare_align_open(comparison *c, compare_way *k, const alignment *a,
                                 specrt_error *err);
void compare_align_close(compare_way *k); /* after its decoder */
void compare_align_begin(compare_way *k, bool warm_up);
void compare_align_end(const compare_way *k, engine_controller_stats *out);
specrt_status compare_align_save(comparison *c, specrt_error *err);
json_object *compare_align_json(const compare_way *k); /* NULL: its drafter does not learn */
json_object *compare_align_requests(const comparison *c);
void compare_align_print(const comparison *c, int width);

/* compare_decide() : fills in the verdict, of the ways that draft, by specrt_advise(). Answers that
 * take no time give none, and a text that says so. */
specrt_status compare_decide(comparison *c, specrt_error *err);
void compare_free_verdict(compare_verdict *v);

/* What it comes to: on the page, in words under the table, and as keys of the JSON. */
void compare_write_cards(FILE *f, const comparison *c);
void compare_advice(const comparison *c, FILE *f);
char *compare_words(const comparison *c); /* the same as a text, owned; NULL: no memory */
void compare_advice_json(const comparison *c, json_object *to);

/* A figure of a way where it is told. */
enum {
    COLUMN_DRAFTS = 1,      /* plain decoding has none in tables */
    COLUMN_COUNT = 2,       /* whole, on the page */
    COLUMN_SPREAD = 4,      /* the table has the interval, too */
    COLUMN_PAGE_SPREAD = 8, /* so has the page */
    COLUMN_SHORT = 16       /* known with --short alone */
};
typedef struct compare_column {
    const char *key;          /* in JSON; NULL: not there */
    size_t at, interval;      /* of figures; interval 0: it has none */
    double scale, scale_json; /* for people, and in JSON */
    unsigned flags;
    int digits, width;         /* width 0: not in the table */
    const char *above, *below; /* the table's two lines of titles */
    const char *page,
        *times; /* titles in the page's first table and in that of times; NULL: not there */
} compare_column;

/* compare_columns() : [*n] in the order of tables.
 * compare_column_value() : as it is; compare_column_shown() : for people, NaN where a way has none.
 * compare_column_interval() : of 95%, of a column that has one */
const compare_column *compare_columns(int *n);
double compare_column_value(const compare_column *column, const figures *f);
double compare_column_shown(const compare_column *column, int way, const figures *f);
interval compare_column_interval(const compare_column *column, const figures *f);

void compare_print_table(const comparison *c);
void compare_print_json(const comparison *c);
specrt_status compare_write_json(const comparison *c, const char *path, bool force,
                                 specrt_error *err);
specrt_status compare_write_report(const comparison *c, const char *path, bool force,
                                   specrt_error *err);

#endif
