#include "cgroup.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 200
#define LONGEST_PAUSE_MS 10 /* between two of them */
#define FREEZE_MS 50        /* a process in the middle of a system call may take longer */

static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = list; at != NULL; at = strchr(at, ','), at = at != NULL ? at + 1 : NULL)
        if (strncmp(at, word, length) == 0 && strchr(",:\n", at[length]) != NULL)
            return true;
    return false;
}

/* A line of mountinfo: ID PARENT DEVICE ROOT MOUNTPOINT ... - TYPE SOURCE OPTIONS, see proc(5). */
static bool read_mount(const char *line, int version, char root[PATH_MAX], char where[PATH_MAX])
{
    const char *rest = strstr(line, " - ");
    char type[32];
    char options[512];

    if (rest == NULL || sscanf(rest, " - %31s %*s %511s", type, options) != 2 ||
        sscanf(line, "%*d %*d %*s %4095s %4095s", root, where) != 2)
        return false;
    if (version == 2)
        return strcmp(type, "cgroup2") == 0;
    return strcmp(type, "cgroup") == 0 && has_word(options, "freezer");
}

static bool find_mount(int version, char root[PATH_MAX], char where[PATH_MAX])
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char *line = NULL;
    size_t capacity = 0;
    bool found = false;

    while (file != NULL && !found && getline(&line, &capacity, file) > 0)
        found = read_mount(line, version, root, where);
    free(line);
    if (file != NULL)
        fclose(file);
    return found;
}

/* A line is NUMBER:CONTROLLERS:PATH; in version 2 it is 0::PATH. */
static bool read_membership(int version, pid_t pid, char path[PATH_MAX])
{
    char name[64];
    char *line = NULL;
    size_t capacity = 0;
    bool found = false;
    FILE *file;

    snprintf(name, sizeof(name), "/proc/%d/cgroup", (int)pid);
    file = fopen(name, "re");
    while (file != NULL && !found && getline(&line, &capacity, file) > 0) {
        const char *controllers = strchr(line, ':');

        found = version == 2 ? strncmp(line, "0::", 3) == 0
                             : controllers != NULL && has_word(controllers + 1, "freezer");
        found = found && sscanf(line, version == 2 ? "0::%4095[^\n]" : "%*d:%*[^:]:%4095[^\n]",
                                path) == 1;
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return found;
}

bool cgroup_of(int version, pid_t pid, char path[PATH_MAX])
{
    char root[PATH_MAX];
    char where[PATH_MAX];
    char member[PATH_MAX];
    size_t shared;

    if (!find_mount(version, root, where) || !read_membership(version, pid, member))
        return false;
    /* In a container without its own cgroups only a part of the host's is mounted. */
    shared = strcmp(root, "/") == 0 || strncmp(member, root, strlen(root)) != 0 ? 0 : strlen(root);
    return snprintf(path, PATH_MAX, "%s%s", where, member + shared) < PATH_MAX;
}

int cgroup_open(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

DIR *cgroup_list(int folder)
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;

    if (copy >= 0 && entries == NULL)
        close(copy);
    return entries;
}

static bool put(int folder, const char *name, const char *text)
{
    int file = openat(folder, name, O_WRONLY | O_CLOEXEC);
    bool done = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);

    if (file >= 0)
        close(file);
    return done;
}

static bool says(int folder, const char *name, const char *text)
{
    char found[128];
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, found, sizeof(found) - 1) : -1;

    if (file >= 0)
        close(file);
    found[length > 0 ? length : 0] = '\0';
    return strstr(found, text) != NULL;
}

bool cgroup_add(const char *path, pid_t pid)
{
    int folder = cgroup_open(path);
    char text[16];
    bool done;

    snprintf(text, sizeof(text), "%d", (int)pid);
    done = folder >= 0 && put(folder, "cgroup.procs", text);
    if (folder >= 0)
        close(folder);
    return done;
}

static unsigned signal_in(int folder, int number);

static unsigned signal_below(int folder, int number)
{
    DIR *entries = cgroup_list(folder);
    struct dirent *entry;
    unsigned found = 0;

    while (entries != NULL && (entry = readdir(entries)) != NULL)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            int below = openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

            if (below >= 0) {
                found += signal_in(below, number);
                close(below);
            }
        }
    if (entries != NULL)
        closedir(entries);
    return found;
}

/* Returns the number of processes. One in a namespace that we cannot see is listed as 0. */
static unsigned signal_in(int folder, int number)
{
    int file = openat(folder, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *list = file >= 0 ? fdopen(file, "r") : NULL;
    unsigned found = 0;
    int pid;

    while (list != NULL && fscanf(list, "%d", &pid) == 1)
        if (pid > 0 && pid != getpid()) {
            found++;
            if (number != 0)
                kill(pid, number);
        }
    if (list != NULL)
        fclose(list);
    return found + signal_below(folder, number);
}

/* Version 2 lists a process until its memory is free, version 1 until it is dead. */
static bool is_empty(int folder)
{
    return says(folder, "cgroup.events", "populated 0") ||
           (faccessat(folder, "cgroup.events", F_OK, 0) != 0 && signal_in(folder, 0) == 0);
}

/*
 * Frozen processes do not fork or end: the list is complete, and no number in it belongs to another
 * process when it is used. Version 1 kills when the cgroup is thawed.
 */
static void kill_frozen(int folder)
{
    bool is_first = put(folder, "freezer.state", "FROZEN");

    if (!is_first)
        put(folder, "cgroup.freeze", "1");
    for (int waited = 0; waited < FREEZE_MS; waited++) {
        if (is_first ? !says(folder, "freezer.state", "FREEZING") /* another guard may thaw it */
                     : says(folder, "cgroup.events", "frozen 1"))
            break;
        usleep(1000);
    }
    signal_in(folder, SIGKILL);
    if (is_first)
        put(folder, "freezer.state", "THAWED");
    else
        put(folder, "cgroup.freeze", "0");
}

/* cgroup.kill (Linux 5.14) does not reach a process whose first thread has ended: seen on 6.18. */
bool cgroup_kill(int folder)
{
    for (int round = 0; round < ROUNDS; round++) {
        if (is_empty(folder))
            return true;
        if (round % 2 == 1 || !put(folder, "cgroup.kill", "1"))
            kill_frozen(folder);
        usleep(1000 * (round < 3 ? 1 << round : LONGEST_PAUSE_MS));
    }
    return is_empty(folder);
}
