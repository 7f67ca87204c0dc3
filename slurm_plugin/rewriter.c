#include "rewriter.h"

#include "answer.h"
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Every sbatch has read slurm.conf: no request to slurmctld is needed. Slurm does not declare it for plugins. */
extern slurm_conf_t slurm_conf __attribute__((weak));

#define PROGRAM "/bftrainer_slurm/submission/rewrite_program.py"
#define PATH_SIZE (SITE_TEXT + sizeof(PROGRAM))
#define LIMIT_S "10"
#define LOOK_MS 2
#define MAX_ANSWER (1 << 20)
#define FLAGS "-I", "-S", "-B" /* nothing in the user's environment or folders counts */

#define ENV_DOCUMENT "BFTRAINER_FILTER_DOCUMENT"
#define ENV_ANSWER "BFTRAINER_FILTER_ANSWER"
#define ENV_COMMAND "BFTRAINER_FILTER_COMMAND"

#define SAY(...) snprintf(error, REWRITER_ERROR, __VA_ARGS__)
#define FAIL(...) (SAY(__VA_ARGS__), false)

/* What the program reads of a submission. */
static const char *const OPTIONS[] = {
    "array",    "chdir",    "comment",  "constraint",     "cpus-per-gpu",    "dependency",    "error",
    "exclusive", "export",  "gpus",     "gpus-per-node",  "gpus-per-task",   "gres",          "hold",
    "input",    "job-name", "licenses", "mem",            "mem-per-cpu",     "mem-per-gpu",   "nodefile",
    "nodelist", "nodes",    "ntasks",   "ntasks-per-gpu", "ntasks-per-node", "output",        "partition",
    "prefer",   "qos",      "reservation", "signal",      "time",            "time-min",
};

/* Bytes that are no UTF-8 stay as they are: the program knows how Python keeps them. */
static void write_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text != '\0'; text++)
        if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            fprintf(file, "\\u%04x", *text);
        else
            fputc(*text, file);
    fputc('"', file);
}

static FILE *open_document(const struct rewriter *rewriter)
{
    int copy = dup(rewriter->document);
    FILE *file = copy >= 0 ? fdopen(copy, "a") : NULL;

    if (file == NULL && copy >= 0)
        close(copy);
    return file;
}

static void write_beginning(FILE *file, const struct site *site, const char *spec)
{
    bool has_conf = &slurm_conf != NULL;

    fprintf(file, "{\"pid\":%d,\"max_array_size\":%u,\"max_job_count\":%u,\"spec\":", getpid(),
            has_conf ? slurm_conf.max_array_sz : 0, has_conf ? slurm_conf.max_job_cnt : 0);
    write_text(file, spec != NULL ? spec : "");
    fputs(",\"site\":[", file);
    for (int i = 0; i < site->count; i++) {
        fputs(i > 0 ? "," : "", file);
        write_text(file, site->words[i]);
    }
    fputc(']', file);
}

/* getopt has left optind at the script's name, or after the last option. */
static int count_arguments(void)
{
    FILE *file = fopen("/proc/self/cmdline", "re");
    int words = 0;
    int byte;

    if (file == NULL)
        return 0;
    while ((byte = fgetc(file)) != EOF)
        words += byte == '\0';
    fclose(file);
    return words > optind ? words - optind : 0;
}

static bool write_options(FILE *file, slurm_opt_t *options)
{
    const char *before = "";

    fprintf(file, ",\"arguments\":%d,\"options\":{", count_arguments());
    for (size_t i = 0; i < sizeof(OPTIONS) / sizeof(OPTIONS[0]); i++) {
        char *value = options_given(options, OPTIONS[i]) ? options_get(options, OPTIONS[i]) : NULL;

        if (value == NULL)
            continue;
        fprintf(file, "%s\"%s\":", before, OPTIONS[i]);
        write_text(file, value);
        free(value);
        before = ",";
    }
    fputs("}}", file);
    return ferror(file) == 0;
}

bool rewriter_begin(struct rewriter *rewriter, const struct site *site, const char *spec,
                    char error[REWRITER_ERROR])
{
    FILE *file;

    close(rewriter->document); /* the option may be given twice */
    close(rewriter->answer);
    rewriter->document = memfd_create("bftrainer-document", 0);
    rewriter->answer = memfd_create("bftrainer-answer", 0);
    if (rewriter->document < 0 || rewriter->answer < 0 || (file = open_document(rewriter)) == NULL)
        return FAIL("the submission cannot be rewritten: %s", strerror(errno));
    write_beginning(file, site, spec);
    /* A filter's command reads from where we stand; all writing is at the end. */
    return (fclose(file) == 0 && lseek(rewriter->document, 0, SEEK_SET) == 0) ||
           FAIL("the submission cannot be rewritten: %s", strerror(errno));
}

