/*
 * A submission's options behind an opaque handle, without Slurm's internal headers.
 * The functions are exported by the libslurmfull of 22.05, 24.11 and 26.05 alike.
 */
#pragma once

#include <stdbool.h>

typedef struct slurm_options slurm_opt_t;

/* The options of this sbatch or salloc; NULL if they cannot be reached. */
slurm_opt_t *options_of_process(void);

/* Whether this is sbatch: salloc and srun know no job arrays. */
bool options_are_of_sbatch(slurm_opt_t *options);

bool options_given(slurm_opt_t *options, const char *name);

/* The option's value, for the caller to free; empty if it has none. NULL: no memory. */
char *options_get(slurm_opt_t *options, const char *name);

bool options_is(slurm_opt_t *options, const char *name, const char *value);

/* `value` is empty for an option that takes none; false when Slurm does not take it. */
bool options_set(slurm_opt_t *options, const char *name, const char *value);

/* Resets the option; false if this Slurm has no function for it. */
bool options_reset(slurm_opt_t *options, const char *name);
