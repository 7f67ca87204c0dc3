#include "path_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The entry after this one, NULL after the last. */
static const char *next(const char *entry, char separator)
{
    const char *end = strchr(entry, separator);

    return end != NULL ? end + 1 : NULL;
}

static bool is_path(const char *entry, char separator, const char *path)
{
    size_t length = strlen(path);

    return strncmp(entry, path, length) == 0 &&
           (entry[length] == separator || entry[length] == '\0');
}

char *path_list_with(const char *list, char separator, const char *path, bool in_front)
{
    char *result = NULL;

    if (list[0] == '\0')
        return strdup(path); /* to Python an empty entry would be the working folder */
    for (const char *entry = list; entry != NULL; entry = next(entry, separator))
        if (is_path(entry, separator, path))
            return strdup(list);
    return asprintf(&result, "%s%c%s", in_front ? path : list, separator, in_front ? list : path) < 0
               ? NULL
               : result;
}

char *path_list_without(const char *list, char separator, const char *path)
{
    char *result = malloc(strlen(list) + 2); /* each entry with a separator behind it */
    size_t used = 0;

    if (result == NULL)
        return NULL;
    for (const char *entry = list; entry != NULL; entry = next(entry, separator)) {
        size_t length = strchrnul(entry, separator) - entry;

        if (is_path(entry, separator, path))
            continue;
        memcpy(result + used, entry, length);
        used += length;
        result[used++] = separator;
    }
    result[used > 0 ? used - 1 : 0] = '\0';
    return result;
}
