#include "sweep.h"

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
static const struct timespec BETWEEN_ROUNDS = {.tv_nsec = 10 * 1000 * 1000};

/* A zombie's environment reads as empty, so the dead do not count. */
static bool in_scope(const char *pid, const struct scope *scope)
{
    char path[64];
    char job[32];
    char step[32];
    char *variable = NULL;
    size_t capacity = 0;
    bool job_matches = false;
    bool step_matches = false;
    bool has_step = false;
    struct stat status;
    FILE *environment;

    snprintf(path, sizeof(path), "/proc/%s/environ", pid);
    environment = fopen(path, "re");
    if (environment == NULL)
        return false;
    if (fstat(fileno(environment), &status) == 0 && status.st_uid == scope->user) {
        snprintf(job, sizeof(job), "SLURM_JOB_ID=%u", scope->job);
        snprintf(step, sizeof(step), "SLURM_STEP_ID=%lld", (long long)scope->step);
        while (getdelim(&variable, &capacity, '\0', environment) > 0) {
            job_matches |= strcmp(variable, job) == 0;
            step_matches |= strcmp(variable, step) == 0;
            has_step |= strncmp(variable, "SLURM_STEP_ID=", 14) == 0;
        }
    }
    free(variable);
    fclose(environment);
    return job_matches && (scope->step == ANY_STEP || step_matches ||
                           (scope->step == NO_STEP && !has_step));
}

static unsigned kill_round(const struct scope *scope)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    unsigned found = 0;

    if (processes == NULL)
        return 0;
    while ((entry = readdir(processes)) != NULL) {
        pid_t pid = atoi(entry->d_name);

        if (isdigit((unsigned char)entry->d_name[0]) && pid != getpid() &&
            in_scope(entry->d_name, scope) && kill(pid, SIGKILL) == 0)
            found++;
    }
    closedir(processes);
    return found;
}

bool sweep(const struct scope *scope)
{
    for (int round = 0; round < ROUNDS; round++) {
        if (kill_round(scope) == 0)
            return true;
        nanosleep(&BETWEEN_ROUNDS, NULL);
    }
    return false;
}
