/*
 * A user's PYTHONPATH, any bytes. After our folder is added, it is there; after it is removed again, it is
 * gone, and nothing else has changed.
 */
#include "../python_path.h"
#include "fuzz.h"

#define FOLDER "/opt/py"

static bool has_folder(const char *path)
{
    for (const char *entry = path;; entry = strchr(entry, ':') + 1) {
        size_t length = strcspn(entry, ":");

        if (length == strlen(FOLDER) && strncmp(entry, FOLDER, length) == 0)
            return true;
        if (entry[length] == '\0')
            return false;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *path = text_of(data, size);
    char *with = python_path_with(path, FOLDER);
    char *without = python_path_without(with, FOLDER);

    PROMISE(with != NULL && has_folder(with));
    PROMISE(without != NULL && !has_folder(without));
    if (!has_folder(path))
        PROMISE(strcmp(without, path) == 0);
    free(without);
    free(with);
    free(path);
    return 0;
}
