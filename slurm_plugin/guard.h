/*
 * A process beside each task set of an element that keeps the promise to ordinary jobs: when Slurm
 * sends SIGTERM, everything of the element is gone within its grace, however it takes the signal.
 */
#ifndef BFTRAINER_GUARD_H
#define BFTRAINER_GUARD_H

#include "spec.h"
#include "sweep.h"

#include <stdbool.h>

/* How long, after the grace, the sruns of a killed step have to end by themselves. */
#define GUARD_SRUN_MS 1000

struct guard {
    struct scope scope;
    micros_t grace;
    const char *keeper;
    const char *leaving;    /* the line for the keeper; NULL: tell nothing */
    volatile bool *signaled; /* in shared memory: set when Slurm's SIGTERM has come */
};

/* To be called in a task before it becomes the user's program. */
bool guard_start(const struct guard *guard);

#endif
