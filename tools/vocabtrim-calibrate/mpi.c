/* mpi.c : see mpi.h. Counts are sparse, so they travel domain by domain up a binomial tree instead
 * of through MPI_Reduce over dense arrays. */
#include "mpi.h"

#ifndef SPECRT_MPI

void mpi_begin(int *argc, char ***argv) {
    (void)argc, (void)argv;
}
int mpi_rank(void) {
    return 0;
}
int mpi_n_ranks(void) {
    return 1;
}
specrt_status mpi_agree(specrt_status status, specrt_error *err) {
    (void)err;
    return status;
}
specrt_status mpi_reduce(counts *c, specrt_status status, specrt_error *err) {
    (void)c, (void)err;
    return status;
}
int mpi_end(int code) {
    return code;
}

#else

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, n_ranks = 1;

void mpi_begin(int *argc, char ***argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    if (rank > 0 && (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout)))
        MPI_Abort(MPI_COMM_WORLD, 1);
}

int mpi_rank(void) {
    return rank;
}

int mpi_n_ranks(void) {
    return n_ranks;
}

int mpi_end(int code) {
    MPI_Finalize();
    return code;
}

specrt_status mpi_agree(specrt_status status, specrt_error *err) {
    int failed = status == SPECRT_STATUS_OK ? n_ranks : rank, first, code = (int)status;
    MPI_Allreduce(&failed, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first == n_ranks) return SPECRT_STATUS_OK;
    MPI_Bcast(&code, 1, MPI_INT, first, MPI_COMM_WORLD);
    MPI_Bcast(err, (int)sizeof *err, MPI_BYTE, first, MPI_COMM_WORLD);
    return (specrt_status)code;
}

static void send_bytes(const void *bytes, size_t n, int to) {
    MPI_Send(bytes, (int)n, MPI_BYTE, to, 0, MPI_COMM_WORLD);
}

/* Rows are at most COUNTS_MAX_VOCAB times 24 bytes, so their size fits MPI's int. */
static void send_counts(const counts *c, int to) {
    send_bytes(&c->n_domains, sizeof c->n_domains, to);
    for (int i = 0; i < c->n_domains; i++) {
        const counts_domain *d = &c->domains[i];
        send_bytes(d, sizeof *d, to);
        send_bytes(d->name, strlen(d->name) + 1, to);
        send_bytes(d->rows, (size_t)d->n_rows * sizeof *d->rows, to);
    }
}

/* One message of any length, owned. */
static void *receive_bytes(int from) {
    MPI_Status probed;
    int n;
    MPI_Probe(from, 0, MPI_COMM_WORLD, &probed);
    MPI_Get_count(&probed, MPI_BYTE, &n);
    void *bytes = malloc(n > 0 ? (size_t)n : 1);
    if (!bytes) {
        fprintf(stderr, "vocabtrim-calibrate: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Recv(bytes, n, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return bytes;
}

/* Takes every message even after an error, so that no sender is left hanging. */
static specrt_status receive_counts(counts *c, int from, specrt_error *err) {
    specrt_status status = SPECRT_STATUS_OK;
    int *n_domains = (int *)receive_bytes(from);
    for (int i = 0; i < *n_domains; i++) {
        counts_domain *d = (counts_domain *)receive_bytes(from);
        d->name = (char *)receive_bytes(from);
        d->rows = (counts_row *)receive_bytes(from);
        if (status == SPECRT_STATUS_OK) status = counts_add(c, d, err);
        free(d->name);
        free(d->rows);
        free(d);
    }
    free(n_domains);
    return status;
}

specrt_status mpi_reduce(counts *c, specrt_status status, specrt_error *err) {
    TRY(mpi_agree(status, err));
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
    return mpi_agree(status, err);
}

#endif
