#include "job_secret.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHORTEST_KEY 16
#define LONGEST_KEY 1024

typedef const void *hash_function(void);
typedef unsigned char *hmac_function(const void *hash, const void *key, int key_size,
                                     const unsigned char *text, size_t size, unsigned char *result,
                                     unsigned int *result_size);

/*
 * OpenSSL is loaded only when an element starts. If the plugin were linked with it, an sbatch or an
 * ordinary job that cannot load it would fail.
 */
static const char *const LIBRARIES[] = {"libcrypto.so.3", "libcrypto.so.4", "libcrypto.so.1.1"};

static bool hmac_sha256(const char *key, size_t key_size, const char *text,
                        unsigned char result[SECRET_BYTES])
{
    void *library = NULL;
    hash_function *sha256;
    hmac_function *hmac;
    unsigned int size = 0;

    for (size_t i = 0; library == NULL && i < sizeof(LIBRARIES) / sizeof(LIBRARIES[0]); i++)
        library = dlopen(LIBRARIES[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return false;
    sha256 = (hash_function *)dlsym(library, "EVP_sha256");
    hmac = (hmac_function *)dlsym(library, "HMAC");
    return sha256 != NULL && hmac != NULL &&
           hmac(sha256(), key, (int)key_size, (const unsigned char *)text, strlen(text), result,
                &size) != NULL &&
           size == SECRET_BYTES;
}

/* Like read_secret() in Python: ignores white space around the key. Returns why there is none, or NULL. */
static const char *read_key(const char *path, uid_t keeper, char text[LONGEST_KEY], const char **key,
                            size_t *key_size)
{
    const char *why = NULL;
    struct stat about;
    ssize_t size = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (file < 0)
        return strerror(errno);
    if (fstat(file, &about) != 0)
        why = strerror(errno);
    else if (about.st_uid != 0 && about.st_uid != keeper && about.st_uid != geteuid())
        why = "its owner is another user, who knows the key; run chown root on it";
    else if (!S_ISREG(about.st_mode) || (about.st_mode & 077) != 0)
        why = "others than its owner can open it; run chmod 600 on it";
    else if ((size = read(file, text, LONGEST_KEY)) < 0)
        why = strerror(errno);
    close(file);
    if (why != NULL)
        return why;
    while (size > 0 && isspace((unsigned char)text[size - 1]))
        size--;
    for (*key = text; size > 0 && isspace((unsigned char)**key); size--)
        ++*key;
    *key_size = (size_t)size;
    return size < SHORTEST_KEY ? "it holds no key" : NULL;
}

void secret_write(const unsigned char bytes[SECRET_BYTES], char text[JOB_SECRET_SIZE])
{
    for (size_t i = 0; i < SECRET_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

bool job_secret(const char *key_file, uid_t keeper, uint32_t array, uid_t user,
                char secret[JOB_SECRET_SIZE], char error[JOB_SECRET_ERROR])
{
    char text[LONGEST_KEY];
    char whose[64];
    unsigned char hash[SECRET_BYTES];
    const char *key = NULL;
    size_t key_size = 0;
    const char *why = read_key(key_file, keeper, text, &key, &key_size);
    bool good;

    if (why != NULL) {
        snprintf(error, JOB_SECRET_ERROR, "%s: %s", key_file, why);
        return false;
    }
    snprintf(whose, sizeof(whose), "bftrainer %u %u", array, (unsigned)user);
    good = hmac_sha256(key, key_size, whose, hash);
    explicit_bzero(text, sizeof(text));
    if (good)
        secret_write(hash, secret);
    else
        snprintf(error, JOB_SECRET_ERROR, "libcrypto (OpenSSL) cannot be loaded");
    return good;
}
