/* specrt_adapt.h : what passes cost on a machine, and what to run there. Tools, engines and `auto` ask these
 * functions and decide nothing of their own. The conventions of specrt.h hold. The single header has it where
 * SPECRT_TOOLS is defined.
 *
 * FUNCTIONS, by task (prefix specrt_):
 *     measure passes        meter_open, meter_close; curve_add, curve_at, curve_make_monotone; costs_measure,
 *                           _busy, _machine, _head, _width, _next, _nodes
 *     keep costs            costs_find, costs_path, costs_read, costs_write; as text: costs_text, costs_parse
 *     follow the clock      clock_init, _see, _table, _auto, _hopeless, _explain, _seconds; timer_host,
 *                           _begin
 *     decide what to run    ratio_outcome, outcome_name, advise, advice_text
 *     know policies         policy_preset, policy_untried, advise_untried
 */
#ifndef SPECRT_ADAPT_H
#define SPECRT_ADAPT_H

#include "specrt.h"

// >>adapt
// Costs of passes; the verdict on policies.

#if !defined(SPECRT_STATIC) || defined(SPECRT_TOOLS)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- costs: what passes of both models and products of the head take ----
 * The models are a specrt_host, so every engine is measured alike, and tests can set the time. */

enum {
    SPECRT_CURVE_MAX_SIZES = 64,
    SPECRT_COSTS_MAX_HEADS = 8, /* policies whose scoring was timed */
    SPECRT_COSTS_WIDTHS = 3,    /* hidden rows of one product that are timed: 1, 4, 10 */
    SPECRT_COSTS_TEXT = 256, /* bytes of a policy, of a machine's name, of a line about a clock */
    SPECRT_COSTS_KEY = 512,
    SPECRT_COSTS_POLICY = 1024,
    SPECRT_COSTS_PATH = 1024,
    SPECRT_COSTS_LINE = 2560,  /* bytes of a line about costs */
    SPECRT_COSTS_BYTES = 65536 /* of a file, its NUL included, at most */
};

/* Seconds by size. Zero-initialise it. */
typedef struct specrt_curve {
    int32_t n;                              /* sizes */
    int32_t sizes[SPECRT_CURVE_MAX_SIZES];  /* [n], ascending */
    double seconds[SPECRT_CURVE_MAX_SIZES]; /* [n], of each size */
    double low[SPECRT_CURVE_MAX_SIZES];     /* [n], lower end of the 95% interval of seconds */
    double high[SPECRT_CURVE_MAX_SIZES];    /* [n], upper end; both are seconds where not known */
} specrt_curve;

/* specrt_curve_add() : Adds a measured size, in any order; each once. A full curve stays as it is.
 *   curve : changed; low and high become seconds
 *   size : above 0
 *   seconds : above 0
 * @return its place in the curve; -1: the curve is full. */
SPECRT_API int32_t specrt_curve_add(specrt_curve *curve, int32_t size, double seconds);

/* specrt_curve_make_monotone() : The nearest curve that never falls, by least squares (pool adjacent
 * violators: Ayer et al. 1955). More work takes no less time; where it seems to, the clock was disturbed.
 *   curve : changed */
SPECRT_API void specrt_curve_make_monotone(specrt_curve *curve);

/* specrt_curve_at() : Seconds of a size, which may lie between whole ones: linear between measured sizes and
 * beyond them, proportional to a single one; below the least size never under a tenth of its seconds. An
 * empty curve: 0.
 *   curve : read
 *   size : above 0 */
SPECRT_API double specrt_curve_at(const specrt_curve *curve, double size);

/* Scoring one level of a draft by a policy. */
typedef struct specrt_scoring {
    char policy[SPECRT_COSTS_TEXT]; /* its text */
    double seconds;                 /* of a level */
} specrt_scoring;

