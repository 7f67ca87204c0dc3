/*
 * Edits the folders in a PYTHONPATH as text; looks nothing up and runs nothing.
 */
#ifndef BFTRAINER_PYTHON_PATH_H
#define BFTRAINER_PYTHON_PATH_H

/*
 * Returns `path` (empty: not set) with `folder` in front, unless it has it. NULL: no memory. The caller
 * frees the result of both functions.
 */
char *python_path_with(const char *path, const char *folder);

/* Returns `path` without `folder`, wherever it is. NULL: no memory. */
char *python_path_without(const char *path, const char *folder);

#endif
