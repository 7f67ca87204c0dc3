/*
 * The secret of one trainer, where the site has no MUNGE: HMAC-SHA-256, with the site's key, of its
 * array and user; the keeper makes the same (secret_of_job in keeper/credentials.py).
 */
#ifndef BFTRAINER_JOB_SECRET_H
#define BFTRAINER_JOB_SECRET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define JOB_SECRET_SIZE 65
#define JOB_SECRET_ERROR 256

/* False: `error` says why. The key's file must be root's, the keeper's or the
 * caller's, and closed to all others. */
bool job_secret(const char *key_file, uid_t keeper, uint32_t array, uid_t user,
                char secret[JOB_SECRET_SIZE], char error[JOB_SECRET_ERROR]);

#endif
