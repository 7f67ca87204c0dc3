/*
 * A process beside the tasks of each element, and of any other job in the trainers' partition. It keeps
 * the promise to ordinary jobs: after Slurm's SIGTERM all processes of the element end within its grace,
 * even if they ignore the signal. The guard is slurmstepd's child and runs as root, like slurmstepd, so
 * the user's processes cannot affect it. It is in slurmstepd's cgroup, not in the tasks'. Slurm's
 * signals to the tasks reach a sentinel beside them, and the guard notices the sentinel's end.
 */
#pragma once

#include "container.h"
#include "keeper_note.h"

#include <stdbool.h>

/* Memory that slurmstepd, its tasks and their guard share. */
struct element_life {
    volatile bool is_reclaimed;     /* Slurm's SIGTERM has come */
    volatile bool is_over;          /* the tasks have ended: nothing is left to guard */
    struct keeper_addresses keeper; /* the task has looked them up */
};

struct guard {
    struct container *container;
    unsigned grace_ms;
    const char *mark;    /* the batch script's, whose guard ends all steps: see spank_element.c; else NULL */
    const char *leaving; /* the line for the keeper, NULL: none */
    struct element_life *life;
};

/* Call in slurmstepd before its tasks execute the user's programs; false and errno on failure. */
bool guard_start(const struct guard *guard);
