/*
 * Edits lists of paths as text, like PYTHONPATH; looks nothing up and runs nothing.
 */
#pragma once

#include <stdbool.h>

/*
 * Returns `list` (empty: not set) with `path` in front, or else behind, unless it has it. NULL: no memory.
 * The caller frees the result of both functions.
 */
char *path_list_with(const char *list, char separator, const char *path, bool in_front);

/* Returns `list` without `path`, wherever it is. NULL: no memory. */
char *path_list_without(const char *list, char separator, const char *path);
