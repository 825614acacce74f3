/* mpi.h : the few things a run under mpirun does differently. Without SPECRT_MPI there is one rank
 * and every call is a no-op. */
#ifndef CALIBRATE_MPI_H
#define CALIBRATE_MPI_H

#include "counts.h"

/* mpi_begin() : before anything else; ranks other than 0 fall silent, since all fail alike. */
void mpi_begin(int *argc, char ***argv);
int mpi_rank(void);
int mpi_n_ranks(void);

/* mpi_agree() : collective; every rank returns the error of the lowest one that has any. */
specrt_status mpi_agree(specrt_status status, specrt_error *err);

/* mpi_reduce() : add the counts of all ranks at rank 0. Collective, also for a rank that failed.
 *   status, err : of this rank so far
 * @return as mpi_agree(). */
specrt_status mpi_reduce(counts *c, specrt_status status, specrt_error *err);

/* mpi_end() : after everything else. @return code. */
int mpi_end(int code);

#endif
