/* mpi.h : the few things a run under mpirun does differently. Without SPECRT_MPI there is one rank
 * and the collective calls are no-ops. */
#ifndef BASE_MPI_H
#define BASE_MPI_H

#include <stddef.h>
#include "specrt.h"

/* sl_mpi_begin() : before anything else; ranks other than 0 fall silent, since all fail alike. */
void sl_mpi_begin(int *argc, char ***argv);
int sl_mpi_rank(void);
int sl_mpi_n_ranks(void);

/* sl_mpi_agree() : collective; every rank returns the error of the lowest one that has any. */
specrt_status sl_mpi_agree(specrt_status status, specrt_error *err);

/* sl_mpi_send() : below 2 GiB. sl_mpi_receive() : one message of any length, owned. Messages of one rank
 * arrive in order. */
void sl_mpi_send(const void *bytes, size_t n, int to);
void *sl_mpi_receive(int from, size_t *n);

/* sl_mpi_end() : after everything else. @return code. */
int sl_mpi_end(int code);

#endif
