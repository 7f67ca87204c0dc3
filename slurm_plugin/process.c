#include "process.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

long long monotonic_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static bool is_in(int file, const int *files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (files[i] == file)
            return true;
    return false;
}

/* The descriptor of the listing itself is closed last, by closedir. */
static void close_all_but(const int *kept, size_t count)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;

    if (folder == NULL) { /* no /proc: close all possible descriptors */
        for (long file = sysconf(_SC_OPEN_MAX); file > STDERR_FILENO; file--)
            if (!is_in((int)file, kept, count))
                close((int)file);
        return;
    }
    while ((entry = readdir(folder)) != NULL) {
        int file = atoi(entry->d_name);

        if (entry->d_name[0] != '.' && file > STDERR_FILENO && !is_in(file, kept, count) &&
            file != dirfd(folder))
            close(file);
    }
    closedir(folder);
}

void process_become_helper(const char *name, const int *kept, size_t count)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    prctl(PR_SET_NAME, name);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
        if (null < 0 || dup2(null, file) < 0)
            close(file);
    close_all_but(kept, count);
}
