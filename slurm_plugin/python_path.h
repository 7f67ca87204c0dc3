/*
 * Folders in a PYTHONPATH: texts only, nothing is looked up and nothing is run.
 */
#ifndef BFTRAINER_PYTHON_PATH_H
#define BFTRAINER_PYTHON_PATH_H

/*
 * `path` (empty: not set) with `folder` in front, unless it is in it already. NULL: no memory.
 * What both return is to be freed.
 */
char *python_path_with(const char *path, const char *folder);

/* `path` without `folder`, wherever it stands. NULL: no memory. */
char *python_path_without(const char *path, const char *folder);

#endif
