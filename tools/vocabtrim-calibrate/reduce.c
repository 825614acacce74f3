/* reduce.c : the counts of all MPI ranks added up. They are sparse, so they travel domain by domain up
 * a binomial tree instead of through MPI_Reduce over dense arrays. */
#include "calibrate.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/mpi.h"

/* Rows are at most COUNTS_MAX_VOCAB times 24 bytes, so their size fits MPI's int. */
static void send_counts(const counts *c, int to) {
    sl_mpi_send(&c->n_domains, sizeof c->n_domains, to);
    for (int i = 0; i < c->n_domains; i++) {
        const counts_domain *d = &c->domains[i];
        sl_mpi_send(d, sizeof *d, to);
        sl_mpi_send(d->name, strlen(d->name) + 1, to);
        sl_mpi_send(d->rows, (size_t)d->n_rows * sizeof *d->rows, to);
    }
}

/* Takes every message even after an error, so that no sender is left hanging. */
static specrt_status receive_counts(counts *c, int from, specrt_error *err) {
    specrt_status status = SPECRT_STATUS_OK;
    size_t n;
    int *n_domains = (int *)sl_mpi_receive(from, &n);
    for (int i = 0; i < *n_domains; i++) {
        counts_domain *d = (counts_domain *)sl_mpi_receive(from, &n);
        d->name = (char *)sl_mpi_receive(from, &n);
        d->rows = (counts_row *)sl_mpi_receive(from, &n);
        if (status == SPECRT_STATUS_OK) status = sl_counts_add(c, d, err);
        free(d->name);
        free(d->rows);
        free(d);
    }
    free(n_domains);
    return status;
}

specrt_status reduce_counts(counts *c, specrt_status status, specrt_error *err) {
    int rank = sl_mpi_rank(), n_ranks = sl_mpi_n_ranks();
    TRY(sl_mpi_agree(status, err));
    for (int step = 1; step < n_ranks; step *= 2) {
        if (rank & step) {
            send_counts(c, rank - step);
            break;
        }
        if (rank + step >= n_ranks) continue;
        specrt_error late;
        specrt_status got = receive_counts(c, rank + step, &late);
        if (got != SPECRT_STATUS_OK && status == SPECRT_STATUS_OK) *err = late, status = got;
    }
    return sl_mpi_agree(status, err);
}
