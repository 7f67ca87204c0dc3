/*
 * Signals and ends slurmstepd's descendants where there are no cgroups: with a Slurm without root, whose
 * users could end slurmd itself, and on hosts without cgroups. slurmstepd must adopt orphans
 * (PR_SET_CHILD_SUBREAPER).
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Signals a process (0: only checks) if it is a living descendant of slurmstepd; returns whether. */
bool sweep_signal(pid_t pid, pid_t slurmstepd, int number);

/* Whether slurmstepd has a living descendant, apart from its guard and its sentinel. */
bool sweep_finds(pid_t slurmstepd, pid_t guard, pid_t sentinel);

/* Continues all stopped descendants (SIGSTOP). */
void sweep_continue(pid_t slurmstepd);

/*
 * Stops all descendants but the caller and `spared` (0: none), so that none can fork, then sends SIGKILL
 * until none is left.
 */
bool sweep(pid_t slurmstepd, pid_t spared);
