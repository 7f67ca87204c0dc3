/*
 * A user's PYTHONPATH, or another such list, any bytes. After our folder is added, it is there; after it is removed again, it is
 * gone, and nothing else has changed.
 */
#include "../path_list.h"
#include "fuzz.h"

#define FOLDER "/opt/py"

static bool has_folder(const char *path)
{
    char *text = NULL;
    bool has = asprintf(&text, ":%s:", path) > 0 && strstr(text, ":" FOLDER ":") != NULL;

    free(text);
    return has;
}

static void try(const char *path, bool in_front)
{
    char *with = path_list_with(path, ':', FOLDER, in_front);
    char *without = path_list_without(with, ':', FOLDER);

    PROMISE(with != NULL && has_folder(with));
    PROMISE(without != NULL && !has_folder(without));
    if (!has_folder(path))
        PROMISE(strcmp(without, path) == 0);
    free(without);
    free(with);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *path = text_of(data, size);

    try(path, true);
    try(path, false);
    free(path);
    return 0;
}
