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

static hash_function *sha256;
static hmac_function *hmac; /* loaded as root: in a container there may be another one */

static bool load(void)
{
    void *library = NULL;

    for (size_t i = 0; library == NULL && i < sizeof(LIBRARIES) / sizeof(LIBRARIES[0]); i++)
        library = dlopen(LIBRARIES[i], RTLD_NOW | RTLD_LOCAL);
    if (hmac == NULL && library != NULL) {
        sha256 = (hash_function *)dlsym(library, "EVP_sha256");
        hmac = (hmac_function *)dlsym(library, "HMAC");
    }
    return sha256 != NULL && hmac != NULL;
}

static bool hmac_in_hex(const char *key, size_t key_size, const char *text, char hex[SECRET_SIZE])
{
    unsigned char result[SECRET_BYTES];
    unsigned int size = 0;
    bool good = hmac(sha256(), key, (int)key_size, (const unsigned char *)text, strlen(text), result,
                     &size) != NULL &&
                size == SECRET_BYTES;

    if (good)
        hex_write(result, SECRET_BYTES, hex);
    return good;
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

void hex_write(const unsigned char *bytes, size_t count, char *hex)
{
    for (size_t i = 0; i < count; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
}

bool secret_prove(const char *secret, const char *what, char proof[SECRET_SIZE])
{
    return hmac != NULL && hmac_in_hex(secret, strlen(secret), what, proof);
}

bool job_secret(const char *key_file, uid_t keeper, uint32_t array, uid_t user,
                char secret[SECRET_SIZE], char error[JOB_SECRET_ERROR])
{
    char text[LONGEST_KEY];
    char whose[64];
    const char *key = NULL;
    size_t key_size = 0;
    const char *why = read_key(key_file, keeper, text, &key, &key_size);

    if (why == NULL && !load())
        why = "libcrypto (OpenSSL) cannot be loaded";
    snprintf(whose, sizeof(whose), "bftrainer %u %u", array, (unsigned)user);
    if (why == NULL && !hmac_in_hex(key, key_size, whose, secret))
        why = "libcrypto (OpenSSL) makes no HMAC";
    explicit_bzero(text, sizeof(text));
    if (why != NULL)
        snprintf(error, JOB_SECRET_ERROR, "%s: %s", key_file, why);
    return why == NULL;
}
