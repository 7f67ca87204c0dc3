/*
 * Sends one line to the keeper and reads one line, in a short-lived process of its own, so that neither
 * a slow keeper nor a slow name server can delay Slurm; or sends one line from slurmstepd or a guard,
 * without a process and without waiting.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define KEEPER_LINE 512
#define REFUSED "refused " /* a line of the keeper's, or of anybody, and then why */
#define KEEPER_LIMIT_S 2 /* for each host */
#define KEEPER_HOSTS 4
#define KEEPER_ADDRESSES 8

/* The possible addresses of the keeper: the site's hosts, in the order to ask. */
struct keeper_addresses {
    unsigned count;    /* 0: not known */
    unsigned answered; /* which host did, counted from 0 */
    char answer[KEEPER_LINE];
    struct keeper_address {
        unsigned host;
        socklen_t length;
        struct sockaddr_storage socket;
    } all[KEEPER_ADDRESSES];
};

/* `keeper` is HOST:PORT, or at most KEEPER_HOSTS of them separated by commas. */
bool keeper_is_valid(const char *keeper);

/* Copies `keeper` with the host numbered `first` at its beginning: `ordered` is as large. */
void keeper_begin_with(const char *keeper, unsigned first, char *ordered);

/*
 * Waits for an answer; false if there is none. `who` proves itself by the secret to each host before it
 * sends the line, and each host to it. `found`, in shared memory, gets the addresses of all hosts, which of
 * them answered, and the answer without its newline: if all refuse, what the last one has said.
 */
bool keeper_ask(const char *keeper, const char *who, const char *secret, const char *line,
                struct keeper_addresses *found);

/* Does not wait, and does not say whether the line has arrived. */
void keeper_tell(const char *keeper, const char *line);

/*
 * Sends the line to all of the addresses that take a connection within `limit_ms`. Stops when `end` (-1:
 * none) becomes readable or is closed.
 */
void keeper_say(const struct keeper_addresses *keeper, const char *text, int limit_ms, int end);

/*
 * Announces a submission with one datagram to each of `addresses`: IP:PORT, or several separated by commas.
 * Nothing waits for it or answers it. Host names are refused: a name server could delay a submission.
 */
bool announce_is_valid(const char *addresses);
void announce_submission(const char *addresses);
