#include "container.h"

#include "cgroup.h"
#include "process.h"
#include "sweep.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP "step_"
#define STEPS_END_MS 1000 /* how long a dead step's slurmstepd may take to tell its srun */
#define LOOK_MS 4
#define CONTINUE_LOOKS 25 /* between two times at which stopped processes are continued */
#define HELPERS_END_MS 200

/*
 * The folder of a step's processes, without slurmstepd. In version 2 Slurm has another folder for
 * slurmstepd; in version 1 it is in the job's folder.
 */
static int open_processes(int job, const char *step)
{
    char name[NAME_MAX + 8];
    int folder;

    snprintf(name, sizeof(name), "%s/user", step);
    folder = openat(job, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return folder >= 0 ? folder : openat(job, step, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool open_folders(struct container *container)
{
    container->job = cgroup_open(container->job_path);
    if (container->job < 0)
        return false;
    container->step = open_processes(container->job, container->step_name);
    if (container->step >= 0)
        return true;
    close(container->job);
    container->job = -1;
    return false;
}

/* Slurm's path is .../JOB/step_0, with version 2 .../JOB/step_0/user/task_0. */
static bool find_slurms(struct container *container, pid_t task, int version)
{
    char *step = NULL;

    if (!cgroup_of(version, task, container->tasks_path) ||
        !cgroup_of(version, container->slurmstepd, container->home_path) ||
        strcmp(container->tasks_path, container->home_path) == 0)
        return false;
    snprintf(container->job_path, sizeof(container->job_path), "%s", container->tasks_path);
    for (char *at = container->job_path; (at = strstr(at, "/" STEP)) != NULL; at++)
        step = at;
    if (step == NULL)
        return false;
    *step++ = '\0';
    snprintf(container->step_name, sizeof(container->step_name), "%.*s",
             (int)strcspn(step, "/"), step);
    return open_folders(container);
}

static bool make(const char *path)
{
    return mkdir(path, 0755) == 0 || errno == EEXIST;
}

static bool make_ours(struct container *container, pid_t task, const char *job_name, int version)
{
    size_t room = sizeof(container->tasks_path);

    container->is_ours =
        cgroup_of(version, container->slurmstepd, container->home_path) &&
        snprintf(container->job_path, room, "%s/%s", container->home_path, job_name) < (int)room &&
        snprintf(container->tasks_path, room, "%s/%s", container->job_path,
                 container->step_name) < (int)room &&
        make(container->job_path) && make(container->tasks_path) && open_folders(container) &&
        cgroup_add(container->tasks_path, task);
    return container->is_ours;
}

void container_open(struct container *container, pid_t task, const char *job_name,
                    const char *step_name)
{
    *container = (struct container){.slurmstepd = getpid(), .job = -1, .step = -1};
    if (find_slurms(container, task, 2) || find_slurms(container, task, 1))
        return;
    snprintf(container->step_name, sizeof(container->step_name), "%s", step_name);
    if (make_ours(container, task, job_name, 2) || make_ours(container, task, job_name, 1))
        return;
    container->job = -1;
}

void container_add_task(const struct container *container, pid_t task)
{
    if (container->is_ours)
        cgroup_add(container->tasks_path, task);
}

/* Slurm signals slurmstepd's descendants or, with its own cgroups, slurmstepd's children. */
bool container_add_sentinel(const struct container *container)
{
    return container->job < 0 || container->is_ours ||
           cgroup_add(container->tasks_path, container->sentinel);
}

void container_spare_sentinel(const struct container *container)
{
    if (container->job >= 0 && !container->is_ours)
        cgroup_add(container->home_path, container->sentinel);
}

/* Returns the folder's name of the next other step; NULL at the end. */
static const char *next_other_step(const struct container *container, DIR *job)
{
    struct dirent *entry;

    while ((entry = readdir(job)) != NULL)
        if (strncmp(entry->d_name, STEP, strlen(STEP)) == 0 &&
            strcmp(entry->d_name, container->step_name) != 0)
            return entry->d_name;
    return NULL;
}

/* A step's folder is removed when its slurmstepd has told srun; step_extern's stays with the job. */
static bool other_steps_run(const struct container *container)
{
    DIR *job = cgroup_list(container->job);
    const char *step = NULL;

    while (job != NULL && (step = next_other_step(container, job)) != NULL &&
           !isdigit((unsigned char)step[strlen(STEP)]))
        ;
    if (job != NULL)
        closedir(job);
    return step != NULL;
}

void container_wait_for_other_steps(const struct container *container, int limit_ms)
{
    long long until = monotonic_ms() + limit_ms;

    for (int look = 0;; look++) {
        if (container->job >= 0 ? !other_steps_run(container)
                                : !sweep_finds(container->slurmstepd, container->guard,
                                               container->sentinel))
            return;
        if (monotonic_ms() >= until)
            return;
        if (look % CONTINUE_LOOKS == 0)
            sweep_continue(container->slurmstepd);
        usleep(LOOK_MS * 1000);
    }
}

bool container_kill_step(const struct container *container)
{
    pid_t spared = getpid() == container->slurmstepd ? 0 : container->sentinel;

    return container->job >= 0 ? cgroup_kill(container->step)
                               : sweep(container->slurmstepd, spared);
}

bool container_kill_job(const struct container *container)
{
    DIR *job = container->job >= 0 ? cgroup_list(container->job) : NULL;
    const char *step;
    bool gone = true;

    while (job != NULL && (step = next_other_step(container, job)) != NULL) {
        int folder = open_processes(container->job, step);

        if (folder >= 0) {
            gone &= cgroup_kill(folder);
            close(folder);
        }
    }
    if (job != NULL)
        closedir(job);
    container_wait_for_other_steps(container, job != NULL ? STEPS_END_MS : 0);
    return container_kill_step(container) && gone;
}

void container_end_helpers(const struct container *container)
{
    pid_t slurmstepd = container->slurmstepd;

    sweep_signal(container->sentinel, slurmstepd, SIGKILL);
    for (int waited = 0; waited < HELPERS_END_MS; waited++) {
        if (!sweep_signal(container->sentinel, slurmstepd, 0) &&
            !sweep_signal(container->guard, slurmstepd, 0))
            return;
        usleep(1000);
    }
}

void container_remove(const struct container *container)
{
    if (container->is_ours && rmdir(container->tasks_path) == 0)
        rmdir(container->job_path); /* the last step's */
}
