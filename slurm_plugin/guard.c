#include "guard.h"

#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define GUARD_NAME "bftrainer-guard"
#define SENTINEL_NAME "bftrainer-term"
#define UNSIGNALED_NAME "slurmstepd" /* proctrack/linuxproc signals nothing of this name */
#define FIRST (-20)                  /* before all processes of an element */

/* Returns early once the tasks have ended: slurmstepd has then ended the sentinel. */
static void wait_grace(const struct guard *guard, int sentinel)
{
    struct pollfd end = {.fd = sentinel};
    long long until = monotonic_ms() + guard->grace_ms;
    long long left;

    if (guard->leaving != NULL) /* not in a process of its own, which could outlive the guard */
        keeper_say(&guard->life->keeper, guard->leaving, (int)guard->grace_ms, sentinel);
    while (!guard->life->is_over && (left = until - monotonic_ms()) > 0)
        if (poll(&end, 1, (int)left) > 0)
            end.fd = -1; /* it says this once */
}

static void end_all(const struct guard *guard)
{
    if (guard->mark != NULL)
        container_kill_job(guard->container);
    else
        container_kill_step(guard->container);
}

/*
 * Slurm sends SIGTERM to slurmstepd's own children: this process receives it, and tells the guard. It
 * stays as long as slurmstepd (see container_spare_sentinel). It blocks all other signals that can be
 * blocked: those of scancel --signal are not for us.
 */
static void sentinel_main(int guard, pid_t slurmstepd)
{
    bool is_told = false;
    sigset_t all;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    process_become_helper(SENTINEL_NAME, &guard, 1);
    sigfillset(&all);
    while (getppid() == slurmstepd)
        if (sigwaitinfo(&all, NULL) == SIGTERM && !is_told)
            is_told = write(guard, "", 1) == 1;
    _exit(0);
}

/* Returns false if the sentinel was killed: Slurm kills the whole step, or slurmstepd has ended. */
static bool wait_for_reclaim(int sentinel)
{
    char word;
    ssize_t length;

    do
        length = read(sentinel, &word, 1);
    while (length < 0 && errno == EINTR);
    return length == 1;
}

static void guard_main(const struct guard *guard, int sentinel, pid_t slurmstepd)
{
    const int kept[] = {guard->container->job, guard->container->step, sentinel};
    bool is_reclaimed;

    process_become_helper(GUARD_NAME, kept, 3);
    setpriority(PRIO_PROCESS, 0, FIRST);
    is_reclaimed = wait_for_reclaim(sentinel);
    if (guard->life->is_over)
        _exit(0);
    prctl(PR_SET_NAME, UNSIGNALED_NAME);
    if (is_reclaimed) {
        guard->life->is_reclaimed = true;
        container_spare_sentinel(guard->container);
        wait_grace(guard, sentinel);
        if (guard->life->is_over)
            _exit(0);
    } else {
        container_kill_step(guard->container); /* nobody tells the sruns in it any more */
    }
    end_all(guard);
    if (getppid() != slurmstepd) {
        container_remove(guard->container);
        if (guard->mark != NULL)
            unlink(guard->mark);
    }
    _exit(0);
}

/* All signals are blocked in both, so that an early one stays pending. */
bool guard_start(const struct guard *guard)
{
    struct container *container = guard->container;
    pid_t slurmstepd = getpid();
    pid_t pid = -1;
    sigset_t all;
    sigset_t before;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    container->sentinel = fork();
    if (container->sentinel == 0)
        sentinel_main(ends[1], slurmstepd);
    close(ends[1]); /* the sentinel alone has it */
    if (container->sentinel > 0)
        pid = fork();
    if (pid == 0)
        guard_main(guard, ends[0], slurmstepd);
    container->guard = pid;
    close(ends[0]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid > 0 && container_add_sentinel(container);
}
