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

#define LINEAGE_SIZE 64

struct verdict {
    pid_t pid;
    bool descends;
};

/*
 * Who descends from `ancestor`, as far as was asked: brothers share their parent's line. It is good
 * for one look at all processes only; in time, numbers of processes are given out anew.
 */
struct lineage {
    pid_t ancestor;
    struct verdict verdicts[LINEAGE_SIZE]; /* each of the last process with that remainder */
};

/* Whether this process is the ancestor, a child of his, or a child's child, and so on. */
bool proc_is_or_descends(pid_t pid, struct lineage *lineage);

#endif
