#include "sweep.h"

#include "environment.h"
#include "proc.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 200
#define ROUND_MS 10
#define QUIET_LOOKS 5   /* at slurmstepd's children, before all is looked at again */
#define MOST_LOOKS 1000 /* the same, where there is always one more to stop */
#define MAX_SRUNS 64

struct sruns {
    pid_t pid[MAX_SRUNS];
    size_t count;
};

static void sleep_ms(int milliseconds)
{
    const struct timespec time = {.tv_nsec = milliseconds * 1000L * 1000};

    nanosleep(&time, NULL);
}

static bool environment_is_in_scope(pid_t pid, const struct scope *scope)
{
    char job[32];
    char keeper[512];
    char step[32];
    char *variable = NULL;
    size_t capacity = 0;
    bool job_matches = false;
    bool keeper_matches = false;
    bool step_matches = false;
    bool has_step = false;
    FILE *environment = proc_open(pid, "environ");

    if (environment == NULL)
        return false;
    snprintf(job, sizeof(job), "SLURM_JOB_ID=%u", scope->job);
    snprintf(keeper, sizeof(keeper), ENV_KEEPER "=%s", scope->keeper);
    snprintf(step, sizeof(step), "SLURM_STEP_ID=%lld", (long long)scope->step);
    while (getdelim(&variable, &capacity, '\0', environment) > 0) {
        job_matches |= strcmp(variable, job) == 0;
        keeper_matches |= strcmp(variable, keeper) == 0;
        step_matches |= strcmp(variable, step) == 0;
        has_step |= strncmp(variable, "SLURM_STEP_ID=", 14) == 0;
    }
    free(variable);
    fclose(environment);
    return job_matches && keeper_matches &&
           (scope->step == ANY_STEP || step_matches ||
            (scope->step == NO_STEP && !has_step));
}

/*
 * Whether a signal would do something. One that ends is stopped by nothing and forks no more; it is
 * waited for as if it felt SIGKILL, until what it held (memory, GPUs) is free.
 */
static bool would_feel(pid_t pid, int number)
{
    struct proc_state state;

    if (!proc_state(pid, &state))
        return false;
    if (number == SIGKILL)
        return state.threads > 1 || (state.letter != 'Z' && state.letter != 'X');
    return !state.exiting && state.letter != 'T';
}

/*
 * What costs least first: a node has thousands of the kernel's processes, and of the element's own
 * most have been stopped in an earlier round. A process that is not to be looked into is found once
 * its parent is dead.
 */
static bool is_target(pid_t pid, const struct scope *scope, int number)
{
    return proc_is_owned_by(pid, scope->user) && would_feel(pid, number) &&
           (proc_descends_from(pid, scope->slurmstepd) || environment_is_in_scope(pid, scope));
}

static bool signal_process(pid_t pid, int number)
{
    return pid != getpid() && kill(pid, number) == 0;
}

/* Signals what is in scope, but only notes the sruns where `sruns` is given. */
static unsigned signal_all(const struct scope *scope, int number, struct sruns *sruns)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    unsigned signaled = 0;

    if (sruns != NULL)
        sruns->count = 0;
    if (processes == NULL)
        return 0;
    while ((entry = readdir(processes)) != NULL) {
        pid_t pid = atoi(entry->d_name);

        if (!isdigit((unsigned char)entry->d_name[0]) || !is_target(pid, scope, number))
            continue;
        if (sruns != NULL && sruns->count < MAX_SRUNS && proc_is_named(pid, "srun"))
            sruns->pid[sruns->count++] = pid;
        else
            signaled += signal_process(pid, number);
    }
    closedir(processes);
    return signaled;
}

/*
 * Signals slurmstepd's own children: its tasks, and the orphans that it has adopted. A process that
 * does nothing but fork and end is never where a look through all of /proc has seen it; here it is
 * found while it lives.
 */
static unsigned signal_children(const struct scope *scope, int number, bool spare_sruns)
{
    char name[32];
    FILE *children;
    unsigned signaled = 0;
    int pid;

    snprintf(name, sizeof(name), "task/%d/children", (int)scope->slurmstepd);
    children = proc_open(scope->slurmstepd, name);
    if (children == NULL)
        return 0;
    while (fscanf(children, "%d", &pid) == 1)
        /* First whether it would feel it: of hundreds most have been stopped in an earlier look. */
        if (would_feel(pid, number) && proc_belongs_to(pid, scope->user) &&
            !(spare_sruns && proc_is_named(pid, "srun")))
            signaled += signal_process(pid, number);
    fclose(children);
    return signaled;
}

/*
 * So that nothing forks any more while it is killed: else a program that forks faster than it is
 * killed would stay for ever.
 */
static void stop_all(const struct scope *scope, struct sruns *sruns)
{
    unsigned signaled = 1;

    for (int round = 0; round < ROUNDS && signaled > 0; round++) {
        signaled = signal_all(scope, SIGSTOP, sruns);
        for (int look = 0, quiet = 0; look < MOST_LOOKS && quiet < QUIET_LOOKS; look++) {
            unsigned more = signal_children(scope, SIGSTOP, sruns != NULL);

            signaled += more;
            quiet = more > 0 ? 0 : quiet + 1;
        }
    }
}

static bool kill_all(const struct scope *scope, struct sruns *sruns)
{
    int round = 0;

    stop_all(scope, sruns);
    while (round < ROUNDS) {
        if (signal_all(scope, SIGKILL, sruns) + signal_children(scope, SIGKILL, sruns != NULL) == 0)
            return true;
        /* Whose parent dies becomes slurmstepd's child: only its children need be looked at. */
        do
            sleep_ms(ROUND_MS);
        while (++round < ROUNDS && signal_children(scope, SIGKILL, sruns != NULL) > 0);
    }
    return false;
}

static void wait_for_sruns(const struct scope *scope, struct sruns *sruns, int limit_ms)
{
    for (int waited = 0; sruns->count > 0 && waited < limit_ms; waited += ROUND_MS) {
        pid_t last = sruns->pid[sruns->count - 1];

        if (is_target(last, scope, SIGKILL))
            sleep_ms(ROUND_MS);
        else
            sruns->count--;
    }
}

bool sweep(const struct scope *scope, int srun_ms)
{
    struct sruns sruns;

    if (!kill_all(scope, &sruns))
        return false;
    if (sruns.count == 0)
        return true;
    wait_for_sruns(scope, &sruns, srun_ms);
    return kill_all(scope, NULL);
}
