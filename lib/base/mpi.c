/* mpi.c : see mpi.h. */
#include "base/mpi.h"

#ifndef SPECRT_MPI

#include <stdlib.h>

void sl_mpi_begin(int *argc, char ***argv) {
    (void)argc, (void)argv;
}
int sl_mpi_rank(void) {
    return 0;
}
int sl_mpi_n_ranks(void) {
    return 1;
}
specrt_status sl_mpi_agree(specrt_status status, specrt_error *err) {
    (void)err;
    return status;
}
void sl_mpi_send(const void *bytes, size_t n, int to) {
    (void)bytes, (void)n, (void)to;
    abort(); /* there is nobody to send to */
}
void *sl_mpi_receive(int from, size_t *n) {
    (void)from, (void)n;
    abort();
}
int sl_mpi_end(int code) {
    return code;
}

#else

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, n_ranks = 1;

void sl_mpi_begin(int *argc, char ***argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    if (rank > 0 && (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout)))
        MPI_Abort(MPI_COMM_WORLD, 1);
}

int sl_mpi_rank(void) {
    return rank;
}

int sl_mpi_n_ranks(void) {
    return n_ranks;
}

int sl_mpi_end(int code) {
    MPI_Finalize();
    return code;
}

specrt_status sl_mpi_agree(specrt_status status, specrt_error *err) {
    int failed = status == SPECRT_STATUS_OK ? n_ranks : rank, first, code = (int)status;
    MPI_Allreduce(&failed, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first == n_ranks) return SPECRT_STATUS_OK;
    MPI_Bcast(&code, 1, MPI_INT, first, MPI_COMM_WORLD);
    MPI_Bcast(err, (int)sizeof *err, MPI_BYTE, first, MPI_COMM_WORLD);
    return (specrt_status)code;
}

void sl_mpi_send(const void *bytes, size_t n, int to) {
    MPI_Send(bytes, (int)n, MPI_BYTE, to, 0, MPI_COMM_WORLD);
}

void *sl_mpi_receive(int from, size_t *n) {
    MPI_Status probed;
    int length;
    MPI_Probe(from, 0, MPI_COMM_WORLD, &probed);
    MPI_Get_count(&probed, MPI_BYTE, &length);
    void *bytes = malloc(length > 0 ? (size_t)length : 1);
    if (!bytes) {
        fprintf(stderr, "out of memory for a message of %d bytes\n", length);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Recv(bytes, length, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    *n = (size_t)length;
    return bytes;
}

#endif
