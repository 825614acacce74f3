/* test_gpu_whole.c : sessions over all ids of a published vocabulary, every source among them, against the
 * CPU's: the same shortlists, trees and tokens. Too slow for `make test`: for `make test-ptx` and run.sh. */
#define SESSION_V 151936
#include "gpu_session.h"

static setting setting_of(const char *policy) {
    return (setting){.policy = policy,
                     .tree = {2, 3, 7},
                     .sampling = {.temperature = 0.4f, .seed = gpu_seed(4), .session = 9},
                     .n_batch = 2,
                     .n_cycles = 2, /* by calls, then as a graph */
                     .graph = true};
}

TEST(lists, "a static list, a window and what is retrieved") {
    setting how = setting_of("static:32768/16384+window:3072@positions=tree"
                             "+retrieve:512@graph=off@mode=async");
    run(&how);
}

TEST(routers, "clusters of two routers, successors, rows that sequences share") {
    setting how = setting_of("static:65536+window:2048+cluster:40@always=1024+group:24@always=0"
                             "+successor:200");
    how.shared = true;
    run(&how);
}

TEST(sketch, "centroids' clusters and a sketch of all rows, routed ahead") {
    setting how = setting_of("static:49152+window:512@kver=8+centroid:40@beam=per_row@cap=2000"
                             "+sketch:300@keep=199999");
    how.n_batch = 1;
    how.ahead = true;
    how.sampling.temperature = 0;
    run(&how);
}

TEST(full, "so many parts with so many of the best that these are chosen by digits") {
    setting how = setting_of("full");
    how.n_batch = 1;
    how.tree = (specrt_tree_params){1, TOPK, NODES};
    run(&how);
}

TEST(chain, "sampled from the whole head") {
    setting how = setting_of("full");
    how.tree.topk = 1;
    how.draft = SPECRT_DRAFT_SAMPLED;
    run(&how);
}
