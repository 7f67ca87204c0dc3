/*
 * The secret of one trainer: the HMAC-SHA-256, with the site's key, of its array and user. The keeper
 * computes the same (secret_of_job in keeper/credentials.py). And proofs that are made with it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SECRET_BYTES 32
#define SECRET_SIZE (2 * SECRET_BYTES + 1) /* in hexadecimal digits */
#define JOB_SECRET_ERROR 256

void hex_write(const unsigned char *bytes, size_t count, char *hex);

/* Returns false with the reason in `error`. The key's file must belong to root, the keeper or the
 * caller, and nobody else may read it. */
bool job_secret(const char *key_file, uid_t keeper, uint32_t array, uid_t user,
                char secret[SECRET_SIZE], char error[JOB_SECRET_ERROR]);

/* Call after job_secret. */
bool secret_prove(const char *secret, const char *what, char proof[SECRET_SIZE]);
