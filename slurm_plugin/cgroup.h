/*
 * One folder of cgroups, of version 1 (the freezer's) or 2, by its open file: finding it, and ending
 * what is in it. Which folder is an element's is container.h's matter.
 */
#ifndef BFTRAINER_CGROUP_H
#define BFTRAINER_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/* Where this process sees the cgroup of `pid`; false where there are no cgroups of this version. */
bool cgroup_of(int version, pid_t pid, char path[PATH_MAX]);

/* Opens the folder, -1 and errno where that fails. */
int cgroup_open(const char *path);

/* Moves a process (0: the caller) into the folder at this path. */
bool cgroup_add(const char *path, pid_t pid);

/* Whether no process lives in the folder or below it. */
bool cgroup_is_empty(int folder);

/*
 * Ends all processes in the folder and below it, but for the caller, and waits until it is empty;
 * false: some would not go. Nothing escapes by forking, and nobody else is hit.
 */
bool cgroup_kill(int folder);

#endif
