#include "keeper_secret.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

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

/* The answer is "secret HEX", covered with the key. */
static bool uncover(const char *answer, const unsigned char key[SECRET_BYTES],
                    char secret[JOB_SECRET_SIZE])
{
    const char *hex = answer + strlen("secret ");
    unsigned char bytes[SECRET_BYTES];

    if (strncmp(answer, "secret ", strlen("secret ")) != 0 ||
        strspn(hex, "0123456789abcdef") != JOB_SECRET_SIZE - 1 || hex[JOB_SECRET_SIZE - 1] != '\0')
        return false;
    for (size_t i = 0; i < SECRET_BYTES; i++) {
        unsigned byte;

        sscanf(hex + 2 * i, "%2x", &byte);
        bytes[i] = key[i] ^ (unsigned char)byte;
    }
    secret_write(bytes, secret);
    return true;
}

bool secret_request_make(struct secret_request *request, const char *socket, uid_t keeper_user,
                         uint32_t array)
{
    char text[JOB_SECRET_SIZE + 64];
    char *credential = NULL;
    int length = 0;

    request->line[0] = '\0';
    if (getrandom(request->key, SECRET_BYTES, 0) != SECRET_BYTES)
        return false;
    secret_write(request->key, text);
    snprintf(text + JOB_SECRET_SIZE - 1, 64, " bftrainer secret %u", array);
    credential = credential_for(text, socket, keeper_user);
    if (credential != NULL)
        length = snprintf(request->line, KEEPER_LINE, "secret %u %s", array, credential);
    if (length >= KEEPER_LINE - 1) /* with the newline the keeper takes no more */
        request->line[0] = '\0';
    free(credential);
    return request->line[0] != '\0';
}

bool secret_ask(const char *keeper, const struct secret_request *request,
                char secret[JOB_SECRET_SIZE])
{
    struct keeper_addresses unused;
    char answer[KEEPER_LINE];

    return request->line[0] != '\0' &&
           keeper_ask(keeper, request->line, answer, sizeof(answer), &unused) &&
           uncover(answer, request->key, secret);
}
