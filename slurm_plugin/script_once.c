#include "script_once.h"

#include "script_paths.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_SCRIPT (1 << 20) /* bytes; the rest is ignored */

/* A node's own disks and memory, and how scripts name them. */
static const struct {
    const char *word;
    const char *folder;
} OWN[] = {
    {"/tmp", "/tmp"},           {"TMPDIR", "/tmp"},           {"SLURM_TMPDIR", "/tmp"},
    {"LOCAL_SCRATCH", "/tmp"},  {"LSCRATCH", "/tmp"},         {"JOBFS", "/tmp"},
    {"sbcast", "/tmp"},         {"/var/tmp", "/var/tmp"},     {"/dev/shm", "/dev/shm"},
    {"/local", "/local"},       {"/lscratch", "/lscratch"},   {"/localscratch", "/localscratch"},
    {"/local_scratch", "/local_scratch"},
};

/* All nodes see the job's working folder, and so everything on the same file system. */
static bool is_own(const char *folder)
{
    struct stat there;
    struct stat here;

    return stat(folder, &there) == 0 && stat(".", &here) == 0 && there.st_dev != here.st_dev;
}

static bool uses_own(const char *text)
{
    for (size_t i = 0; i < sizeof(OWN) / sizeof(OWN[0]); i++)
        if (script_find_word(text, OWN[i].word) != NULL && is_own(OWN[i].folder))
            return true;
    return false;
}

/* The text without comment lines, for the caller to free; NULL: it cannot be read. */
static char *read_without_remarks(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = file != NULL ? malloc(MAX_SCRIPT + 1) : NULL;
    size_t length = text != NULL ? fread(text, 1, MAX_SCRIPT, file) : 0;

    if (file != NULL)
        fclose(file);
    if (text == NULL)
        return NULL;
    text[length] = '\0';
    for (char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += strspn(line, " \t\r\n");
        if (line[0] == '#')
            memset(line, ' ', strcspn(line, "\n"));
    }
    return text;
}

const char *script_runs_on_each(const char *path)
{
    char *text = read_without_remarks(path);
    const char *why = NULL;

    if (text == NULL || script_find_word(text, "srun") == NULL)
        why = "has no srun";
    else if (script_find_word(text, "BFTRAINER_FIRST") != NULL)
        why = "asks for BFTRAINER_FIRST";
    else if (uses_own(text))
        why = "uses a node's own disk (/tmp, $TMPDIR or the like)";
    free(text);
    return why;
}
