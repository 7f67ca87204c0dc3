/*
 * One cgroup folder, of version 1 (freezer) or 2, by its open file: finds it, and ends
 * the processes in it. container.h knows which folder belongs to an element.
 */
#pragma once

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/* The path of the cgroup of `pid` for this process; false if this version has no cgroups here. */
bool cgroup_of(int version, pid_t pid, char path[PATH_MAX]);

/* Opens the folder; -1 and errno if that fails. */
int cgroup_open(const char *path);

/* Lists an open folder; NULL if that fails. */
DIR *cgroup_list(int folder);

/* Moves a process (0: the caller) into the folder at this path. */
bool cgroup_add(const char *path, pid_t pid);

/*
 * Ends all processes in the folder and below it, except the caller, and waits until it is empty.
 * Returns false if some processes remain. No process escapes by forking, and no other is killed.
 */
bool cgroup_kill(int folder);
