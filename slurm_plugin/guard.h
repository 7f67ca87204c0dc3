/*
 * A process beside each task set of an element, and of whatever else is in the trainers' partition, that keeps the promise to ordinary jobs: when Slurm
 * sends SIGTERM, everything of the element is gone within its grace, however it takes the signal.
 * It is slurmstepd's child and, as slurmstepd, root's: what the user's processes do, it does not feel.
 * It is where slurmstepd is, not with the tasks. Slurm's signals to them reach a sentinel beside them,
 * and the guard sees its end.
 */
#ifndef BFTRAINER_GUARD_H
#define BFTRAINER_GUARD_H

#include "container.h"
#include "keeper_note.h"
#include "spec.h"

#include <stdbool.h>

/* In memory that slurmstepd, its tasks and their guard share. */
struct element_life {
    volatile bool is_reclaimed;     /* Slurm's SIGTERM has come */
    volatile bool is_over;          /* its tasks have ended: there is nothing left to guard */
    struct keeper_addresses keeper; /* as the task has found them */
};

struct guard {
    struct container *container;
    micros_t grace;
    const char *mark;    /* the batch script's, whose guard ends all steps: see spank_element.c; else NULL */
    const char *leaving; /* the line for the keeper, NULL: none */
    struct element_life *life;
};

/* To be called in slurmstepd before its tasks become the user's programs; false and errno. */
bool guard_start(const struct guard *guard);

#endif
