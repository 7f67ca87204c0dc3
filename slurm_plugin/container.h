/*
 * Keeps track of all processes of an element: by the cgroups that Slurm has made for the job, or by
 * our own if Slurm makes none (proctrack/linuxproc). Without root or cgroups an element's processes
 * are slurmstepd's descendants.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct container {
    pid_t slurmstepd;
    pid_t guard;
    pid_t sentinel; /* see guard.h */
    int job;      /* the job's folder, with its steps' folders; -1: there are no cgroups */
    int step;     /* the folder of this step's processes */
    bool is_ours; /* not Slurm's */
    char job_path[PATH_MAX];
    char step_name[64];
    char tasks_path[PATH_MAX]; /* the folder of the task */
    char home_path[PATH_MAX];  /* the folder of slurmstepd */
};

/*
 * Call in slurmstepd, for a task that does not run the user's program yet. `job_name` and
 * `step_name` name our own folders; `step_name` begins with "step_".
 */
void container_open(struct container *container, pid_t task, const char *job_name,
                    const char *step_name);

/* Call for each further task. */
void container_add_task(const struct container *container, pid_t task);

/* Puts the sentinel where Slurm's signals to the step reach it. */
bool container_add_sentinel(const struct container *container);

/*
 * Puts the sentinel beside slurmstepd, so that it does not end with the tasks: slurmstepd sleeps for
 * 0.1 s after the end of a child that is no task.
 */
void container_spare_sentinel(const struct container *container);

/*
 * Waits until the slurmstepds of all other steps have ended, so that their sruns do not end first: a
 * slurmstepd tries for 2.3 s to reach a dead srun, and the node is not free before. A stopped srun does
 * not answer, so all stopped processes of this step are continued.
 */
void container_wait_for_other_steps(const struct container *container, int limit_ms);

/* Both wait until all but the caller have ended; false: some remain. No slurmstepd is ended. */
bool container_kill_step(const struct container *container);
bool container_kill_job(const struct container *container);

/*
 * Ends the sentinel and waits a moment for the guard, which ends then. Call in slurmstepd when its
 * tasks have ended: Slurm cannot remove a job's folder with another process in it.
 */
void container_end_helpers(const struct container *container);

/* Removes our own folders if they are empty. */
void container_remove(const struct container *container);