static void name_program(const struct site *site, char path[PATH_SIZE])
{
    const char *folder = site->python[0] != '\0' ? site->python : PYTHON_FOLDER;

    snprintf(path, PATH_SIZE, "%s" PROGRAM, folder);
}

/* Only what names this cluster and its user is passed on, for Slurm's own commands. */
static void become_program(const struct rewriter *rewriter, const struct site *site)
{
    static const char *const PASSED[] = {"SLURM_CONF", "SLURM_JWT"};
    const int kept[] = {rewriter->document, rewriter->answer};
    char *environment[sizeof(PASSED) / sizeof(PASSED[0]) + 1] = {NULL};
    char path[PATH_SIZE];
    int count = 0;

    for (size_t i = 0; i < sizeof(PASSED) / sizeof(PASSED[0]); i++) {
        const char *value = getenv(PASSED[i]);

        if (value != NULL && asprintf(&environment[count], "%s=%s", PASSED[i], value) >= 0)
            count++;
    }
    environment[count] = NULL;
    name_program(site, path);
    process_become_helper("bftrainer-submit", kept, 2);
    if (lseek(rewriter->document, 0, SEEK_SET) != 0 ||
        dup2(rewriter->document, STDIN_FILENO) < 0 || dup2(rewriter->answer, STDOUT_FILENO) < 0)
        _exit(1);
    execle(site->interpreter, site->interpreter, FLAGS, path, (char *)NULL, environment);
    _exit(1);
}

/* Without a look at how it ended: a whole answer is all that counts. */
static bool wait_for(pid_t child)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000};

    for (int left = atoi(LIMIT_S) * 1000 / LOOK_MS; left > 0; left--) {
        if (waitpid(child, NULL, WNOHANG) != 0)
            return true;
        nanosleep(&pause, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return false;
}

bool rewriter_run(const struct rewriter *rewriter, const struct site *site, slurm_opt_t *options,
                  char error[REWRITER_ERROR])
{
    FILE *file = open_document(rewriter);
    bool written = file != NULL && write_options(file, options);
    pid_t child;

    if (file == NULL || fclose(file) != 0 || !written || (child = fork()) < 0)
        return FAIL("the submission cannot be rewritten: %s", strerror(errno));
    if (child == 0)
        become_program(rewriter, site);
    return wait_for(child) ||
           FAIL("%s did not rewrite the submission within " LIMIT_S " s; try again, or tell your admin",
                site->interpreter);
}

/* What an admin has to look at first. */
static void find_cause(const struct site *site, char error[REWRITER_ERROR])
{
    char program[PATH_SIZE];

    name_program(site, program);
    if (access(site->interpreter, X_OK) != 0)
        SAY("the submission was not rewritten: %s (interpreter=) cannot be run (%s); tell your admin",
            site->interpreter, strerror(errno));
    else if (access(program, R_OK) != 0)
        SAY("the submission was not rewritten: %s (python=) cannot be read (%s); tell your admin",
            program, strerror(errno));
    else if (site->rewritten_by_filter)
        SAY("the submission was not rewritten by cli_filter.lua; tell your admin");
    else
        SAY("the submission was not rewritten: '%s -I -S -B %s' gives no answer; tell your admin",
            site->interpreter, program);
}

char *rewriter_answer(const struct rewriter *rewriter, const struct site *site,
                      char error[REWRITER_ERROR])
{
    struct stat status;
    char *answer;

    if (fstat(rewriter->answer, &status) == 0 && status.st_size > 0 && status.st_size < MAX_ANSWER &&
        (answer = malloc((size_t)status.st_size)) != NULL) {
        if (pread(rewriter->answer, answer, (size_t)status.st_size, 0) == status.st_size &&
            answer_is_whole(answer, (size_t)status.st_size))
            return answer;
        free(answer);
    }
    find_cause(site, error);
    return NULL;
}

void rewriter_tell_filter(const struct rewriter *rewriter, const struct site *site)
{
    char program[PATH_SIZE];
    char text[2 * PATH_SIZE + 256];

    snprintf(text, sizeof(text), "/proc/self/fd/%d", rewriter->document);
    setenv(ENV_DOCUMENT, text, 1);
    snprintf(text, sizeof(text), "/proc/self/fd/%d", rewriter->answer);
    setenv(ENV_ANSWER, text, 1);
    name_program(site, program);
    snprintf(text, sizeof(text),
             "exec timeout " LIMIT_S " env -i ${SLURM_CONF+\"SLURM_CONF=$SLURM_CONF\"} "
             "${SLURM_JWT+\"SLURM_JWT=$SLURM_JWT\"} '%s' -I -S -B '%s' "
             "<&%d >&%d 2> /dev/null",
             site->interpreter, program, rewriter->document, rewriter->answer);
    setenv(ENV_COMMAND, text, 1);
}

void rewriter_forget_filter(void)
{
    unsetenv(ENV_DOCUMENT);
    unsetenv(ENV_ANSWER);
    unsetenv(ENV_COMMAND);
}
