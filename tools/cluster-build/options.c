/* options.c : the command line of cluster-build. */
#include "build.h"

#include <string.h>

/* On real heads sizes left alone run from one to a hundred times the mean (docs/methods/cluster.md). */
#define LARGEST 4

static int parse_table(cluster_options *o, int argc, char **argv) {
    const cli_option options[] = {
        sl_cli_heading("Input"),
        sl_cli_string(
            "model", "FILE", &o->model,
            "GGUF or safetensors with the head: the drafter's, or the target's if it drafts with "
            "that"),
        sl_cli_string("tensor", "NAME", &o->tensor,
                      "the head (default: output.weight, lm_head.weight or the tied embedding)"),
        sl_cli_string("tokenizer", "T", &o->tokenizer,
                      "GGUF, tokenizer.json, tiktoken ranks (default: the model's own, if a GGUF)"),

        sl_cli_heading("Clusters"),
        sl_cli_int("clusters", "M", &o->n_clusters, 1, SPECRT_MAX_CLUSTERS,
                   "number of clusters (default 256, 512 above 150,000 rows; coral 16; centroid "
                   "2048 at most)"),
        sl_cli_flag("balanced", &o->balanced,
                    "clusters of equal size, to one row (centroid and coral: always)"),
        sl_cli_real("largest", "X", &o->largest, 0, 1e9,
                    "largest cluster, in multiples of the mean (default 4); 0: no limit"),
        sl_cli_flag("ordered", &o->ordered,
                    "an ordered head's: at most rows / M slots in each cluster, M a divisor; free "
                    "slots hold copies of the most frequent rows"),
        sl_cli_int("hot", "N", &o->n_hot, 1, SPECRT_MAX_VOCAB,
                   "with --ordered: the N most frequent tokens of the bundle are in every cluster"),
        sl_cli_int("distinct", "N", &o->n_distinct, 1, SPECRT_MAX_VOCAB,
                   "with --ordered: the other clustered tokens at most, the most frequent ones "
                   "(default: all that fit)"),
        sl_cli_flag("stored", &o->stored,
                    "take the clusters and centroids of the model's own ordered head, as of "
                    "Gemma 4's drafters"),
        sl_cli_int("iterations", "N", &o->n_iterations, 1, 1000,
                   "iterations of k-means at most (default 25)"),

        sl_cli_heading("Router"),
        sl_cli_string("router", "NAME", &o->router_name,
                      "centroid (default): compares the drafter's output with each cluster's mean "
                      "row; dynaspec or coral: trained; or none"),
        sl_cli_string("schedule", "NAME|LIST", &o->schedule_name,
                      "clusters by tree level: harmonic, flat, or numbers such as 64,64,16"),
        sl_cli_int("mean-rows", "N", &o->mean_rows, 1, SPECRT_MAX_VOCAB,
                   "the schedule's mean number of rows over six levels"),

        sl_cli_heading("Training"),
        sl_cli_strings("trace", "FILE", &o->traces,
                       "trace that specrt-eval record wrote with this drafter; may be repeated. "
                       "centroid: rows that its states score alike are clustered"),
        sl_cli_string("embedding", "FILE", &o->embedding,
                      "model with the token embedding that dynaspec reads (default: --model)"),
        sl_cli_string(
            "loss", "NAME", &o->loss_name,
            "multi-hot (dynaspec), soft-mass or argmax (coral): see docs/methods/routers.md"),
        sl_cli_int("hidden", "N", &o->n_hidden, 1, 65536, "width of dynaspec's layer (512)"),
        sl_cli_int("epochs", "N", &o->n_epochs, 1, TRAIN_MAX_EPOCHS,
                   "epochs of training at most (20)"),
        sl_cli_int("patience", "N", &o->patience, 1, TRAIN_MAX_EPOCHS,
                   "end training after so many epochs without a gain on held-out prompts (3)"),
        sl_cli_int("batch", "N", &o->n_batch, 1, 65536,
                   "positions per step (default: 1/64 of all, from 32 to 4096)"),
        sl_cli_real("rate", "X", &o->rate, 1e-8, 1, "AdamW's largest learning rate (0.001)"),
        sl_cli_real("decay", "X", &o->decay, 0, 10, "weight decay (0.01)"),
        sl_cli_real("holdout", "P", &o->holdout, 0.001, 0.9, "share of prompts held out (0.1)"),
        sl_cli_flag("shuffle-labels", &o->shuffled,
                    "control: train on the labels of other positions; needs --json and no -o"),
        {0}};
    const cli_tool tool = {
        "cluster-build", "cluster-build --model llama3.gguf --router centroid -o model.specb",
        "Clusters the rows of an LM head and writes them with a router into a\n"
        "bundle, for the sources cluster (DynaSpec), group (CORAL) and centroid.",
        "cluster-build --model FILE [options] -o BUNDLE", options};
    return sl_cli_parse(&tool, argc, argv, &o->common, NULL);
}

