#include "script_paths.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BLANKS " \t\r\n\v\f"
#define MAX_LINES 10000

static bool is_of_name(char byte)
{
    return isalnum((unsigned char)byte) || byte == '_';
}

/* What stands behind a whole word that the text begins with; NULL: it does not. */
static const char *behind_word(const char *text, const char *word)
{
    size_t length = strlen(word);

    return strncmp(text, word, length) == 0 && !is_of_name(text[length]) ? text + length : NULL;
}

static bool begins_with_any(const char *text, const char *const *words)
{
    for (; *words != NULL; words++)
        if (behind_word(text, *words) != NULL)
            return true;
    return false;
}

static bool is_job_id(const char *word, const char *at)
{
    static const char *const NAMES[] = {"SLURM_JOB_ID", "SLURM_JOBID", NULL};

    if (at[0] != '$' || (at - word >= 2 && strncmp(at - 2, ":-", 2) == 0))
        return false;
    return begins_with_any(at + (at[1] == '{' ? 2 : 1), NAMES);
}

static bool is_time(const char *at)
{
    if (at[0] != '`' && strncmp(at, "$(", 2) != 0)
        return false;
    at += at[0] == '`' ? 1 : 2;
    return behind_word(at + strspn(at, BLANKS), "date") != NULL;
}

/* The kind of the first part of a word that changes; CHANGING_KINDS: none does. */
static enum changing find_changing(const char *word)
{
    for (const char *at = word; at[0] != '\0'; at++)
        if (is_job_id(word, at))
            return JOB_ID;
        else if (is_time(at))
            return THE_TIME;
    return CHANGING_KINDS;
}

/* The node's own disk or memory: no script resumes from there. */
static bool is_on_the_node(const char *word)
{
    static const char *const FOLDERS[] = {"/tmp", "/var/tmp", "/dev/shm", NULL};
    static const char *const VARIABLES[] = {"TMPDIR", "SLURM_TMPDIR", NULL};
    size_t length = strcspn(word, "/");

    for (size_t i = 0; i < length; i++)
        if (word[i] == '$' && begins_with_any(word + i + (word[i + 1] == '{' ? 2 : 1), VARIABLES))
            return true;
    return begins_with_any(word + length, FOLDERS);
}

/* RUN_DIR=run-$SLURM_JOB_ID, --save-path=...: a variable or an option for a folder or file. */
static bool names_a_path(const char *word)
{
    static const char *const ENDS[] = {"dir", "directory", "folder", "path", "root", "out", "output",
                                       "ckpt", "checkpoint", "checkpoints", "save", NULL};
    size_t length = 0;

    while (is_of_name(word[length]) || word[length] == '-')
        length++;
    for (size_t i = 0; word[length] == '=' && ENDS[i] != NULL; i++)
        if (strlen(ENDS[i]) <= length &&
            strncasecmp(word + length - strlen(ENDS[i]), ENDS[i], strlen(ENDS[i])) == 0)
            return true;
    return false;
}

/* --rdzv_id, --master-port, --job-name and the like. */
static bool is_name_of_a_run(const char *word)
{
    static const char *const FIRST[] = {"--rdzv", "--master", "--job", "--run", NULL};
    static const char *const SECOND[] = {"id", "name", "port", "addr", "endpoint", NULL};

    for (size_t i = 0; FIRST[i] != NULL; i++) {
        const char *at = strstr(word, FIRST[i]);

        if (at == NULL)
            continue;
        at += strlen(FIRST[i]);
        if (begins_with_any(at + (at[0] == '-' || at[0] == '_'), SECOND))
            return true;
    }
    return strstr(word, "://") != NULL;
}

/* One word of a shell, with quoted parts and $(...), which may have spaces in them. */
static size_t word_length(const char *text)
{
    const char *at = text;

    while (at[0] != '\0') {
        const char *end = strchr("\"'`", at[0]) != NULL       ? strchr(at + 1, at[0])
                          : strncmp(at, "$(", 2) == 0 ? strchr(at, ')')
                                                      : NULL;

        if (end == NULL && strchr(BLANKS ";|&<>\"'`", at[0]) != NULL)
            break;
        at = end != NULL ? end + 1 : at + 1;
    }
    return (size_t)(at - text);
}

/* Removes a comment from a line; returns true if the line only prints. */
static bool prints_only(char *line)
{
    static const char *const PRINTING[] = {"echo",  "printf", "logger",  "scontrol", "squeue",
                                           "sacct", "seff",   "scancel", "sstat",    NULL};

    for (char *at = line; (at = strchr(at, '#')) != NULL; at++)
        if (at == line || isspace((unsigned char)at[-1])) {
            at[0] = '\0';
            break;
        }
    return begins_with_any(line + strspn(line, BLANKS), PRINTING);
}

static void look_at(char *line, unsigned number, unsigned lines[CHANGING_KINDS])
{
    while (line[0] != '\0') {
        size_t length = word_length(line);
        char behind = line[length];
        enum changing found;

        line[length] = '\0';
        found = find_changing(line);
        if (found != CHANGING_KINDS && lines[found] == 0 &&
            (strchr(line, '/') != NULL || names_a_path(line)) && !is_on_the_node(line) &&
            !is_name_of_a_run(line))
            lines[found] = number;
        line[length] = behind;
        line += length > 0 ? length : 1;
    }
}

/* Where the line sets PYTHONPATH without its old value; NULL: nowhere. */
static const char *sets_python_path_anew(const char *line)
{
    for (const char *at = line; (at = strstr(at, "PYTHONPATH=")) != NULL; at++) {
        const char *old = at;

        if (at != line && (is_of_name(at[-1]) || at[-1] == '$'))
            continue;
        while ((old = strchr(old, '$')) != NULL &&
               behind_word(old + (old[1] == '{' ? 2 : 1), "PYTHONPATH") == NULL)
            old++;
        if (old == NULL)
            return at;
    }
    return NULL;
}

const char *script_find_word(const char *text, const char *word)
{
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        if ((at == text || !is_of_name(at[-1])) && behind_word(at, word) != NULL)
            return at;
    return NULL;
}

/* srun puts our package into PYTHONPATH again, unless PYTHONPATH is set after it. */
struct python_path {
    unsigned behind_srun;
    unsigned elsewhere;
    bool has_srun;
};

static void look_for_python_path(const char *line, unsigned number, struct python_path *found)
{
    const char *anew = sets_python_path_anew(line);
    const char *srun = script_find_word(line, "srun");
    unsigned *first = srun != NULL && srun < anew ? &found->behind_srun : &found->elsewhere;

    if (anew != NULL && *first == 0)
        *first = number;
    found->has_srun |= srun != NULL;
}

void script_paths_find(FILE *script, unsigned lines[CHANGING_KINDS])
{
    struct python_path found = {0};
    char *line = NULL;
    size_t capacity = 0;

    memset(lines, 0, CHANGING_KINDS * sizeof(lines[0]));
    for (unsigned number = 1; number <= MAX_LINES && getline(&line, &capacity, script) >= 0; number++) {
        if (prints_only(line))
            continue;
        look_for_python_path(line, number, &found);
        look_at(line, number, lines);
    }
    free(line);
    lines[PYTHON_PATH] = found.behind_srun > 0 || found.has_srun ? found.behind_srun : found.elsewhere;
}
