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
#define LONGEST_PAUSE_MS 10 /* between two of them */
#define SRUN_LOOK_MS 4
#define QUIET_LOOKS 5   /* at slurmstepd's children, before all is looked at again */
#define MOST_LOOKS 1000 /* the same, where there is always one more to stop */
#define MAX_SRUNS 64
#define MOST_PROCESSES 1024

struct processes {
    pid_t pid[MOST_PROCESSES]; /* what there is no room for is found by the next look at all */
    size_t count;
};

/* A look at all of /proc costs much more than one at what is known from the one before. */
struct hunt {
    const struct scope *scope;
    bool spares_sruns;
    struct processes sruns;
    struct processes others;
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
static bool feels(const struct proc_state *state, int number)
{
    if (number == SIGKILL)
        return state->threads > 1 || (state->letter != 'Z' && state->letter != 'X');
    return !state->exiting && state->letter != 'T';
}

static bool would_feel(pid_t pid, int number)
{
    struct proc_state state;

    return proc_state(pid, &state) && feels(&state, number);
}

/*
 * What costs least first: a node has thousands of the kernel's processes, and of the element's own
 * most have been stopped in an earlier round. A process that is not to be looked into is found once
 * its parent is dead.
 */
static bool is_target(pid_t pid, const struct scope *scope, int number, struct lineage *lineage)
{
    struct proc_state state;

    return proc_is_owned_by(pid, scope->user) && proc_state(pid, &state) &&
           feels(&state, number) &&
           (proc_is_or_descends(state.parent, lineage) || environment_is_in_scope(pid, scope));
}

static void note(struct processes *processes, pid_t pid)
{
    if (processes->count < MOST_PROCESSES)
        processes->pid[processes->count++] = pid;
}

static bool is_spared(const struct hunt *hunt, pid_t pid)
{
    return hunt->spares_sruns && proc_is_named(pid, "srun");
}

/* Its guard forks nothing: there is no need to stop it, and to look for what it forked meanwhile. */
static bool signal_process(const struct hunt *hunt, pid_t pid, int number)
{
    if (pid == getpid() || (number == SIGSTOP && pid == hunt->scope->guard))
        return false;
    return kill(pid, number) == 0;
}

/* Signals what is in scope, and notes all of it that would feel `felt`. */
static unsigned look_at_all(struct hunt *hunt, int number, int felt)
{
    struct lineage lineage = {.ancestor = hunt->scope->slurmstepd};
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    unsigned signaled = 0;

    hunt->sruns.count = 0;
    if (processes == NULL)
        return 0;
    while ((entry = readdir(processes)) != NULL) {
        pid_t pid = atoi(entry->d_name);

        if (!isdigit((unsigned char)entry->d_name[0]) ||
            !is_target(pid, hunt->scope, felt, &lineage))
            continue;
        if (hunt->sruns.count < MAX_SRUNS && is_spared(hunt, pid)) {
            note(&hunt->sruns, pid);
        } else {
            note(&hunt->others, pid);
            signaled += would_feel(pid, number) && signal_process(hunt, pid, number);
        }
    }
    closedir(processes);
    return signaled;
}

/*
 * Looks at slurmstepd's own children: its tasks, and the orphans that it has adopted. A process that
 * does nothing but fork and end is never where a look through all of /proc has seen it; here it is
 * found while it lives.
 */
static unsigned look_at_children(const struct hunt *hunt, int number)
{
    const struct scope *scope = hunt->scope;
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
        if (would_feel(pid, number) && proc_belongs_to(pid, scope->user) && !is_spared(hunt, pid))
            signaled += signal_process(hunt, pid, number);
    fclose(children);
    return signaled;
}

/* Kills what has been noted, and forgets what is dead. */
static unsigned kill_others(struct hunt *hunt)
{
    struct lineage lineage = {.ancestor = hunt->scope->slurmstepd};
    struct processes *others = &hunt->others;
    size_t noted = others->count;
    unsigned signaled = 0;

    others->count = 0;
    for (size_t i = 0; i < noted; i++)
        if (is_target(others->pid[i], hunt->scope, SIGKILL, &lineage)) {
            note(others, others->pid[i]);
            signaled += signal_process(hunt, others->pid[i], SIGKILL);
        }
    return signaled;
}

/*
 * So that nothing forks any more while it is killed: else a program that forks faster than it is
 * killed would stay for ever.
 */
static void stop_all(struct hunt *hunt)
{
    unsigned signaled = 1;

    for (int round = 0; round < ROUNDS && signaled > 0; round++) {
        /* What ends, or has been stopped already, is to be killed as well. */
        signaled = look_at_all(hunt, SIGSTOP, round == 0 ? SIGKILL : SIGSTOP);
        for (int look = 0, quiet = 0; look < MOST_LOOKS && quiet < QUIET_LOOKS; look++) {
            unsigned more = look_at_children(hunt, SIGSTOP);

            signaled += more;
            quiet = more > 0 ? 0 : quiet + 1;
        }
    }
}

static bool kill_all(struct hunt *hunt)
{
    stop_all(hunt);
    for (int round = 0; round < ROUNDS; round++) {
        /*
         * Whose parent dies becomes slurmstepd's child, and may do so while its children are looked
         * at: once more after the look at all.
         */
        if (kill_others(hunt) + look_at_children(hunt, SIGKILL) == 0 &&
            look_at_all(hunt, SIGKILL, SIGKILL) == 0 && look_at_children(hunt, SIGKILL) == 0)
            return true;
        sleep_ms(round < 3 ? 1 << round : LONGEST_PAUSE_MS);
    }
    return false;
}

static void wait_for_sruns(struct hunt *hunt, int limit_ms)
{
    struct processes *sruns = &hunt->sruns;

    for (int waited = 0; sruns->count > 0 && waited < limit_ms; waited += SRUN_LOOK_MS) {
        struct lineage lineage = {.ancestor = hunt->scope->slurmstepd};

        if (is_target(sruns->pid[sruns->count - 1], hunt->scope, SIGKILL, &lineage))
            sleep_ms(SRUN_LOOK_MS);
        else
            sruns->count--;
    }
}

bool sweep(const struct scope *scope, int srun_ms)
{
    struct hunt hunt = {.scope = scope, .spares_sruns = true};

    if (!kill_all(&hunt))
        return false;
    if (hunt.sruns.count == 0)
        return true;
    wait_for_sruns(&hunt, srun_ms);
    hunt.spares_sruns = false;
    return kill_all(&hunt);
}
