/*
 * Slurm makes no folder for a job's output, and ends a job that has none without a word to its user.
 */
#ifndef BFTRAINER_OUTPUT_FOLDER_H
#define BFTRAINER_OUTPUT_FOLDER_H

#include "options.h"

/* In sbatch: says which folder of --output or --error is not on this host. */
void output_folder_check(slurm_opt_t *options);

/* In an srun: says where the step's output goes, if not where the script's goes. */
void output_folder_tell(slurm_opt_t *options);

#endif
