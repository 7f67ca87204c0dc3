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
#define KEEPER_LIMIT_S 2 /* for each host */
#define KEEPER_HOSTS 4
#define KEEPER_ADDRESSES 8

/* Where the keeper may be: on one of the site's hosts, in the order to ask. */
struct keeper_addresses {
    unsigned count;    /* 0: not known */
    unsigned answered; /* which host did, counted from 0 */
    struct keeper_address {
        unsigned host;
        socklen_t length;
        struct sockaddr_storage socket;
    } all[KEEPER_ADDRESSES];
};

struct identity {
    uid_t user;
    gid_t group;
};

/* `keeper` is HOST:PORT, or at most KEEPER_HOSTS of them with commas between. */
bool keeper_is_valid(const char *keeper);

/* Copies `keeper` with the host numbered `first` at its beginning: `ordered` is as large. */
void keeper_begin_with(const char *keeper, unsigned first, char *ordered);

/*
 * Waits for the answer (without its newline) of the first host that gives one. `found`, in shared
 * memory, gets the addresses of all hosts, and which of them answered.
 */
bool keeper_ask(const char *keeper, const char *line, char *answer, size_t size,
                struct keeper_addresses *found);

/* Does not wait, and does not say whether the line has arrived. */
void keeper_tell(const char *keeper, const char *line);

/*
 * The same with the user's rights and without a name server, so that it may be done in a fork of
 * slurmstepd, which is root and has threads.
 */
void keeper_tell_as(const struct identity *user, const struct keeper_addresses *keeper,
                    const char *line);

#endif
