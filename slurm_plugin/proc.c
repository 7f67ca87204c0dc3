#include "proc.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PF_EXITING 0x4    /* of the kernel's linux/sched.h: field 9 of proc(5)'s stat */
#define LONGEST_LINE 1000 /* of ancestors: a user may make it as long as he likes */

FILE *proc_open(pid_t pid, const char *name)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    return fopen(path, "re");
}

/* The name in the middle is the user's choice: blanks and brackets too. */
static bool read_state(pid_t pid, const char *name, struct proc_state *state)
{
    char line[512];
    FILE *file = proc_open(pid, name);
    const char *after_name;
    size_t length;
    unsigned flags;
    int parent;

    if (file == NULL)
        return false;
    length = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[length] = '\0';
    after_name = strrchr(line, ')');
    if (after_name == NULL ||
        sscanf(after_name,
               ") %c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d",
               &state->letter, &parent, &flags, &state->threads) != 4)
        return false;
    state->parent = parent;
    state->exiting = (flags & PF_EXITING) != 0;
    return true;
}

static void find_living_thread(pid_t pid, struct proc_state *state)
{
    char name[32];
    struct proc_state thread;
    struct dirent *entry;
    DIR *threads;

    snprintf(name, sizeof(name), "/proc/%d/task", (int)pid);
    threads = opendir(name);
    if (threads == NULL)
        return;
    while (state->exiting && (entry = readdir(threads)) != NULL) {
        snprintf(name, sizeof(name), "task/%d/stat", atoi(entry->d_name));
        if (read_state(pid, name, &thread) && !thread.exiting) {
            state->letter = thread.letter;
            state->exiting = false;
        }
    }
    closedir(threads);
}

bool proc_state(pid_t pid, struct proc_state *state)
{
    if (!read_state(pid, "stat", state))
        return false;
    if (state->exiting && state->threads > 1)
        find_living_thread(pid, state);
    return true;
}

bool proc_is_owned_by(pid_t pid, uid_t user)
{
    char path[64];
    struct stat status;

    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    return stat(path, &status) == 0 && status.st_uid == user;
}

bool proc_belongs_to(pid_t pid, uid_t user)
{
    char line[256];
    unsigned real = 0;
    bool found = false;
    FILE *file = proc_open(pid, "status");

    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof(line), file) != NULL)
        found = sscanf(line, "Uid: %u", &real) == 1;
    fclose(file);
    return found && real == user;
}

bool proc_is_named(pid_t pid, const char *name)
{
    char found[32] = "";
    FILE *file = proc_open(pid, "comm");

    if (file == NULL)
        return false;
    if (fgets(found, sizeof(found), file) == NULL)
        found[0] = '\0';
    fclose(file);
    found[strcspn(found, "\n")] = '\0';
    return strcmp(found, name) == 0;
}

/* Whether the answer for `pid` is known: it is the ancestor, nobody's child, or was asked for. */
static bool is_known(const struct lineage *lineage, pid_t pid, bool *descends)
{
    const struct verdict *verdict = &lineage->verdicts[(unsigned)pid % LINEAGE_SIZE];

    *descends = pid == lineage->ancestor || (pid == verdict->pid && verdict->descends);
    return *descends || pid <= 1 || pid == verdict->pid;
}

bool proc_is_or_descends(pid_t pid, struct lineage *lineage)
{
    struct proc_state state = {.parent = pid};
    bool descends = false;

    for (int steps = 0; !is_known(lineage, state.parent, &descends); steps++)
        if (steps == LONGEST_LINE || !proc_state(state.parent, &state))
            return false;
    lineage->verdicts[(unsigned)pid % LINEAGE_SIZE] = (struct verdict){pid, descends};
    return descends;
}
