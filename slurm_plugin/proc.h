/*
 * What /proc says of a process. Each call reads anew: a process may end or change between two.
 */
#ifndef BFTRAINER_PROC_H
#define BFTRAINER_PROC_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* A file of /proc/PID, or NULL: the process has ended, or is none of ours to look into. */
FILE *proc_open(pid_t pid, const char *name);

struct proc_state {
    char letter; /* as ps shows it: R, S, D, T, Z */
    pid_t parent;
    bool exiting; /* runs none of its program any more; its memory may still have to be freed */
    int threads;
};

/* Where the first thread has ended: of one that goes on. ps calls such a process a zombie. */
bool proc_state(pid_t pid, struct proc_state *state);

/* By the owner of /proc/PID: quick, but that is root where a process is not to be looked into. */
bool proc_is_owned_by(pid_t pid, uid_t user);
bool proc_belongs_to(pid_t pid, uid_t user);

bool proc_is_named(pid_t pid, const char *name);

/* Whether `ancestor` is its parent, or its parent's parent, and so on. */
bool proc_descends_from(pid_t pid, pid_t ancestor);

#endif
