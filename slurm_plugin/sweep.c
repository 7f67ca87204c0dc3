#include "sweep.h"

#include "environment.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 200
#define ROUND_MS 10
#define MAX_SRUNS 64

struct sruns {
    pid_t pid[MAX_SRUNS];
    size_t count;
};

static void sleep_round(void)
{
    const struct timespec round = {.tv_nsec = ROUND_MS * 1000 * 1000};

    nanosleep(&round, NULL);
}

static FILE *open_process_file(pid_t pid, const char *name)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    return fopen(path, "re");
}

/* A zombie's environment reads as empty, so the dead do not count. */
static bool in_scope(pid_t pid, const struct scope *scope)
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
    struct stat status;
    FILE *environment = open_process_file(pid, "environ");

    if (environment == NULL)
        return false;
    if (fstat(fileno(environment), &status) == 0 && status.st_uid == scope->user) {
        snprintf(job, sizeof(job), "SLURM_JOB_ID=%u", scope->job);
        snprintf(keeper, sizeof(keeper), ENV_KEEPER "=%s", scope->keeper);
        snprintf(step, sizeof(step), "SLURM_STEP_ID=%lld", (long long)scope->step);
        while (getdelim(&variable, &capacity, '\0', environment) > 0) {
            job_matches |= strcmp(variable, job) == 0;
            keeper_matches |= strcmp(variable, keeper) == 0;
            step_matches |= strcmp(variable, step) == 0;
            has_step |= strncmp(variable, "SLURM_STEP_ID=", 14) == 0;
        }
    }
    free(variable);
    fclose(environment);
    return job_matches && keeper_matches &&
           (scope->step == ANY_STEP || step_matches ||
            (scope->step == NO_STEP && !has_step));
}

static bool is_srun(pid_t pid)
{
    char name[16] = "";
    FILE *file = open_process_file(pid, "comm");

    if (file == NULL)
        return false;
    if (fgets(name, sizeof(name), file) == NULL)
        name[0] = '\0';
    fclose(file);
    return strcmp(name, "srun\n") == 0;
}

/* Kills what is in scope, but only notes the sruns where `sruns` is given. Returns the killed. */
static unsigned kill_round(const struct scope *scope, struct sruns *sruns)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    unsigned killed = 0;

    if (sruns != NULL)
        sruns->count = 0;
    if (processes == NULL)
        return 0;
    while ((entry = readdir(processes)) != NULL) {
        pid_t pid = atoi(entry->d_name);

        if (!isdigit((unsigned char)entry->d_name[0]) || pid == getpid() || !in_scope(pid, scope))
            continue;
        if (sruns != NULL && sruns->count < MAX_SRUNS && is_srun(pid))
            sruns->pid[sruns->count++] = pid;
        else if (kill(pid, SIGKILL) == 0)
            killed++;
    }
    closedir(processes);
    return killed;
}

static bool kill_all(const struct scope *scope, struct sruns *sruns)
{
    for (int round = 0; round < ROUNDS; round++) {
        if (kill_round(scope, sruns) == 0)
            return true;
        sleep_round();
    }
    return false;
}

static void wait_for_sruns(const struct scope *scope, struct sruns *sruns, int limit_ms)
{
    for (int waited = 0; sruns->count > 0 && waited < limit_ms; waited += ROUND_MS) {
        while (sruns->count > 0 && !in_scope(sruns->pid[sruns->count - 1], scope))
            sruns->count--;
        if (sruns->count > 0)
            sleep_round();
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
