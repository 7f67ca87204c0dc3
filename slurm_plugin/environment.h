/*
 * The names of the environment variables that the plugin sets, in elements and in sbatch.
 */
#ifndef BFTRAINER_ENVIRONMENT_H
#define BFTRAINER_ENVIRONMENT_H

/* In an element: ARRAY_TASK. By it an sbatch or srun knows that it runs in an element. */
#define ENV_ELEMENT "BFTRAINER_ELEMENT"
#define ENV_FIRST "BFTRAINER_FIRST" /* 1 at the trainer's first start, else 0 */
#define ENV_KEEPER "BFTRAINER_KEEPER"
#define ENV_GRACE "BFTRAINER_GRACE" /* in seconds */
#define ENV_MUNGE_SOCKET "BFTRAINER_MUNGE_SOCKET"
#define ENV_KEEPER_UID "BFTRAINER_KEEPER_UID"
#define ENV_JOB_SECRET "BFTRAINER_JOB_SECRET"

/* For a batch script that runs on one node (batch.h): its name; the socket for its sruns; a step's
 * number. */
#define ENV_SCRIPT "BFTRAINER_SCRIPT"
#define ENV_SRUNS "BFTRAINER_SRUNS"
#define ENV_STEP "BFTRAINER_STEP"

/* What an element needs to know of its trainer (words.h, struct passed); Slurm carries it from sbatch to the
 * element under the second name. */
#define JOB_CONTROL_PASSED "BFTRAINER"
#define ENV_PASSED "SLURM_SPANK_BFTRAINER"

/* "own" if torchrun keeps its own rendezvous (--bftrainer=rendezvous=own), passed on in the same way. */
#define JOB_CONTROL_RENDEZVOUS "BFTRAINER_RENDEZVOUS"
#define ENV_RENDEZVOUS "SLURM_SPANK_BFTRAINER_RENDEZVOUS"
#define OWN_RENDEZVOUS "own"

/* "no" if BFTrainer does not make frameworks resume (--bftrainer=resume=no), passed on in the same way;
 * the script's processes have it under the first name. */
#define ENV_RESUME "BFTRAINER_RESUME"
#define ENV_CARRIED_RESUME "SLURM_SPANK_BFTRAINER_RESUME"
#define NO_RESUME "no"

/* "once" or "each": where the batch script runs, if the user says it (--bftrainer=batch=), likewise. */
#define JOB_CONTROL_BATCH "BFTRAINER_BATCH"
#define ENV_BATCH "SLURM_SPANK_BFTRAINER_BATCH"

/* The element's own task, if the script sees the user's. The batch task passes it to its steps, in which
 * Slurm takes the task from the environment. */
#define ENV_TASK "SLURM_SPANK_BFTRAINER_TASK"

/* Slurm passes a SPANK option in this variable to what starts inside the job. */
#define ENV_OPTION "SLURM_SPANK__SLURM_SPANK_OPTION_bftrainer_bftrainer"

/*
 * The submission sets this variable of torchrun's to a backend that does not exist, and the plugin on the
 * node replaces it. If that plugin is not loaded, torchrun ends with an error that names the backend, and
 * the node does not train by itself.
 */
#define ENV_BACKEND "PET_RDZV_BACKEND"
#define NO_BACKEND "bftrainer-plugin-missing-on-this-node"

/* From the SPANK plugin to cli_filter.lua in the same sbatch: this submission is tagged. */
#define ENV_FILTER_SPEC "BFTRAINER_FILTER_SPEC"
#define ENV_FILTER_PARTITION "BFTRAINER_FILTER_PARTITION"
#define ENV_FILTER_QOS "BFTRAINER_FILTER_QOS"
#define ENV_FILTER_SHARE "BFTRAINER_FILTER_SHARE" /* if set, elements may have parts of nodes */
#define ENV_FILTER_REFUSED "BFTRAINER_FILTER_REFUSED"

#endif