/* Zero-initialise it. */
typedef struct specrt_costs {
    char machine[SPECRT_COSTS_TEXT]; /* where it was measured: processor, how many there are */
    char key[SPECRT_COSTS_KEY]; /* of models, threads, context and build: what costs depend on */
    specrt_curve target;        /* a pass of the target, by tokens, with logits of all tokens */
    specrt_curve draft;         /* a pass of the drafter, by tokens, without its LM head */
    specrt_curve prompt;        /* the target reads a prompt, by tokens, with logits of the last */
    specrt_curve prompt_all;    /* the same with logits of all tokens */
    /* The drafter's first pass after a prompt, by the prompt's tokens: it reads those that it has not read
     * beside the target */
    specrt_curve draft_prompt;
    /* A product of the head, by its rows, for the one hidden row after the target's pass; empty: not timed */
    specrt_curve head_first;
    /* The same for specrt_costs_width(i) hidden rows of a cycle's next levels */
    specrt_curve head_next[SPECRT_COSTS_WIDTHS];
    specrt_scoring heads[SPECRT_COSTS_MAX_HEADS]; /* [n_heads] of whole policies */
    int32_t n_heads;                              /* policies whose scoring was timed */
    int32_t keeps_chains;                         /* as in specrt_auto_desc */
    int32_t policy_rows; /* that the policy below scored in the mean, rounded up; 0: not known */
    char policy[SPECRT_COSTS_POLICY]; /* the fastest by these costs; "": none was compared */
    /* Positions that a pass of the drafter drafts at most, where it drafts blocks; 0: token by token. Of
     * blocks, draft is the one pass of a draft: up to n_block by its positions, behind one token that it
     * reads first; from there on a whole block, by what it reads beyond that token. head_next of 4 and 10
     * rows is then the product for so many positions, after passes of target and drafter */
    int32_t n_block;
    double seconds; /* that measuring took; 0: unknown, as of a file */
    double error;   /* at sizes between the measured ones, as a share: the median; 0: unknown */
    double worst;   /* the same: the greatest */
    /* Width of the 95% interval of a cycle with three drafts in plain passes, as a share; 0: unknown */
    double spread;
    double busy;     /* processors in use when measuring began, by the load average; 0: unknown */
    int32_t changed; /* 1: since it was read from a file or written to one */
    /* 1: spread is above 0.25, or times contradict each other: the machine was too busy to tell. Not to be
     * kept, and proof of nothing */
    int32_t disturbed;
} specrt_costs;

/* specrt_costs_width() : Hidden rows of the product that head_next[i] is about: 1, 4 or 10.
 *   i : from 0, below SPECRT_COSTS_WIDTHS */
SPECRT_API int32_t specrt_costs_width(int32_t i);

/* specrt_costs_next() : head_next of the next width from so many hidden rows on, or the last. Borrowed from
 * costs.
 *   costs : read
 *   n : hidden rows, from 1 */
SPECRT_API const specrt_curve *specrt_costs_next(const specrt_costs *costs, int32_t n);

/* specrt_costs_nodes() : Nodes that the target verifies of a draft of n levels.
 *   tree : as specrt_tree_get_params() returns it
 *   n : from 1, at most its num_steps */
SPECRT_API int32_t specrt_costs_nodes(const specrt_tree_params *tree, int32_t n);

/* specrt_costs_read_token() : Seconds of a token, after the first, that the drafter reads before a draft.
 *   costs : read */
SPECRT_API double specrt_costs_read_token(const specrt_costs *costs);

/* specrt_costs_draft() : Seconds of the drafter's passes of a draft of n levels, without its LM head.
 *   costs : read
 *   n_read : tokens that the first pass reads, from 1; also a mean
 *   n : levels, from 1; of blocks the positions of the one pass
 *   width : rows of the next passes, a tree's topk; blocks have none */
SPECRT_API double specrt_costs_draft(const specrt_costs *costs, double n_read, int32_t n,
                                     int32_t width);

/* specrt_costs_machine() : The processor's name and how many there are.
 *   out : char [SPECRT_COSTS_TEXT], written */
