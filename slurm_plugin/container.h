/*
 * What holds the processes of an element, whatever they do: the cgroups that Slurm has made for the
 * job, or our own where it makes none (proctrack/linuxproc). Where neither is to be had (no root, no
 * cgroups), it is all that descends from slurmstepd.
 */
#ifndef BFTRAINER_CONTAINER_H
#define BFTRAINER_CONTAINER_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct container {
    pid_t slurmstepd;
    pid_t guard;
    pid_t sentinel; /* see guard.h */
    int job;      /* the folder with those of the job's steps; -1: no cgroups are to be had */
    int step;     /* the folder of this step's processes */
    bool is_ours; /* not Slurm's */
    char job_path[PATH_MAX];
    char step_name[64];
    char tasks_path[PATH_MAX]; /* of the folder that the task is in */
    char home_path[PATH_MAX];  /* of the folder that slurmstepd is in */
};

/*
 * To be called in slurmstepd, for a task that runs nothing of the user's yet. `job_name` and
 * `step_name` are for folders of our own; the latter begins with "step_".
 */
void container_open(struct container *container, pid_t task, const char *job_name,
                    const char *step_name);

/* For each further task. */
void container_add_task(const struct container *container, pid_t task);

/* Puts the sentinel where Slurm's signals to the step reach it. */
bool container_add_sentinel(const struct container *container);

/*
 * Puts the sentinel where slurmstepd is, so that it does not end with the tasks: slurmstepd sleeps for
 * 0.1 s after a child has ended that is no task.
 */
void container_spare_sentinel(const struct container *container);

/*
 * Until the slurmstepds of all other steps have ended, so that the sruns that they speak to do not go
 * first: a slurmstepd tries for 2.3 s to reach a dead one, and the node is not free before. One that is
 * stopped does not answer, so all of this step that is stopped goes on.
 */
void container_wait_for_other_steps(const struct container *container, int limit_ms);

/* Both wait until all but the caller is gone; false: some would not go. No slurmstepd is ended. */
bool container_kill_step(const struct container *container);
bool container_kill_job(const struct container *container);

/*
 * Ends the sentinel and waits a moment for the guard's end, which follows. To be called in slurmstepd
 * when its tasks have ended: Slurm cannot remove a job's folder that somebody else is in.
 */
void container_end_helpers(const struct container *container);

/* Removes folders of our own, once they are empty. */
void container_remove(const struct container *container);

#endif
