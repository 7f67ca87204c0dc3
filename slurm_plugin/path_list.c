#include "python_path.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The entry after this one, NULL after the last. */
static const char *next(const char *entry)
{
    const char *colon = strchr(entry, ':');

    return colon != NULL ? colon + 1 : NULL;
}

static bool is_folder(const char *entry, const char *folder)
{
    size_t length = strcspn(entry, ":");

    return length == strlen(folder) && strncmp(entry, folder, length) == 0;
}

char *python_path_with(const char *path, const char *folder)
{
    char *result = NULL;

    if (path[0] == '\0')
        return strdup(folder); /* an empty entry would mean the working folder */
    for (const char *entry = path; entry != NULL; entry = next(entry))
        if (is_folder(entry, folder))
            return strdup(path);
    return asprintf(&result, "%s:%s", folder, path) < 0 ? NULL : result;
}

char *python_path_without(const char *path, const char *folder)
{
    char *result = malloc(strlen(path) + 2); /* each entry with a colon behind it */
    size_t used = 0;

    if (result == NULL)
        return NULL;
    for (const char *entry = path; entry != NULL; entry = next(entry)) {
        size_t length = strcspn(entry, ":");

        if (is_folder(entry, folder))
            continue;
        memcpy(result + used, entry, length);
        used += length;
        result[used++] = ':';
    }
    result[used > 0 ? used - 1 : 0] = '\0';
    return result;
}
