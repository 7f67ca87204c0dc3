/*
 * Signals to what descends from a slurmstepd; and ending it, where no cgroups are to be had: Slurm
 * without root, where users could end slurmd itself, and hosts without cgroups. It must adopt orphans
 * (PR_SET_CHILD_SUBREAPER).
 */
#ifndef BFTRAINER_SWEEP_H
#define BFTRAINER_SWEEP_H

#include <stdbool.h>
#include <sys/types.h>

/* Signals a process (0: only looks) if it lives and descends from slurmstepd; whether it did so. */
bool sweep_signal(pid_t pid, pid_t slurmstepd, int number);

/* Whether something that lives descends from it, but for its guard and its sentinel. */
bool sweep_finds(pid_t slurmstepd, pid_t guard, pid_t sentinel);

/* Lets all go on that is stopped (SIGSTOP). */
void sweep_continue(pid_t slurmstepd);

/*
 * Stops all but the caller and `spared` (0: none), so that nothing forks any more, then SIGKILLs it
 * until none is left.
 */
bool sweep(pid_t slurmstepd, pid_t spared);

#endif
