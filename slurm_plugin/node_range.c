#include "node_range.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ARGUMENTS 4096
#define MAX_LINE_OPTIONS 64
#define MAGIC "#SBATCH"
#define BLANKS " \t\r\n"
/* sbatch's short options without a value, which may stand before the N, as in -QN2-4. */
#define FLAGS "HOQWhksuv"

/* The value of -N or --nodes in a list of options; the last one counts. NULL: not there. */
static const char *find(char *const *options, int count)
{
    const char *found = NULL;

    for (int i = 0; i < count; i++) {
        const char *option = options[i];
        const char *value = NULL;

        if (strncmp(option, "--nodes=", 8) == 0)
            value = option + 8;
        else if (strcmp(option, "--nodes") == 0)
            value = "";
        else if (option[0] == '-' && option[1 + strspn(option + 1, FLAGS)] == 'N')
            value = option + 2 + strspn(option + 1, FLAGS);
        if (value != NULL && value[0] == '\0' && i + 1 < count)
            value = options[++i];
        if (value != NULL)
            found = value;
    }
    return found;
}

static bool copy_found(char *const *options, int count, char *range, size_t size)
{
    const char *found = find(options, count);

    return found != NULL && snprintf(range, size, "%s", found) < (int)size;
}

/* True for a line that ends the part of a script in which sbatch looks for #SBATCH. */
static bool is_command(const char *line)
{
    line += strspn(line, BLANKS);
    return line[0] != '\0' && line[0] != '#';
}

static bool find_in_script(FILE *script, char *range, size_t size)
{
    char *line = NULL;
    size_t capacity = 0;
    bool found = false;

    while (getline(&line, &capacity, script) >= 0 && !is_command(line)) {
        char *options[MAX_LINE_OPTIONS];
        int count = 0;
        char *rest = NULL;

        if (strncmp(line, MAGIC, strlen(MAGIC)) != 0)
            continue;
        for (char *option = strtok_r(line + strlen(MAGIC), BLANKS, &rest);
             option != NULL && option[0] != '#' && count < MAX_LINE_OPTIONS;
             option = strtok_r(NULL, BLANKS, &rest))
            options[count++] = option;
        found |= copy_found(options, count, range, size);
    }
    free(line);
    return found;
}

/* sbatch has read its standard input; a file there can be read once more from its beginning. */
static FILE *open_script(const char *path)
{
    struct stat status;

    if (path != NULL)
        return fopen(path, "re");
    if (fstat(STDIN_FILENO, &status) != 0 || !S_ISREG(status.st_mode))
        return NULL;
    return fopen("/proc/self/fd/0", "re");
}

/* This process's arguments, as one block that the list points into; NULL when unreadable. */
static char *read_arguments(char *arguments[MAX_ARGUMENTS + 1], int *count)
{
    FILE *file = fopen("/proc/self/cmdline", "re");
    char *block = NULL;
    size_t capacity = 0;
    ssize_t length;

    *count = 0;
    if (file == NULL)
        return NULL;
    length = getdelim(&block, &capacity, EOF, file);
    fclose(file);
    for (ssize_t at = 0; at < length && *count < MAX_ARGUMENTS; at += strlen(block + at) + 1)
        arguments[(*count)++] = block + at;
    arguments[*count] = NULL;
    return block;
}

bool node_range_written(char *range, size_t size)
{
    char *arguments[MAX_ARGUMENTS + 1];
    int count;
    char *block = read_arguments(arguments, &count);
    bool found = false;
    FILE *script;

    /* getopt has left optind at the script's name, or behind the last option. */
    if (block != NULL && optind >= 1 && optind <= count) {
        found = copy_found(arguments + 1, optind - 1, range, size);
        script = found ? NULL : open_script(arguments[optind]);
        if (script != NULL) {
            found = find_in_script(script, range, size);
            fclose(script);
        }
    }
    free(block);
    return found;
}
