#include "keeper_secret.h"

#include "keeper_note.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define KEY_SIZE 32 /* the secret's, in bytes */

/* munge.h: MUNGE_OPT_*, MUNGE_CIPHER_AES128. */
enum { OPTION_CIPHER = 0, OPTION_SOCKET = 8, OPTION_READER = 9, AES_128 = 4 };

/* As munge.h declares them. Loaded only where an element starts: see job_secret.c. */
struct munge {
    void *(*create)(void);
    int (*set)(void *context, int option, ...);
    int (*encode)(char **credential, void *context, const void *text, int length);
    void (*destroy)(void *context);
};

static bool load(struct munge *munge)
{
    void *library = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        return false;
    *(void **)&munge->create = dlsym(library, "munge_ctx_create");
    *(void **)&munge->set = dlsym(library, "munge_ctx_set");
    *(void **)&munge->encode = dlsym(library, "munge_encode");
    *(void **)&munge->destroy = dlsym(library, "munge_ctx_destroy");
    return munge->create != NULL && munge->set != NULL && munge->encode != NULL &&
           munge->destroy != NULL;
}

/* To be freed; NULL if munged makes none. */
static char *credential_for(const char *text, const char *socket, uid_t reader)
{
    struct munge munge;
    char *credential = NULL;
    void *context;

    if (!load(&munge) || (context = munge.create()) == NULL)
        return NULL;
    if (munge.set(context, OPTION_READER, reader) != 0 ||
        munge.set(context, OPTION_CIPHER, AES_128) != 0 ||
        (socket[0] != '\0' && munge.set(context, OPTION_SOCKET, socket) != 0) ||
        munge.encode(&credential, context, text, (int)strlen(text)) != 0) {
        free(credential);
        credential = NULL;
    }
    munge.destroy(context);
    return credential;
}

static void write_hex(const unsigned char *bytes, char text[JOB_SECRET_SIZE])
{
    for (size_t i = 0; i < KEY_SIZE; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

/* The answer is "secret HEX", covered with the key. */
static bool uncover(const char *answer, unsigned char key[KEY_SIZE], char secret[JOB_SECRET_SIZE])
{
    const char *hex = answer + strlen("secret ");

    if (strncmp(answer, "secret ", strlen("secret ")) != 0 ||
        strspn(hex, "0123456789abcdef") != JOB_SECRET_SIZE - 1 || hex[JOB_SECRET_SIZE - 1] != '\0')
        return false;
    for (size_t i = 0; i < KEY_SIZE; i++) {
        unsigned byte;

        sscanf(hex + 2 * i, "%2x", &byte);
        key[i] ^= (unsigned char)byte;
    }
    write_hex(key, secret);
    return true;
}

bool keeper_secret(const char *keeper, const char *socket, uid_t keeper_user, uint32_t array,
                   char secret[JOB_SECRET_SIZE])
{
    struct keeper_addresses unused;
    unsigned char key[KEY_SIZE];
    char text[JOB_SECRET_SIZE + 64];
    char line[KEEPER_LINE];
    char answer[KEEPER_LINE];
    char *credential;
    bool good;

    if (getrandom(key, sizeof(key), 0) != sizeof(key))
        return false;
    write_hex(key, text);
    snprintf(text + JOB_SECRET_SIZE - 1, 64, " bftrainer secret %u", array);
    credential = credential_for(text, socket, keeper_user);
    good = credential != NULL &&
           snprintf(line, sizeof(line), "secret %u %s", array, credential) < (int)sizeof(line) &&
           keeper_ask(keeper, line, answer, sizeof(answer), &unused) &&
           uncover(answer, key, secret);
    free(credential);
    explicit_bzero(key, sizeof(key));
    return good;
}
