#include "batch.h"

#include "environment.h"

#include <dlfcn.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define START "/bftrainer_slurm/elastic/batch/start"
#define PYTHON "/usr/bin/python3" /* as in START */
#define ANSWER_S 5

/* The user's choice wins over the site's, and the site's over the script's. */
static const char *wanted(spank_t spank, const struct site *site)
{
    char said[sizeof("once")];

    if (spank_getenv(spank, ENV_BATCH, said, sizeof(said)) == ESPANK_SUCCESS)
        return strcmp(said, "once") == 0 ? "once" : "each";
    return site->batch_once ? "any" : "each";
}

/* One that runs in a container of Slurm's (--container) sees no file of ours. */
static bool is_in_container(spank_t spank)
{
    char bundle[2];

    return spank_getenv(spank, "SLURM_CONTAINER", bundle, sizeof(bundle)) != ESPANK_ENV_NOEXIST;
}

/* slurmstepd executes what this array holds: no hook needs to start a process. */
void batch_take_place(spank_t spank, const struct site *site, bool tell)
{
    char start[PATH_MAX];
    char told[PATH_MAX + 16];
    char **words;
    int count;

    if (site->python[0] == '\0' || is_in_container(spank) ||
        snprintf(start, sizeof(start), "%s" START, site->python) >= (int)sizeof(start) ||
        access(PYTHON, X_OK) != 0 || access(start, X_OK) != 0 ||
        spank_get_item(spank, S_JOB_ARGV, &count, &words) != ESPANK_SUCCESS || count < 1 ||
        snprintf(told, sizeof(told), "%s %s %s", wanted(spank, site), tell ? "tell" : "quiet",
                 words[0]) >= (int)sizeof(told) ||
        spank_setenv(spank, ENV_SCRIPT, told, 1) != ESPANK_SUCCESS)
        return;
    words[0] = strdup(start);
}

/* This stays open until srun ends, so that its end is noticed, even if it is killed. */
static int listener = -1;

static void tell_end(int code, void *nothing)
{
    char line[16];
    int length = snprintf(line, sizeof(line), "%d\n", code & 255);

    (void)nothing;
    send(listener, line, (size_t)length, MSG_NOSIGNAL);
}

/* Slurm unloads its plugins before srun ends. */
static bool stay_loaded(void)
{
    Dl_info own;

    return dladdr((void *)tell_end, &own) != 0 &&
           dlopen(own.dli_fname, RTLD_NOW | RTLD_NODELETE) != NULL;
}

static bool connect_to(const char *name)
{
    const struct timeval limit = {.tv_sec = ANSWER_S};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);

    if (length == 0 || length >= sizeof(address.sun_path))
        return false;
    memcpy(address.sun_path + 1, name, length); /* in no folder: an abstract name */
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return listener >= 0 &&
           setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0 &&
           connect(listener, (struct sockaddr *)&address,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) == 0;
}

void batch_tell_step(void)
{
    const char *name = getenv(ENV_SRUNS);
    char answer[32] = "";
    char step[16];
    unsigned number;
    int code;

    if (name == NULL || getenv(ENV_STEP) != NULL || listener >= 0)
        return;
    if (!connect_to(name) || recv(listener, answer, sizeof(answer) - 1, 0) <= 0)
        return;
    if (sscanf(answer, "exit %d", &code) == 1)
        exit(code);
    if (sscanf(answer, "go %u", &number) != 1 || !stay_loaded())
        return;
    snprintf(step, sizeof(step), "%u", number);
    setenv(ENV_STEP, step, 1);
    on_exit(tell_end, NULL);
}
