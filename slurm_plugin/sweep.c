#include "sweep.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 200
#define PAUSE_MS 10       /* between two of them */
#define LONGEST_LINE 1000 /* of ancestors: a user may make the line of any length */

struct state {
    char letter; /* as ps shows it: R, S, D, T, Z */
    pid_t parent;
    int threads; /* more than one where only the first thread is a zombie */
};

/* The name in the middle is the user's choice: blanks and brackets too. */
static bool read_state(pid_t pid, struct state *state)
{
    char path[64];
    char line[512];
    const char *after_name;
    size_t length;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    length = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[length] = '\0';
    after_name = strrchr(line, ')');
    return after_name != NULL &&
           sscanf(after_name, ") %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d",
                  &state->letter, &state->parent, &state->threads) == 3;
}

/* Whether the process is alive, and may get this signal (0: any). */
static bool is_target(pid_t pid, pid_t slurmstepd, int number)
{
    struct state state;
    pid_t parent;

    if (!read_state(pid, &state) || (state.letter == 'Z' && state.threads <= 1) ||
        (number == SIGSTOP && state.letter == 'T') || (number == SIGCONT && state.letter != 'T'))
        return false;
    for (int line = 0; (parent = state.parent) != slurmstepd; line++)
        if (parent <= 1 || line == LONGEST_LINE || !read_state(parent, &state))
            return false;
    return true;
}

/*
 * Between a look and a signal the number may get to another process. So first get a reference to the
 * process, if the kernel can (Linux 5.3).
 */
bool sweep_signal(pid_t pid, pid_t slurmstepd, int number)
{
    int held = (int)syscall(SYS_pidfd_open, pid, 0);
    bool done = is_target(pid, slurmstepd, number);

    if (done && number != 0)
        done = (held >= 0 ? (int)syscall(SYS_pidfd_send_signal, held, number, NULL, 0)
                          : kill(pid, number)) == 0;
    if (held >= 0)
        close(held);
    return done;
}

static unsigned signal_all(pid_t slurmstepd, pid_t spared, int number)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    unsigned signaled = 0;

    while (processes != NULL && (entry = readdir(processes)) != NULL) {
        pid_t pid = atoi(entry->d_name);

        if (isdigit((unsigned char)entry->d_name[0]) && pid != getpid() && pid != spared)
            signaled += sweep_signal(pid, slurmstepd, number);
    }
    if (processes != NULL)
        closedir(processes);
    return signaled;
}

bool sweep_finds(pid_t slurmstepd, pid_t guard, pid_t sentinel)
{
    return signal_all(slurmstepd, sentinel, 0) > (unsigned)is_target(guard, slurmstepd, 0);
}

void sweep_continue(pid_t slurmstepd)
{
    signal_all(slurmstepd, 0, SIGCONT);
}

bool sweep(pid_t slurmstepd, pid_t spared)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000L * 1000};

    for (int round = 0; round < ROUNDS && signal_all(slurmstepd, spared, SIGSTOP) > 0; round++)
        ;
    for (int round = 0; round < ROUNDS; round++) {
        if (signal_all(slurmstepd, spared, SIGKILL) == 0)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}
