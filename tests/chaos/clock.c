/* Preloaded into the controller: its wall clock is off by the seconds in the file that
 * BFTRAINER_CHAOS_CLOCK names, read anew each time. Other clocks are left alone. Python asks by
 * this function alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long offset_s(void)
{
    const char *path = getenv("BFTRAINER_CHAOS_CLOCK");
    char text[32] = {0};
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    return length > 0 ? strtol(text, NULL, 10) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int (*real)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME)
        now->tv_sec += offset_s();
    return result;
}
