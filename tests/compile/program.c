/* program.c : a C99 and C++11 user of the API alone. Exits 0 when opening argv[1] gives the status
 * argv[2]; an open bundle must yield a list whose best token is argv[3]. */
#include "specrt.h"
#include "specrt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int best_token(const specrt_bundle *bundle) {
    float rows[20][32], hidden[32], logits[20], logprob = 1;
    int32_t id = -1;
    specrt_head_desc desc;
    specrt_head *head;
    specrt_policy_desc wanted;
    specrt_policy *policy;
    memset(&desc, 0, sizeof desc);
    memset(&wanted, 0, sizeof wanted);
    wanted.text = "static";
    for (int i = 0; i < 20; i++)
        for (int j = 0; j < 32; j++) rows[i][j] = (float)((i * 13 + j * 7) % 19) - 9;
    for (int j = 0; j < 32; j++) hidden[j] = (float)(j % 5) - 1;
    desc.rows = rows;
    desc.dtype = SPECRT_DTYPE_F32;
    desc.n_rows = 20;
    desc.n_cols = 32;
    if (specrt_head_bind(NULL, &desc, NULL, &head, NULL) != SPECRT_STATUS_OK) return -1;
    if (specrt_policy_create(bundle, head, &wanted, &policy, NULL) == SPECRT_STATUS_OK) {
        const specrt_shortlist *shortlist = specrt_policy_get_info(policy)->shortlist;
        specrt_shortlist_logits(shortlist, hidden, 1, logits);
        specrt_shortlist_topk(shortlist, logits, 1, 1, &id, &logprob);
        specrt_policy_close(policy);
    }
    specrt_head_close(head);
    return logprob <= 0 ? (int)id : -1;
}

int main(int argc, char **argv) {
    specrt_bundle *bundle;
    specrt_error err;
    if (argc != 4) return 2;
    specrt_status status = specrt_bundle_open(argv[1], NULL, &bundle, &err);
    int best = bundle ? best_token(bundle) : -1;
    specrt_bundle_close(bundle);
    if ((int)status == atoi(argv[2]) && best == atoi(argv[3])) return 0;
    fprintf(stderr, "%s: %s, best token %d\n", argv[1], specrt_status_name(status), best);
    return 1;
}
