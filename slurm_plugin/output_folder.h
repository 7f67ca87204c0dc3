/*
 * Slurm makes no folder for a job's output. It ends a job without this folder, and does not tell the user.
 */
#ifndef BFTRAINER_OUTPUT_FOLDER_H
#define BFTRAINER_OUTPUT_FOLDER_H

#include "options.h"

/* Call in sbatch: warns of a folder of --output or --error that this host lacks. */
void output_folder_check(slurm_opt_t *options);

/* Call in an srun: prints where the step's output goes, if not to the script's file. */
void output_folder_tell(slurm_opt_t *options);

#endif
