#include "guard.h"

#include "keeper_note.h"
#include "process.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define STACK_SIZE (256 * 1024)
static const struct timespec LOOK_AT_PARENT = {.tv_sec = 5};

/*
 * Waits for slurmstepd's SIGTERM, which reaches every process of the step. One that the user's
 * own processes send (`kill 0` in a script, say) is none of ours. False: slurmstepd has gone.
 */
static bool wait_for_slurm(pid_t slurmstepd, const sigset_t *signals)
{
    siginfo_t info;

    while (getppid() == slurmstepd)
        if (sigtimedwait(signals, &info, &LOOK_AT_PARENT) == SIGTERM && info.si_pid == slurmstepd)
            return true;
    return false;
}

static void sleep_grace(micros_t grace)
{
    struct timespec left = {.tv_sec = grace / MICROS, .tv_nsec = grace % MICROS * 1000};

    while (nanosleep(&left, &left) != 0)
        ;
}

static int guard_main(void *argument)
{
    const struct guard *guard = argument;
    pid_t slurmstepd = getppid();
    sigset_t all;

    process_become_helper(GUARD_PROCESS, -1);
    prctl(PR_SET_DUMPABLE, 0); /* what is written here, the user cannot change */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(&all);
    sigaddset(&all, SIGTERM);
    if (wait_for_slurm(slurmstepd, &all)) {
        guard->life->signaled = true;
        if (guard->leaving != NULL)
            keeper_tell(guard->keeper, guard->leaving);
        sleep_grace(guard->grace);
        sweep(&guard->scope, GUARD_SRUN_MS);
    }
    _exit(0);
}

/*
 * CLONE_PARENT makes the guard a sibling of the task, a child of slurmstepd: the user's program
 * has no child that it does not know (`wait` works as ever), and Slurm signals and ends the guard
 * with the step, so that it never outlives it.
 */
bool guard_start(const struct guard *guard)
{
    char *stack = malloc(STACK_SIZE);
    sigset_t all;
    sigset_t before;
    pid_t pid;

    if (stack == NULL) {
        guard->life->pid = -1;
        return false;
    }
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid = clone(guard_main, stack + STACK_SIZE, CLONE_PARENT | SIGCHLD, (void *)guard);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(stack);
    guard->life->pid = pid;
    return pid > 0;
}