bool cluster_options_is_trained(const cluster_options *o) {
    return o->router == SPECRT_ROUTER_DYNASPEC || o->router == SPECRT_ROUTER_CORAL;
}

static int check_training(cluster_options *o) {
    static const char *const losses[] = {"multi-hot", "soft-mass", "argmax"};
    int loss = 0, n = sizeof losses / sizeof losses[0];
    bool is_coral = o->router == SPECRT_ROUTER_CORAL;
    if (o->router == SPECRT_ROUTER_NONE && o->traces.n > 0)
        return sl_cli_usage("--trace: expected --router centroid, dynaspec or coral with it");
    if (!cluster_options_is_trained(o) && o->shuffled)
        return sl_cli_usage("--shuffle-labels: expected --router dynaspec or coral with it");
    if (!cluster_options_is_trained(o)) return -1;
    if (o->traces.n == 0)
        return sl_cli_usage("expected --trace for --router %s; specrt-eval record writes a trace",
                            o->router_name);
    if (o->shuffled && o->common.output)
        return sl_cli_usage("--shuffle-labels: expected --json and no -o, since it trains a router "
                            "on wrong labels");
    if (!o->loss_name) o->loss_name = is_coral ? "argmax" : "multi-hot";
    while (loss < n && strcmp(o->loss_name, losses[loss]) != 0) loss++;
    if (loss == n)
        return sl_cli_usage("--loss: expected multi-hot, soft-mass or argmax, found '%s'",
                            o->loss_name);
    o->loss = (train_loss)loss;
    return -1;
}

static int check_ordered(const cluster_options *o) {
    if ((o->ordered || o->stored) && o->router != SPECRT_ROUTER_CENTROID)
        return sl_cli_usage("--ordered and --stored: expected --router centroid");
    if ((o->n_hot || o->n_distinct) && !o->ordered)
        return sl_cli_usage("--hot and --distinct go with --ordered");
    if (o->stored && (o->ordered || o->n_clusters || o->traces.n || o->mean_rows))
        return sl_cli_usage("--stored: expected no --ordered, --clusters, --trace and --mean-rows, "
                            "which the model has already");
    return -1;
}

static int check(cluster_options *o) {
    static const char *const names[] = {"none", "centroid", "dynaspec", "coral"};
    int kind = 0, n = sizeof names / sizeof names[0];
    if (!o->model) return sl_cli_usage("expected --model FILE");
    if (!o->common.output && !o->common.json) return sl_cli_usage("expected -o FILE or --json");
    while (kind < n && strcmp(o->router_name, names[kind]) != 0) kind++;
    if (kind == n)
        return sl_cli_usage("--router: expected none, centroid, dynaspec or coral, found '%s'",
                            o->router_name);
    o->router = (specrt_router_kind)kind;
    bool is_flat = o->router == SPECRT_ROUTER_CENTROID || o->router == SPECRT_ROUTER_CORAL;
    if (is_flat) o->balanced = true;
    if (o->largest > 0 && o->largest < 1)
        return sl_cli_usage("--largest: expected 0 or at least 1, found %g", o->largest);
    if (o->balanced) o->largest = 1;
    if (!o->schedule_name) o->schedule_name = is_flat ? "flat" : "harmonic";
    int code = check_ordered(o);
    return code < 0 ? check_training(o) : code;
}

int cluster_options_parse(cluster_options *o, int argc, char **argv) {
    *o = (cluster_options){.router_name = "centroid",
                           .largest = LARGEST,
                           .n_iterations = 25,
                           .n_hidden = 512,
                           .n_epochs = 20,
                           .patience = 3,
                           .rate = 1e-3,
                           .decay = 0.01,
                           .holdout = 0.1};
    int code = parse_table(o, argc, argv);
    return code < 0 ? check(o) : code;
}