SPECRT_API void specrt_costs_machine(char *out);

/* What is timed. */
typedef enum specrt_pass {
    /* The target's pass over a chain of n tokens, what a session takes from its logits, and the commit of the
     * first token */
    SPECRT_PASS_TARGET = 0,
    /* The first drafter pass of a draft, which reads n tokens. Of blocks: of n positions behind one token, or
     * a whole block behind so many more tokens, as in specrt_costs.n_block */
    SPECRT_PASS_DRAFT = 1,
    /* Products of the head's first n rows in one cycle: with one hidden row after the target's pass, then at
     * each next level with as many as specrt_costs_width() says. Of blocks: for as many positions of a block,
     * each after passes of target and drafter; that of one position follows the first product */
    SPECRT_PASS_HEAD = 2,
    /* A prompt of n tokens: the target's part with logits of the last token; the drafter's first pass; the
     * target's part with logits of all tokens */
    SPECRT_PASS_PROMPT = 3
} specrt_pass;

enum {
    SPECRT_PASSES = 4,    /* values of specrt_pass */
    SPECRT_PASS_TIMES = 4 /* most times of one of them */
};

/* The models, for measuring: of specrt_meter_open(), or callbacks of your own. */
typedef struct specrt_meter {
    void *user; /* first argument of pass */
    /* Runs a pass of size n.
     *   seconds : f64 [SPECRT_PASS_TIMES], zeros, written: its times in the order above; 0: not timed
     * Returns 0, or another value where a model failed. */
    int (*pass)(void *user, specrt_pass pass, int32_t n, double *seconds);
    /* Largest n of each pass; 0: it is not made. Of drafts, -n: of blocks of at most n positions */
    int32_t most[SPECRT_PASSES];
} specrt_meter;

/* A host that is measured. Zero-initialise it. */
typedef struct specrt_meter_desc {
    specrt_host host;          /* copied */
    void (*reset)(void *user); /* the models forget their sequence, which was any */
    void *reset_user;          /* first argument of reset */
    int32_t n_logits;          /* columns of the target's logits; lower numbers are tokens */
    specrt_tree_params tree;   /* the largest draft that the host takes; no member is 0 */
    const specrt_head *head;   /* the drafter's, borrowed; NULL: products are not timed */
    specrt_head_desc rows;     /* what head was bound from; its arrays are borrowed */
    int32_t n_before;          /* tokens in the caches before a pass; 0: 64 */
    int32_t n_block;     /* positions that host.draft_block drafts at most; 0: tree.num_steps */
    double (*now)(void); /* seconds; monotonic; NULL: specrt_clock_seconds() */
} specrt_meter_desc;

/* specrt_meter_open() : A meter of the host's passes, by the calls that sessions make. The host's sequence is
 * lost.
 *   desc : copied
 *   out : written, owned by the caller: specrt_meter_close()
 * @return OK; NO_MEMORY; BAD_ARG with the member. */
SPECRT_API specrt_status specrt_meter_open(const specrt_meter_desc *desc, specrt_meter *out,
                                           specrt_error *err);

/* specrt_meter_close() : Frees what specrt_meter_open() created, and resets the host.
 *   meter : cleared */
SPECRT_API void specrt_meter_close(specrt_meter *meter);

/* specrt_costs_measure() : Times passes in rounds of one pass of each size. The lower quartile of a size's
 * times counts. A target or drafter pass that takes longer than more work does is lowered.
 *   meter : the models; it makes passes of target and drafter at least
 *   seconds : no round begins later, but for what disturbed depends on, which has up to 5 rounds (12 if all)
 *       while spread is too wide; 0: 1.2
 *   all : 0: passes of target and drafter at a few sizes, as auto needs; 1: all that the meter times, with
 *       sizes in between, which show the error of the curves, for up to 1.6 times as long
 *   out : written: machine, curves, seconds, error, worst, spread, busy, changed, disturbed; the rest zero
 * @return OK; NO_MEMORY; BAD_ARG; HOST: a pass failed. */
