#include "output_folder.h"

#include <errno.h>
#include <limits.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The absolute path of an option's file; false if the option names no file. */
static bool file_of(slurm_opt_t *options, const char *name, char path[PATH_MAX])
{
    char said[PATH_MAX];
    char folder[PATH_MAX] = "";

    if (!options_given(options, name))
        return false;
    options_get(options, name, said, sizeof(said));
    if (said[0] == '\0' || said[0] == '/')
        return snprintf(path, PATH_MAX, "%s", said) > 0;
    if (options_given(options, "chdir"))
        options_get(options, "chdir", folder, sizeof(folder));
    if (folder[0] == '\0' && getcwd(folder, sizeof(folder)) == NULL)
        return false;
    return snprintf(path, PATH_MAX, "%s/%s", folder, said) < PATH_MAX;
}

static void check(slurm_opt_t *options, const char *name)
{
    char path[PATH_MAX];
    struct stat found;
    char *end;

    if (!file_of(options, name, path))
        return;
    end = strrchr(path, '/');
    if (end == NULL || end == path)
        return;
    *end = '\0';
    if (strchr(path, '%') != NULL) /* only Slurm can expand it */
        return;
    if (stat(path, &found) != 0 && (errno == ENOENT || errno == ENOTDIR))
        slurm_info("bftrainer: --%s: there is no folder %s on this host; without it no node can "
                   "start the script: mkdir -p it",
                   name, path);
}

void output_folder_check(slurm_opt_t *options)
{
    check(options, "output");
    check(options, "error");
}

void output_folder_tell(slurm_opt_t *options)
{
    char path[PATH_MAX];
    char said[8]; /* srun has no file for these values */

    options_get(options, "output", said, sizeof(said));
    if (strcmp(said, "all") != 0 && strcmp(said, "none") != 0 &&
        file_of(options, "output", path) && strncmp(path, "/dev/", strlen("/dev/")) != 0)
        slurm_info("bftrainer: this step writes to %s", path);
}
