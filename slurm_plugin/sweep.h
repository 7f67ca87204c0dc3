/*
 * Ending what is left of an element. Its processes are found by their ancestor, whatever they have
 * done to themselves, and by their environment, if something else has started them.
 */
#ifndef BFTRAINER_SWEEP_H
#define BFTRAINER_SWEEP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ANY_STEP (-1) /* whatever belongs to the job */
#define NO_STEP (-2)  /* what the batch script started, but not its steps */

struct scope {
    uid_t user;
    uint32_t job;
    const char *keeper; /* a host may run nodes of several clusters, which all have a job 7 */
    int64_t step;       /* the number of a step, ANY_STEP or NO_STEP */
    pid_t guard;        /* of the element, where it is known: killed with the rest */
    pid_t slurmstepd;   /* adopts orphans (PR_SET_CHILD_SUBREAPER): all it started descends from it */
};

/*
 * Stops every process in `scope` but the caller, then SIGKILLs them, until none is left; false:
 * some would not go. An srun gets up to `srun_ms` milliseconds to end by itself once its step is
 * gone: a step's slurmstepd tries for 2.3 s to reach a dead one, and the node is not free before.
 */
bool sweep(const struct scope *scope, int srun_ms);

#endif