SPECRT_API specrt_status specrt_costs_measure(const specrt_meter *meter, double seconds, int all,
                                              specrt_costs *out, specrt_error *err);

/* specrt_costs_busy() : Whether the machine was too busy to tell, and what to do.
 *   costs : read
 *   line : char [SPECRT_COSTS_TEXT], written: one sentence without its full stop, or ""
 * @return costs->disturbed */
SPECRT_API int specrt_costs_busy(const specrt_costs *costs, char *line);

/* What a policy's sessions are created from, borrowed. */
typedef struct specrt_costs_drafts {
    const specrt_bundle *bundle;  /* NULL: none */
    const specrt_head *head;      /* of the drafter */
    int64_t n_cols;               /* columns of the head */
    specrt_policy_desc policy;    /* its text is not read */
    specrt_session_params params; /* the tree of drafts; auto_draft is not read */
} specrt_costs_drafts;

/* specrt_costs_head() : Seconds of scoring a level by a policy: measured once, kept in costs. With
 * params.n_block above 0 a whole block is scored at once, and a position of it counts as a level.
 *   costs : read and changed
 *   drafts : what the policy is created from
 *   policy : its text
 * @return 0: the policy does not open with this bundle and head. */
SPECRT_API double specrt_costs_head(specrt_costs *costs, const specrt_costs_drafts *drafts,
                                    const char *policy);

/* ---- costs in a file ----
 * A few lines of text that end in a checksum:
 *
 *     specrt costs 1
 *     machine Intel(R) Xeon(R) Platinum 8481C, 2 processors
 *     key target ... threads 2, context 4096, ...
 *     target 1 0.0672 0.0669 0.0701
 *     draft 1 0.0113 0.0112 0.0115
 *     head 0.00031 window:3072@...
 *     first 256 1.1e-05
 *     next 4 256 3.9e-05
 *     prompt 64 0.81
 *     prompt_all 64 0.97
 *     draft_prompt 64 0.14
 *     block 7
 *     keeps_chains 1
 *     policy 3072 window:3072@...
 *     error 0.02 0.09
 *     sum 5f0c8d1a2b3e4f60
 *
 * Seconds follow sizes; low and high may follow them. A head's policy ends its line. All below `draft` may be
 * absent: `first` and `next` are head_first and head_next, after its width; `policy` is after its rows;
 * `block` is n_block. Numbers have a decimal point in every locale. */

/* specrt_costs_text() : The text of costs.
 *   costs : read
 *   out : char [SPECRT_COSTS_BYTES], written
 * @return its bytes, without the NUL */
SPECRT_API size_t specrt_costs_text(const specrt_costs *costs, char *out);

/* specrt_costs_parse() : Costs from text [n]; curves become monotone, spread and disturbed follow from them.
 *   name : of the file, for errors
 *   key : whose costs are asked for, of this machine; NULL: any, of any machine
 * @return OK; BAD_INPUT: damaged, or of another machine or key. Then *out is zero. */
SPECRT_API specrt_status specrt_costs_parse(const char *text, size_t n, const char *name,
                                            const char *key, specrt_costs *out, specrt_error *err);

/* specrt_costs_read() : Costs from a file.
 *   path : of the file
 *   key : as in specrt_costs_parse()
 *   out : written
 * @return as specrt_costs_parse(); IO: the file cannot be opened. */
SPECRT_API specrt_status specrt_costs_read(const char *path, const char *key, specrt_costs *out,
                                           specrt_error *err);

/* specrt_costs_write() : Replaces the file as a whole. Does nothing where costs are disturbed.
 *   costs : written there; no longer changed
 *   path : of the file
 * @return OK; IO: the file could not be written, and is as it was. */
SPECRT_API specrt_status specrt_costs_write(specrt_costs *costs, const char *path,
                                            specrt_error *err);

