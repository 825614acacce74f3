/* options.c : the command line of cluster-build. */
#include "build.h"

#include <string.h>

static int parse_table(build_options *o, int argc, char **argv) {
    const cli_option options[] = {
        {NULL, 0, NULL, CLI_FLAG, NULL, 0, 0, "Input"},
        {"model", 0, "FILE", CLI_STRING, (void *)&o->model, 0, 0,
         "GGUF or safetensors with the head: the drafter's, or the target's if it drafts with "
         "that"},
        {"tensor", 0, "NAME", CLI_STRING, (void *)&o->tensor, 0, 0,
         "the head (default: output.weight, lm_head.weight or the tied embedding)"},
        {"tokenizer", 0, "T", CLI_STRING, (void *)&o->tokenizer, 0, 0,
         "GGUF, tokenizer.json, tiktoken ranks (default: the model's own, if a GGUF)"},

        {NULL, 0, NULL, CLI_FLAG, NULL, 0, 0, "Clusters"},
        {"clusters", 0, "M", CLI_INT, &o->n_clusters, 1, SPECRT_MAX_CLUSTERS,
         "how many (default 256, 512 above 150,000 rows; centroid 2048 at most)"},
        {"balanced", 0, NULL, CLI_FLAG, &o->balanced, 0, 0,
         "equal sizes, give or take one (centroid: always)"},
        {"iterations", 0, "N", CLI_INT, &o->n_iterations, 1, 1000,
         "of k-means at most (default 25)"},
        {"init", 0, "NAME", CLI_STRING, (void *)&o->init, 0, 0,
         "kmeans|| (default) or kmeans++, for small heads"},

        {NULL, 0, NULL, CLI_FLAG, NULL, 0, 0, "Router"},
        {"router", 0, "NAME", CLI_STRING, (void *)&o->router_name, 0, 0,
         "centroid (default): the drafter's output against each cluster's mean row; or none"},
        {"schedule", 0, "NAME|LIST", CLI_STRING, (void *)&o->schedule_name, 0, 0,
         "clusters by tree level: german, halving, flat, or numbers such as 64,64,16"},
        {"mean-rows", 0, "N", CLI_INT, &o->mean_rows, 1, SPECRT_MAX_VOCAB,
         "the schedule's mean number of rows over six levels"},
        {0}};
    const cli_tool tool = {
        "cluster-build", "cluster-build --model llama3.gguf --router centroid -o model.specb",
        "Clusters the rows of an LM head and writes them with a router into a\n"
        "bundle, for the sources cluster (DynaSpec), group (CORAL) and centroid.",
        "cluster-build --model FILE [options] -o BUNDLE", options};
    return cli_parse(&tool, argc, argv, &o->common, NULL);
}

static int check(build_options *o) {
    static const char *const names[] = {"none", "centroid"};
    int kind = 0, n = sizeof names / sizeof names[0];
    if (!o->model) return cli_usage("--model is missing");
    if (!o->common.output && !o->common.json) return cli_usage("nothing to write; give -o");
    while (kind < n && strcmp(o->router_name, names[kind]) != 0) kind++;
    if (kind == n)
        return cli_usage("--router: expected centroid or none, found '%s'", o->router_name);
    o->router = (specrt_router_kind)kind;
    if (o->router == SPECRT_ROUTER_CENTROID) o->balanced = true;
    if (!o->schedule_name) o->schedule_name = o->router == SPECRT_ROUTER_NONE ? "german" : "flat";
    if (strcmp(o->init, "kmeans||") != 0 && strcmp(o->init, "kmeans++") != 0)
        return cli_usage("--init: expected kmeans|| or kmeans++, found '%s'", o->init);
    return -1;
}

int options_parse(build_options *o, int argc, char **argv) {
    *o = (build_options){.router_name = "centroid", .init = "kmeans||", .n_iterations = 25};
    int code = parse_table(o, argc, argv);
    return code < 0 ? check(o) : code;
}
