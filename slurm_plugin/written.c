#include "written.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ARGUMENTS 4096
#define MAX_LINE_OPTIONS 64
#define MAGIC "#SBATCH"
#define BLANKS " \t\r\n"
/* sbatch's short options without a value; N may follow in the same word: -QN2-4. */
#define FLAGS "HOQWhksuv"

static const struct {
    const char *name;
    char letter; /* NUL: none */
} OPTIONS[WRITTEN_OPTIONS] = {
    [NODES] = {"nodes", 'N'},
    [NTASKS] = {"ntasks", 'n'},
    [NTASKS_PER_NODE] = {"ntasks-per-node", '\0'},
    [GPUS] = {"gpus", 'G'},
};

/* What stands behind an option's name in a word: its value, "" if that is the next word; else NULL. */
static const char *behind(const char *word, enum written_option option)
{
    const char *name = OPTIONS[option].name;
    size_t length = strlen(name);
    size_t flags;

    if (strncmp(word, "--", 2) == 0) {
        if (strncmp(word + 2, name, length) != 0)
            return NULL;
        word += 2 + length;
        return word[0] == '=' ? word + 1 : word[0] == '\0' ? word : NULL;
    }
    if (word[0] != '-' || OPTIONS[option].letter == '\0')
        return NULL;
    flags = 1 + strspn(word + 1, FLAGS);
    return word[flags] == OPTIONS[option].letter ? word + flags + 1 : NULL;
}

/* The value of an option in a list of words; the last one counts. NULL: not there. */
static const char *find(char *const *words, int count, enum written_option option)
{
    const char *found = NULL;

    for (int i = 0; i < count; i++) {
        const char *value = behind(words[i], option);

        if (value != NULL && value[0] == '\0' && i + 1 < count)
            value = words[++i];
        if (value != NULL)
            found = value;
    }
    return found;
}

static void read_words(char *const *words, int count, char values[WRITTEN_OPTIONS][WRITTEN_SIZE])
{
    for (int option = 0; option < WRITTEN_OPTIONS; option++) {
        const char *found = find(words, count, option);

        if (found != NULL && snprintf(values[option], WRITTEN_SIZE, "%s", found) >= WRITTEN_SIZE)
            snprintf(values[option], WRITTEN_SIZE, "?"); /* too long to be one of ours */
    }
}

/* True for a line that ends the part of a script in which sbatch looks for #SBATCH. */
static bool is_command(const char *line)
{
    line += strspn(line, BLANKS);
    return line[0] != '\0' && line[0] != '#';
}

static void read_script(FILE *script, char values[WRITTEN_OPTIONS][WRITTEN_SIZE])
{
    char *line = NULL;
    size_t capacity = 0;

    while (getline(&line, &capacity, script) >= 0 && !is_command(line)) {
        char *words[MAX_LINE_OPTIONS];
        int count = 0;
        char *rest = NULL;

        if (strncmp(line, MAGIC, strlen(MAGIC)) != 0)
            continue;
        for (char *word = strtok_r(line + strlen(MAGIC), BLANKS, &rest);
             word != NULL && word[0] != '#' && count < MAX_LINE_OPTIONS;
             word = strtok_r(NULL, BLANKS, &rest))
            words[count++] = word;
        read_words(words, count, values);
    }
    free(line);
}

/* sbatch has read its standard input; if that is a file, it can be read again. */
static FILE *open_script(const char *path)
{
    struct stat status;

    if (path != NULL)
        return fopen(path, "re");
    if (fstat(STDIN_FILENO, &status) != 0 || !S_ISREG(status.st_mode))
        return NULL;
    return fopen("/proc/self/fd/0", "re");
}

/* This process's arguments: one block, into which the list points; NULL if unreadable. */
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

/* getopt has left optind at the script's name, or after the last option. */
static bool is_parsed(int count)
{
    return optind >= 1 && optind <= count;
}

FILE *written_script(void)
{
    char *arguments[MAX_ARGUMENTS + 1];
    int count;
    char *block = read_arguments(arguments, &count);
    FILE *script = block != NULL && is_parsed(count) ? open_script(arguments[optind]) : NULL;

    free(block);
    return script;
}

void written_read(struct written *written)
{
    char *arguments[MAX_ARGUMENTS + 1];
    int count;
    char *block = read_arguments(arguments, &count);
    FILE *script = written_script();

    *written = (struct written){.has_script = script != NULL};
    if (block != NULL && is_parsed(count))
        read_words(arguments + 1, optind - 1, written->value[COMMAND_LINE]);
    free(block);
    if (script == NULL)
        return;
    read_script(script, written->value[SCRIPT]);
    fclose(script);
}

const char *written_value(const struct written *written, enum written_option option)
{
    const char *first = written->value[COMMAND_LINE][option];

    return first[0] != '\0' ? first : written->value[SCRIPT][option];
}

/* The word as a shell reads it, plain or in single quotes; "" if neither works. */
static const char *quotes_of(const char *word)
{
    const char *quotes = word[0] == '\0' ? "'" : NULL;

    for (const char *at = word; *at != '\0'; at++)
        if (!isprint((unsigned char)*at) || *at == '\'')
            return "";
        else if (!isalnum((unsigned char)*at) && strchr("-_=,.:/+@%", *at) == NULL)
            quotes = "'";
    return quotes;
}

bool written_as_submit(char *command, size_t size)
{
    char *arguments[MAX_ARGUMENTS + 1];
    int count;
    char *block = read_arguments(arguments, &count);
    /* Without a script's name the script came from a pipe. */
    bool is_known = block != NULL && is_parsed(count) && optind < count && count < MAX_ARGUMENTS;
    size_t length = (size_t)snprintf(command, size, "bftrainer submit");

    for (int i = 1; is_known && i < count; i++) {
        const char *quotes = quotes_of(arguments[i]);

        if (i < optind && (strcmp(arguments[i], "--bftrainer") == 0 ||
                           strcmp(arguments[i], "--parsable") == 0))
            continue;
        is_known = quotes == NULL || quotes[0] != '\0';
        if (quotes == NULL)
            quotes = "";
        length += (size_t)snprintf(command + length, size - length, " %s%s%s", quotes, arguments[i],
                                   quotes);
        is_known &= length < size;
    }
    free(block);
    return is_known;
}
