/*
 * The secret of one trainer at a site without MUNGE: the HMAC-SHA-256, with the site's key, of its
 * array and user. The keeper computes the same (secret_of_job in keeper/credentials.py).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SECRET_BYTES 32
#define JOB_SECRET_SIZE (2 * SECRET_BYTES + 1) /* in hexadecimal digits */
#define JOB_SECRET_ERROR 256

void secret_write(const unsigned char bytes[SECRET_BYTES], char text[JOB_SECRET_SIZE]);

/* Returns false with the reason in `error`. The key's file must belong to root, the keeper or the
 * caller, and nobody else may read it. */
bool job_secret(const char *key_file, uid_t keeper, uint32_t array, uid_t user,
                char secret[JOB_SECRET_SIZE], char error[JOB_SECRET_ERROR]);
