/* test_plan_tables.c : the table of specrt-eval plan, of runs made by hand, as it was approved, and fields of
 * its JSON. Runs that are measured have other times each time. */
#include "approved.h"
#include "json_path.h"
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
        run->n_shapes = plan_shapes(run->width, &(specrt_tree_params){0, 0, 0}, run->shapes);
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
    free(s->p.ways);
    small_head_close(&s->small);
}

static void tell(plan *p) {
    REQUIRE(!plan_recommend(p, NULL));
    FILE *out = approved_begin_stdout();
    plan_print_table(p);
    stdout = out;
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++)
        fprintf(approved_out(), "at most %.1f tokens/s\n", plan_bound(p, w, 40));
    plan_advice(p, approved_out());
    for (int i = 0; i < p->n_ways; i++) {
        const plan_way *c = &p->ways[i];
        const plan_way worst = plan_at_worst(c);
        if (c->policy < 0) continue;
        fprintf(approved_out(), "%s: ties %d, head %.4f, small %.4f, at worst %.1f\n",
                plan_name(p, c), c->ties, plan_head_share(p, c, 40), plan_small_head(p, c),
                worst.speed);
    }
}

/* What plan_print_json() prints, owned. */
static char *json_of(plan *p) {
    char *text;
    size_t n;
    FILE *out = stdout, *into = open_memstream(&text, &n);
    REQUIRE(into);
    stdout = into;
    plan_print_json(p);
    stdout = out;
    REQUIRE(fclose(into) == 0);
    return text;
}

static void check_first(plan *p) {
    CHECK_JSON(json_of(p), "target=target.gguf", "drafter=draft.safetensors", "threads=0",
               "temperature=0", "n_prompts=9", "n_empty=0", "n_unfit=0", "chat_template=chatml",
               "system_prompt=null", "seconds=3", "runs_skipped=1", "outcome=faster",
               "pruning_outcome=null", "recommended_by=worst_domain", "recommended.policy=full",
               "recommended.num_steps=6", "recommended.ci95=3176.0669 3308.9682",
               "recommended_policy.policy=full", "head_share=0.6609", "small_head_rows=0",
               "advice[1]=Its accept length is 100.0% of the full vocabulary's, 100.0% *");
    CHECK_JSON(json_of(p), "choices[].policy=full preset full preset plain",
               "choices[].policy_text=full window:40@min=0 full window:40@min=0 null",
               "choices[].num_steps=6 6 1 1 0", "choices[].topk=4 4 1 1 0",
               "choices[].num_draft_tokens=8 8 2 2 1",
               "choices[].accept_length=2.2999 2.1999 1.2399 1.1399 1",
               "choices[].accept_full=1 0.9631 1 0.9631 null",
               "choices[].worst_domain=qa qa qa qa null",
               "choices[].worst_accept_full=1 0.9628 1 0.9628 null",
               "choices[].shortlist_rows=100 40 100 40 null",
               "choices[].cycle_ms=0.7094 0.7094 0.958 0.9575 2.422",
               "choices[].tokens_per_second=3241.8366 3100.9001 1294.2823 1190.4302 412.8819",
               "choices[].ci95=3176.0669 3308.9682 3037.7654 3165.347 * 404.8343 421.0895",
               "choices[].speedup_plain=7.8517 7.5104 3.1348 2.8832 1",
               "choices[].speedup_request=7.8517 7.5104 3.1348 2.8832 1",
               "choices[].measured_cycle_ms=null null null null null");
    CHECK_JSON(
        json_of(p), "costs.head_first[].rows=256 32768", "costs.head_first[].seconds=1e-05 0.0003",
        "costs.head[].topk=1 4 10", "costs.head[topk=4].points[].seconds=4e-05 0.0012",
        "costs.head[topk=10].points[].ci95=0.0001 0.0001 0.003 0.003", "costs.draft[].tokens=1 10",
        "costs.draft[].seconds=5e-05 0.0002", "costs.target[].nodes=1 60",
        "costs.target[].seconds=0.001 0.015", "costs.prompt=", "costs.keeps_chains=true",
        "costs.policy=window:512@kpre=8@min=512", "costs.error_worst=0", "costs.disturbed=false");
}

/* As --check found them. */
static void check_found(plan *p) {
    CHECK_JSON(json_of(p), "costs.policy=full", "costs.error_median=0.03", "costs.error_worst=0.2",
               "costs.seconds=7", "recommended.measured_cycle_ms=0.7236",
               "choices[].measured_tokens_per_second="
               "3144.5815 3007.8731 1255.4539 1154.7173 400.4955",
               "choices[].measured_accept_length=2.2999 2.1999 1.2399 1.1399 1",
               "choices[].measured_cycle_ms=0.7236 0.7236 0.9771 0.9767 2.4704");
}

/* Of one prompt. */
static void check_one(plan *p) {
    CHECK_JSON(json_of(p), "n_prompts=1", "outcome=a tie", "pruning_outcome=a tie",
               "recommended_by=mean", "recommended.policy=preset", "recommended.ci95=null null",
               "recommended.worst_domain=null", "recommended_policy.accept_full=0.9628",
               "choices[].tokens_per_second=3336.709 3190.3823 1322.9189 1215.0279 429.1845",
               "choices[].accept_length=2.28 2.18 1.22 1.12 1", "head_share=0.661",
               "choices[].worst_accept_full=null null null null null");
}

TEST(tables, "for people and machines") {
    scene s;
    open_scene(&s);
    REQUIRE(!plan_decide(&s.p, NULL));
    tell(&s.p);
    check_first(&s.p);
    plan_for_auto(&s.p);
    fprintf(approved_out(), "auto: '%s', %d rows\n", s.p.costs.policy, (int)s.p.costs.policy_rows);
    for (int i = 0; i < s.p.n_ways; i++) { /* as --check found them */
        s.p.ways[i].measured = s.p.ways[i].speed * 0.97;
        s.p.ways[i].cycle_found = s.p.ways[i].cycle * 1.02;
        s.p.ways[i].accept_found = s.p.ways[i].accept_length;
    }
    s.p.n_check = 2;
    s.p.costs.error = 0.03;
    s.p.costs.worst = 0.2;
    s.p.costs.seconds = 7;
    plan_rank(&s.p);
    tell(&s.p);
    check_found(&s.p);
    s.p.n_prompts = 1; /* nothing tells of the spread */
    REQUIRE(!plan_decide(&s.p, NULL));
    tell(&s.p);
    check_one(&s.p);
    close_scene(&s);
    approved_condense();
    approved_compare("tests/tools/plan_tables.exact");
}