/* specrt_costs_path() : Where costs are kept: beside the bundle, or in specrt/ of the user's cache folder
 * where there is no bundle or its folder cannot be written; created if needed.
 *   bundle : its path; NULL: none
 *   key : the name has a hash of it
 *   out : char [SPECRT_COSTS_PATH], written; "": there is no such folder, so nothing is kept */
SPECRT_API void specrt_costs_path(const char *bundle, const char *key, char *out);

/* specrt_costs_find() : Costs from the file, else measured.
 *   meter : the models
 *   path : of specrt_costs_path(); "": there is no file
 *   key : as in specrt_costs_parse()
 *   out : written
 *   line : char [SPECRT_COSTS_LINE], written: where the costs are from, and why a file was not used
 * @return as specrt_costs_measure() */
SPECRT_API specrt_status specrt_costs_find(const specrt_meter *meter, const char *path,
                                           const char *key, specrt_costs *out, char *line,
                                           specrt_error *err);

/* ---- the clock: what cycles cost now ----
 * A busy machine makes everything slower, which changes no choice (`slow`); what changes choices is the share
 * of each figure beside it, learned apart. */

/* A cycle of one sequence, or of several in one pass of the target. */
typedef struct specrt_clock_cycle {
    int32_t n_slots;       /* sequences in the target's pass */
    int32_t n_tokens;      /* of that pass, drafts included */
    int32_t n_passes;      /* of the drafter; 0: a plain cycle */
    int32_t n_read;        /* tokens of the drafter's first pass */
    int32_t n_scored;      /* levels that were scored, of all slots */
    int32_t n_block;       /* positions that its one pass drafted; read where costs are of blocks */
    double target_seconds; /* all that is no drafting */
    double draft_seconds;  /* of the drafter's passes */
    double head_seconds;   /* of scoring */
} specrt_clock_cycle;

/* The figures as they are now: natural logs of ratios to the costs measured at the start. */
typedef struct specrt_clock {
    specrt_costs costs;      /* as measured at the start */
    specrt_tree_params tree; /* as specrt_tree_get_params() returns it */
    double head;             /* seconds of scoring a level, as measured at the start */
    double slow;             /* of all passes */
    double target[SPECRT_TREE_MAX_NODES + 1]; /* by tokens of a pass */
    double draft;                             /* of the drafter's passes */
    double scoring;                           /* of levels */
    double drift;                             /* of late, of cycles with a draft */
    int32_t since_plain;                      /* cycles since a plain cycle was timed */
    int32_t since_draft;                      /* cycles since one with a draft was */
    int32_t asked;                            /* plain cycles that are still to be timed */
} specrt_clock;

/* specrt_clock_init() : As measured at the start.
 *   clock : written
 *   costs : copied
 *   tree : copied
 *   head : of specrt_costs_head() */
SPECRT_API void specrt_clock_init(specrt_clock *clock, const specrt_costs *costs,
                                  const specrt_tree_params *tree, double head);

/* specrt_clock_see() : Learns from a cycle.
 *   clock : changed
 *   cycle : that ended
 * @return 1: time a plain cycle next, because cycles with drafts take other times than expected, or none was
 * plain for long; else 0 */
SPECRT_API int specrt_clock_see(specrt_clock *clock, const specrt_clock_cycle *cycle);

/* specrt_clock_table() : Costs and read of specrt_auto_desc, for one list, where n_slots sequences draft
 * alike.
 *   clock : read
 *   n_slots : 1 or more
 *   cycles : f64 [tree.num_steps + 1], written
 *   read : written */
SPECRT_API void specrt_clock_table(const specrt_clock *clock, int32_t n_slots, double *cycles,
                                   double *read);

/* specrt_clock_auto() : A controller by the clock's table.
 *   clock : read
 *   keeps_chains : as in specrt_auto_desc; trees keep none
 *   out : written, owned by the caller
 * @return as specrt_auto_create() */
