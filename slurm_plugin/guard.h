/*
 * A process beside each task set of an element that keeps the promise to ordinary jobs: when Slurm
 * sends SIGTERM, everything of the element is gone within its grace, however it takes the signal.
 * It is one of the user's own processes; what he may do to it, watch.h undoes.
 */
#ifndef BFTRAINER_GUARD_H
#define BFTRAINER_GUARD_H

#include "spec.h"
#include "sweep.h"

#include <stdbool.h>

/* How long, after the grace, the sruns of a killed step have to end by themselves. */
#define GUARD_SRUN_MS 1000

#define GUARD_PROCESS "bftrainer-guard"

/* In memory that slurmstepd, its tasks and their guard share. */
struct guard_life {
    volatile pid_t pid;      /* 0: not started yet, -1: could not be started */
    volatile bool signaled; /* Slurm's SIGTERM has come */
};

struct guard {
    struct scope scope;
    micros_t grace;
    const char *keeper;
    const char *leaving; /* the line for the keeper; NULL: tell nothing */
    struct guard_life *life;
};

/* To be called in a task before it becomes the user's program. */
bool guard_start(const struct guard *guard);

#endif
