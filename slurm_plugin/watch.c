#include "watch.h"

#include "proc.h"

#include <errno.h>
#include <signal.h>
#include <slurm/spank.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 200
#define LATE_MS (GUARD_SRUN_MS + 400) /* after the grace, a guard has so long to end all */
#define STOPS 3                       /* looks in a row; a job that Slurm suspends has one */
#define FIRST (-20)                   /* before all that an element starts */

static bool is_over(struct watch *watch)
{
    struct timespec until;
    int status;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_MS * 1000L * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    do
        status = sem_timedwait(&watch->over, &until);
    while (status != 0 && errno == EINTR);
    return status == 0;
}

/* Lets a stopped guard go on, `STOPS` times in a row. */
static bool guards(const struct watch *watch, pid_t pid, int *stops)
{
    struct proc_state state;

    if (!proc_state(pid, &state) || state.parent != getpid() || state.letter == 'Z' ||
        !proc_belongs_to(pid, watch->scope.user))
        return false;
    *stops = state.letter == 'T' ? *stops + 1 : 0;
    return *stops == 0 || (*stops <= STOPS && kill(pid, SIGCONT) == 0);
}

static const char *wait_for_reason(struct watch *watch)
{
    int64_t left_ms = watch->grace / 1000 + LATE_MS;
    pid_t known = 0;
    int stops = 0;

    while (!is_over(watch)) {
        pid_t pid = watch->life->pid;

        if (pid == 0)
            continue;
        if (pid == -1 || !guards(watch, pid, &stops))
            return "its guard is gone";
        if (known == 0)
            setpriority(PRIO_PROCESS, (id_t)(known = pid), FIRST);
        if (watch->life->signaled && (left_ms -= LOOK_MS) < 0)
            return "its guard is late";
    }
    return NULL;
}

static void *watch_main(void *argument)
{
    struct watch *watch = argument;
    const char *reason;

    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), FIRST); /* of this thread alone */
    reason = wait_for_reason(watch);
    if (reason != NULL) {
        slurm_error("bftrainer: job %u is ended: %s", watch->scope.job, reason);
        sweep(&watch->scope, GUARD_SRUN_MS);
    }
    return NULL;
}

bool watch_start(struct watch *watch)
{
    sigset_t all;
    sigset_t before;

    if (watch->runs || sem_init(&watch->over, 0, 0) != 0)
        return watch->runs;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    watch->runs = pthread_create(&watch->thread, NULL, watch_main, watch) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return watch->runs;
}

void watch_end(struct watch *watch)
{
    if (watch->runs)
        sem_post(&watch->over);
}

void watch_join(struct watch *watch)
{
    if (!watch->runs)
        return;
    watch_end(watch);
    pthread_join(watch->thread, NULL);
    sem_destroy(&watch->over);
    watch->runs = false;
}