SPECRT_API specrt_status specrt_clock_auto(const specrt_clock *clock, int32_t keeps_chains,
                                           specrt_auto **out, specrt_error *err);

/* specrt_clock_hopeless() : Whether drafts of any length are slower than plain decoding even if 95% of
 * drafted tokens are accepted, as those of a drafter slower than its target.
 *   clock : read
 *   line : char [SPECRT_COSTS_TEXT], written where they are: why
 * @return 1: they are; 0: they are not, or costs are disturbed */
SPECRT_API int specrt_clock_hopeless(const specrt_clock *clock, char *line);

/* specrt_clock_explain() : One line: whether drafts were made, what decided, and what came of it.
 *   clock : read
 *   stats : of the controller
 *   out : char [SPECRT_COSTS_TEXT], written */
SPECRT_API void specrt_clock_explain(const specrt_clock *clock, const specrt_auto_stats *stats,
                                     char *out);

/* specrt_clock_seconds() : The system's monotonic clock. */
SPECRT_API double specrt_clock_seconds(void);

/* A host whose cycles are timed for a controller. Its address must not change. Zero-initialise it. */
typedef struct specrt_timer {
    specrt_host host;         /* whose callbacks are timed */
    specrt_clock clock;       /* by which it decides */
    specrt_auto *auto_draft;  /* borrowed */
    int32_t keeps_chains;     /* as in specrt_auto_desc */
    double (*now)(void);      /* seconds; monotonic; NULL: specrt_clock_seconds() */
    specrt_clock_cycle cycle; /* that goes on; the timer's own, as all below */
    double began;             /* when the last cycle ended; 0: none has */
    double drafted;           /* when the drafter's last pass ended; 0: it was counted */
    int32_t n_unread;         /* tokens that the drafter's next pass reads */
} specrt_timer;

/* specrt_timer_host() : The callbacks of timer->host, timed; a block counts as one pass. Before it, the
 * caller sets host, clock, auto_draft and keeps_chains.
 *   timer : changed; borrowed by *out
 *   out : written; valid as long as the timer */
SPECRT_API void specrt_timer_host(specrt_timer *timer, specrt_host *out);

/* specrt_timer_begin() : Another sequence follows; the time until its first cycle ends is not counted. A
 * prompt that goes through the host's target_prefill does so by itself.
 *   timer : changed */
SPECRT_API void specrt_timer_begin(specrt_timer *timer);

/* ---- the verdict: which policy, and is it faster than plain decoding? ----
 * A request counts whole: reading its prompt, and an answer of a named length. The worst task decides, for an
 * application has one task. */

/* Requests of which an interval of 95% can be told: that all of six lie on one side comes by chance in 1 of
 * 32 cases. Of fewer, give NaN. */
enum { SPECRT_ADVISE_REQUESTS = 6 };

/* A ratio of two speeds. */
typedef struct specrt_ratio {
    double value; /* above 1: faster */
    double low;   /* where the 95% interval begins; NaN: not known, as of few requests */
    double high;  /* where it ends; NaN with low */
} specrt_ratio;

/* What a ratio comes to. */
typedef enum specrt_outcome {
    SPECRT_OUTCOME_SLOWER = -1, /* the interval ends below 1 */
    SPECRT_OUTCOME_TIE = 0,     /* as fast, within the error; also where no interval is known */
    SPECRT_OUTCOME_FASTER = 1   /* the interval begins above 1 */
} specrt_outcome;

/* specrt_ratio_outcome() : Faster, a tie or slower.
 *   ratio : any; NULL: a tie */
SPECRT_API specrt_outcome specrt_ratio_outcome(const specrt_ratio *ratio);

/* specrt_outcome_name() : "slower", "a tie" or "faster"; static.
 *   outcome : any; others are "a tie" */
SPECRT_API const char *specrt_outcome_name(specrt_outcome outcome);

