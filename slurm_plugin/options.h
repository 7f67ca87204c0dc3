/*
 * A submission's options behind an opaque handle, without Slurm's internal headers.
 * The functions are exported by the libslurmfull of 22.05, 24.11 and 26.05 alike.
 */
#ifndef BFTRAINER_OPTIONS_H
#define BFTRAINER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct slurm_options slurm_opt_t;

/* The options of the sbatch or salloc that this process is; NULL where they cannot be reached. */
slurm_opt_t *options_of_process(void);

/* Only sbatch knows job arrays, which tells it from salloc and srun. */
bool options_are_of_sbatch(slurm_opt_t *options);

bool options_given(slurm_opt_t *options, const char *name);

/* Leaves the empty text where the option has no value, and where it has a longer one: then false. */
bool options_get(slurm_opt_t *options, const char *name, char *value, size_t size);

/* `value` is NULL for an option that takes none; false when Slurm does not take it. */
bool options_set(slurm_opt_t *options, const char *name, const char *value);

/* As if it had not been given; false where Slurm has no such function. */
bool options_reset(slurm_opt_t *options, const char *name);

/* MaxArraySize and MaxJobCount of slurm.conf; 0 where they cannot be known. */
unsigned options_max_array_size(void);
unsigned options_max_job_count(void);

#endif
