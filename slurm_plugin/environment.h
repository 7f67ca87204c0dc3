/*
 * The names of the environment variables that the plugin sets, in elements and in sbatch.
 */
#pragma once

/* In an element: ARRAY_TASK. By it an sbatch or srun knows that it runs in an element. */
#define ENV_ELEMENT "BFTRAINER_ELEMENT"
#define ENV_FIRST "BFTRAINER_FIRST" /* 1 at the trainer's first start, else 0 */
#define ENV_KEEPER "BFTRAINER_KEEPER"
#define ENV_GRACE "BFTRAINER_GRACE" /* in seconds */
#define ENV_JOB_SECRET "BFTRAINER_JOB_SECRET" /* the trainer's */

/* For a batch script (batch.h): where it is to run, whether to say it, and its path; the socket for the
 * sruns of one that runs on one node; a step's number. */
#define ENV_SCRIPT "BFTRAINER_SCRIPT"
#define ENV_SRUNS "BFTRAINER_SRUNS"
#define ENV_STEP "BFTRAINER_STEP"

/* Slurm carries these from sbatch to the element (SLURM_SPANK_ is its prefix): what an element needs to
 * know of its trainer (words.h); "own" if torchrun keeps its own rendezvous; "no" if BFTrainer does not make
 * frameworks resume; "once" or "each" if the user says where the batch script runs. */
#define ENV_PASSED "SLURM_SPANK_BFTRAINER"
#define ENV_RENDEZVOUS "SLURM_SPANK_BFTRAINER_RENDEZVOUS"
#define ENV_CARRIED_RESUME "SLURM_SPANK_BFTRAINER_RESUME"
#define ENV_BATCH "SLURM_SPANK_BFTRAINER_BATCH"

/* The script's processes have the word on resuming under this name. */
#define ENV_RESUME "BFTRAINER_RESUME"

/* The element's own task, if the script sees the user's. The batch task passes it to its steps, in which
 * Slurm takes the task from the environment. */
#define ENV_TASK "SLURM_SPANK_BFTRAINER_TASK"

/* Slurm passes a SPANK option in this variable to what starts inside the job. */
#define ENV_OPTION "SLURM_SPANK__SLURM_SPANK_OPTION_bftrainer_bftrainer"

/* The submission sets it to a backend that does not exist, which the plugin on the node replaces: where
 * the plugin is not loaded, torchrun ends, and the node does not train by itself. */
#define ENV_BACKEND "PET_RDZV_BACKEND"