/* A policy with its tree, as it was measured or as costs foretell. */
typedef struct specrt_way {
    const char *name;      /* borrowed; the policy as texts show it */
    double bytes;          /* of the head, read by a pass of the drafter: decides among ties */
    double accept_length;  /* tokens a cycle */
    double prompt_seconds; /* of reading the prompt, the drafter's part included */
    double token_seconds;  /* of a token of the answer */
    specrt_ratio ratio; /* of its speed over whole requests in its worst task to plain decoding's */
    const char *task;   /* borrowed; the worst one; NULL: requests name fewer than two tasks */
} specrt_way;

/* Plain decoding of the same requests. */
typedef struct specrt_plain {
    double prompt_seconds; /* of reading the prompt */
    double token_seconds;  /* of a token of the answer */
    double prompt_tokens;  /* of a request, in the mean; 0: prompts were not timed */
    double answer_tokens; /* of a request, in the mean: 2 or more, for the prompt gives the first */
} specrt_plain;

/* What specrt_advise() decides. */
typedef struct specrt_advice {
    int32_t chosen;         /* index of the way to draft with */
    int32_t n_ties;         /* other ways that are as fast as the fastest, within the error */
    specrt_outcome outcome; /* of the chosen way beside plain decoding */
    /* The request would take plain decoding's time, INFINITY: never, 0: it takes no longer */
    double answer_tokens; /* with answers so long, at the same accept length */
    double accept_length; /* with so many tokens a cycle, at the same length of answer */
} specrt_advice;

/* specrt_advise() : Chooses among ways. Of those that are as fast as the fastest within the error, and at
 * most 5% slower, the one that reads the fewest bytes.
 *   ways : [n], n >= 1; ratios above 0
 *   plain : of the same requests
 *   ties : u8 [n], written: 1 for the chosen way and those that tie with the fastest; NULL: not wanted
 * @return OK; BAD_ARG: no way, or a time or ratio that is none. */
SPECRT_API specrt_status specrt_advise(const specrt_way *ways, int32_t n, const specrt_plain *plain,
                                       uint8_t *ties, specrt_advice *out, specrt_error *err);

/* specrt_advice_text() : The verdict in two or three sentences: what to run, whether it is faster over which
 * requests, the reason, and what would change it.
 *   ways : of specrt_advise()
 *   plain : the same
 *   advice : the same
 *   out : char [size], written, cut at its size and always terminated
 *   size : of out */
SPECRT_API void specrt_advice_text(const specrt_way *ways, const specrt_plain *plain,
                                   const specrt_advice *advice, char *out, size_t size);

/* ---- where nothing was measured ---- */

/* specrt_policy_preset() : A preset by its number, in the order in which errors list them.
 *   i : from 0
 *   text : char [size], written: the policy that the name stands for; NULL: not wanted
 *   size : of text
 * @return the name, static; NULL: there are fewer. */
SPECRT_API const char *specrt_policy_preset(int32_t i, char *text, size_t size);

/* specrt_policy_untried() : What to draft with before anything of the pair was measured: of the policies
 * whose sections are there, the one that retained most of the accept length on published models
 * (bench/results/held-out.md).
 *   has_graph : whether the bundle has a section `cograph`
 *   has_sketch : whether the bundle has a section `sketch`
 * @return static text of a policy. */
SPECRT_API const char *specrt_policy_untried(int has_graph, int has_sketch);

/* specrt_advise_untried() : The same by costs alone: `full` where scoring all rows makes a cycle of three
 * drafts at most 2% longer, else specrt_policy_untried() for the sections of the bundle, of those that open.
 *   costs : heads that were not timed yet are, and kept there
 *   drafts : what policies are created from
 * @return static text of a policy. */
SPECRT_API const char *specrt_advise_untried(specrt_costs *costs,
                                             const specrt_costs_drafts *drafts);

#ifdef __cplusplus
}
#endif
#endif

#endif
