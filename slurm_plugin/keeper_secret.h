/*
 * The trainer's secret from the keeper, for processes in a container: libmunge and munged's socket are
 * not there. A credential proves whose the trainer is, and covers the answer with a key that only the
 * keeper's user can read in it (keeper/gate.py, ByMunge.secret).
 */
#ifndef BFTRAINER_KEEPER_SECRET_H
#define BFTRAINER_KEEPER_SECRET_H

#include "job_secret.h"
#include "keeper_note.h"

#define SECRET_BYTES ((JOB_SECRET_SIZE - 1) / 2)

/* What asks for it: made on the node, before anything can have entered a container. */
struct secret_request {
    char line[KEEPER_LINE]; /* empty: there is no MUNGE here */
    unsigned char key[SECRET_BYTES];
};

/* In a process of the trainer's user. `socket`: munged's, empty: its usual one. */
bool secret_request_make(struct secret_request *request, const char *socket, uid_t keeper_user,
                         uint32_t array);

/* False: the keeper gives no secret for it; outside of containers nothing needs one. */
bool secret_ask(const char *keeper, const struct secret_request *request,
                char secret[JOB_SECRET_SIZE]);

#endif
