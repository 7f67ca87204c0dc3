#include "guard.h"

#include "process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PROCESS_NAME "bftrainer-guard"
#define ORPHANED SIGHUP /* the kernel's signal when slurmstepd has ended */
#define FIRST (-20)     /* before all that an element starts */

static void sleep_grace(micros_t grace)
{
    struct timespec left = {.tv_sec = grace / MICROS, .tv_nsec = grace % MICROS * 1000};

    while (nanosleep(&left, &left) != 0)
        ;
}

static void end_all(const struct guard *guard)
{
    if (guard->leaving != NULL)
        container_kill_job(guard->container);
    else
        container_kill_step(guard->container);
}

/*
 * Any other signal that Slurm hands on (scancel --signal) is none of ours. False: slurmstepd has
 * ended, and what it has left would run beside the next job.
 */
static bool wait_for_reclaim(pid_t slurmstepd, const sigset_t *all)
{
    int number = 0;

    while (getppid() == slurmstepd && number != SIGTERM)
        number = sigwaitinfo(all, NULL);
    return getppid() == slurmstepd;
}

static void guard_main(const struct guard *guard, pid_t slurmstepd)
{
    const int kept[] = {guard->container->job, guard->container->step};
    sigset_t all;

    prctl(PR_SET_PDEATHSIG, ORPHANED);
    process_become_helper(PROCESS_NAME, kept, 2);
    setpriority(PRIO_PROCESS, 0, FIRST);
    sigfillset(&all);
    if (wait_for_reclaim(slurmstepd, &all)) {
        guard->life->is_reclaimed = true;
        container_leave(guard->container);
        if (guard->leaving != NULL)
            keeper_tell_as(&guard->user, &guard->life->keeper, guard->leaving);
        sleep_grace(guard->grace);
    } else {
        container_leave(guard->container);
    }
    end_all(guard);
    if (getppid() != slurmstepd)
        container_remove(guard->container);
    _exit(0);
}

/* A signal that comes before the guard waits for it, stays for it. */
bool guard_start(const struct guard *guard)
{
    pid_t slurmstepd = getpid();
    sigset_t all;
    sigset_t before;
    pid_t pid;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid = fork();
    if (pid == 0)
        guard_main(guard, slurmstepd);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid > 0 && container_add_guard(guard->container, pid);
}
