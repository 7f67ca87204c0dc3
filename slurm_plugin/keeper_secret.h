/*
 * Gets the trainer's secret from the keeper, for processes in a container, which has no libmunge and no
 * socket of munged. A credential proves the trainer's user. It also has a key, which only the keeper's
 * user can read, and which covers the answer (keeper/gate.py, ByMunge.secret).
 */
#pragma once

#include "job_secret.h"
#include "keeper_note.h"

/* The request: made on the node, before any process can be in a container. */
struct secret_request {
    char line[KEEPER_LINE]; /* empty: there is no MUNGE here */
    unsigned char key[SECRET_BYTES];
};

/* Call in a process of the trainer's user. `socket` is munged's; empty: the usual one. */
bool secret_request_make(struct secret_request *request, const char *socket, uid_t keeper_user,
                         uint32_t array);

/* Returns false if the keeper gives no secret; outside containers no process needs it. */
bool secret_ask(const char *keeper, const struct secret_request *request,
                char secret[JOB_SECRET_SIZE]);
