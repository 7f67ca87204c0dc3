/*
 * The trainer's secret from the keeper, for processes in a container: libmunge and munged's socket are
 * not there. A credential proves whose the trainer is, and covers the answer with a key that only the
 * keeper's user can read in it (keeper/gate.py, ByMunge.secret).
 */
#ifndef BFTRAINER_KEEPER_SECRET_H
#define BFTRAINER_KEEPER_SECRET_H

#include "job_secret.h"

/*
 * In a process of the trainer's user. `socket`: munged's, empty: its usual one. False: there is no
 * MUNGE here, or the keeper gives no secret; outside of containers nothing needs it.
 */
bool keeper_secret(const char *keeper, const char *socket, uid_t keeper_user, uint32_t array,
                   char secret[JOB_SECRET_SIZE]);

#endif
