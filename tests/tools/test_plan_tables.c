/* test_plan_tables.c : the table and JSON of specrt-eval plan, of runs made by hand, as they were approved.
 * Runs that are measured have other times each time. */
#include "approved.h"
#include "small_head.h"
#include "tools/specrt-eval/plan/plan.h"
#include "tools/specrt-eval/shared/chat_template.h"

enum { N_POLICIES = 2, N_PROMPTS = 9, N_RUNS = 4 };

typedef struct scene {
    small_head small;
    plan_policy policies[N_POLICIES];
    plan_run runs[N_RUNS];
    plan_turn turns[N_RUNS + 1][N_PROMPTS]; /* the last of plain decoding */
    id_list prompts[N_PROMPTS];
    const char *tasks[N_PROMPTS];
    plan p;
} scene;

/* Turn i of a run: longer trees emit more, a window somewhat less than the full vocabulary. */
static void fill_turn(const plan_run *run, int i, plan_turn *t) {
    double n_cycles = 40 + i % 4, slow = 1 + 0.01 * i;
    t->n_cycles = n_cycles;
    t->n_rows = n_cycles * (run && run->policy ? 40 : V);
    for (int s = 0; run && s < run->n_shapes; s++) {
        double more = 0.2 * run->shapes[s].num_steps + 0.01 * run->shapes[s].num_draft_tokens;
        t->tally[s] =
            (plan_tally){n_cycles * (1 + more - 0.1 * run->policy + 0.02 * (i % 3)), n_cycles, 0};
    }
    t->times = (decoder_times){.draft = 1e-4 * n_cycles * slow,
                               .head = 2e-4 * n_cycles * slow,
                               .target = 2e-3 * n_cycles * slow,
                               .verify = 1e-5 * n_cycles,
                               .update = 2e-5 * n_cycles};
    t->seconds = 2.4e-3 * n_cycles * slow;
}

static void open_scene(scene *s) {
    static const char *const names[] = {"full", "window:40@min=0"}, *const tasks[] = {"qa", "code",
                                                                                      "math"};
    static chat form = {.from = "option", .form = {.name = "chatml"}};
    memset(s, 0, sizeof *s);
    small_head_open(&s->small);
    for (int k = 0; k < N_POLICIES; k++) {
        strcpy(s->policies[k].name, k ? "preset" : names[k]);
        s->policies[k].full = k == 0;
        s->policies[k].policy = small_head_policy(&s->small, names[k]);
    }
    for (int r = 0; r < N_RUNS; r++) {
        plan_run *run = &s->runs[r];
        run->policy = r % 2;
        run->width = r / 2;
        run->n_shapes = plan_shapes(run->width, &(plan_shape){0, 0, 0}, run->shapes);
        run->turns = s->turns[r];
        for (int i = 0; i < N_PROMPTS; i++) fill_turn(run, i, &s->turns[r][i]);
    }
    for (int i = 0; i < N_PROMPTS; i++) fill_turn(NULL, i, &s->turns[N_RUNS][i]);
    for (int i = 0; i < N_PROMPTS; i++) s->tasks[i] = tasks[i % 3];
    s->p = (plan){.policies = s->policies,
                  .n_policies = N_POLICIES,
                  .runs = s->runs,
                  .n_runs = N_RUNS,
                  .prompts = s->prompts,
                  .n_prompts = N_PROMPTS,
                  .tasks = s->tasks,
                  .plain = s->turns[N_RUNS],
                  .chat = &form,
                  .n_skipped = 1,
                  .seconds = 3};
    s->p.options.target = "models/target.gguf";
    s->p.options.draft = "models/draft.safetensors";
    s->p.options.max_tokens = 64;
    REQUIRE(!auto_costs_read("tests/fuzz/corpus/fuzz_costs/named", &s->p.costs, NULL));
}

static void close_scene(scene *s) {
    for (int k = 0; k < N_POLICIES; k++) specrt_policy_close(s->policies[k].policy);
    free(s->p.choices);
    small_head_close(&s->small);
}

static void tell(plan *p) {
    REQUIRE(!plan_recommend(p, NULL));
    FILE *out = approved_begin_stdout();
    plan_print_table(p);
    plan_print_json(p);
    stdout = out;
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++)
        fprintf(approved_out(), "at most %.1f tokens/s\n", plan_bound(p, w, 40));
    plan_advice(p, approved_out());
    for (int i = 0; i < p->n_choices; i++) {
        const plan_choice *c = &p->choices[i];
        const plan_choice worst = plan_at_worst(c);
        if (c->policy < 0) continue;
        fprintf(approved_out(), "%s: ties %d, head %.4f, small %.4f, at worst %.1f\n",
                plan_name(p, c), c->ties, plan_head_share(p, c, 40), plan_small_head(p, c),
                worst.speed);
    }
}

static void test_tables(void) {
    scene s;
    open_scene(&s);
    REQUIRE(!plan_decide(&s.p, NULL));
    tell(&s.p);
    plan_for_auto(&s.p);
    fprintf(approved_out(), "auto: '%s', %d rows\n", s.p.costs.policy, (int)s.p.costs.policy_rows);
    for (int i = 0; i < s.p.n_choices; i++) { /* as --check found them */
        s.p.choices[i].measured = s.p.choices[i].speed * 0.97;
        s.p.choices[i].cycle_found = s.p.choices[i].cycle * 1.02;
        s.p.choices[i].accept_found = s.p.choices[i].accept_length;
    }
    s.p.n_check = 2;
    s.p.costs.error = 0.03;
    s.p.costs.worst = 0.2;
    s.p.costs.seconds = 7;
    plan_rank(&s.p);
    tell(&s.p);
    s.p.n_prompts = 1; /* nothing tells of the spread */
    REQUIRE(!plan_decide(&s.p, NULL));
    tell(&s.p);
    close_scene(&s);
    approved_compare("tests/tools/plan_tables.exact");
}

static const test_case cases[] = {
    {"tables", "for people and machines", test_tables},
};
TEST_MAIN(cases)
