/*
 * One line to the keeper and one line back, each in a short-lived process of its own, so that
 * neither a slow keeper nor a slow name server can hold Slurm up.
 */
#ifndef BFTRAINER_KEEPER_NOTE_H
#define BFTRAINER_KEEPER_NOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define KEEPER_LINE 512
#define KEEPER_LIMIT_S 2

struct keeper_address {
    socklen_t length; /* 0: not known */
    struct sockaddr_storage socket;
};

struct identity {
    uid_t user;
    gid_t group;
};

/*
 * Waits for the answer (without its newline), at most KEEPER_LIMIT_S. `found`, in shared memory, gets
 * the address of the keeper that was reached.
 */
bool keeper_ask(const char *keeper, const char *line, char *answer, size_t size,
                struct keeper_address *found);

/* Does not wait, and does not say whether the line has arrived. */
void keeper_tell(const char *keeper, const char *line);

/*
 * The same with the user's rights and without a name server, so that it may be done in a fork of
 * slurmstepd, which is root and has threads.
 */
void keeper_tell_as(const struct identity *user, const struct keeper_address *keeper,
                    const char *line);

#endif
