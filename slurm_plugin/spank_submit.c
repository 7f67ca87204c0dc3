/*
 * The plugin in sbatch, salloc and srun: takes the option, and in sbatch rewrites the submission.
 * Any error ends the command: a tagged job is submitted only as a trainer.
 */
#include "announce.h"
#include "batch.h"
#include "contexts.h"
#include "environment.h"
#include "keeper_note.h"
#include "namesakes.h"
#include "output_folder.h"
#include "per_node.h"
#include "rewrite.h"
#include "script_paths.h"
#include "torchrun.h"
#include "written.h"

#include <errno.h>
#include <limits.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EXPORT 65536 /* of the value of --export */

static struct request request;
static bool tagged;
static bool rewritten;

static void refuse(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void refuse(const char *format, ...)
{
    char why[2 * REWRITE_ERROR_SIZE];
    va_list values;

    va_start(values, format);
    vsnprintf(why, sizeof(why), format, values);
    va_end(values);
    slurm_error("bftrainer: %s", why);
    exit(1);
}

/* What cli_filter.lua in this process reads about a tagged submission. */
static void tell_filter(const struct site *site)
{
    char canonical[SPEC_SIZE];

    spec_format(&request, canonical, sizeof(canonical));
    setenv(ENV_FILTER_SPEC, canonical, 1);
    setenv(ENV_FILTER_PARTITION, site->partition, 1);
    setenv(ENV_FILTER_QOS, site->qos, 1);
    if (site->share)
        setenv(ENV_FILTER_SHARE, "yes", 1);
    setenv(ENV_FILTER_REFUSED, rewrite_refused_names, 1);
}

static void forget_filter(void)
{
    unsetenv(ENV_FILTER_SPEC);
    unsetenv(ENV_FILTER_PARTITION);
    unsetenv(ENV_FILTER_QOS);
    unsetenv(ENV_FILTER_SHARE);
    unsetenv(ENV_FILTER_REFUSED);
}

/* A job that is submitted in an element is an ordinary job, and a step there just a step. */
void submit_init(const struct site *site)
{
    bool in_element = getenv(ENV_ELEMENT) != NULL;

    if (in_element && spank_context() == S_CTX_LOCAL)
        batch_tell_step();
    forget_filter();
    if (in_element)
        unsetenv(ENV_OPTION);
    if (spank_context() == S_CTX_LOCAL)
        return;
    unsetenv(ENV_PASSED);
    unsetenv(ENV_RENDEZVOUS);
    unsetenv(ENV_CARRIED_RESUME);
    unsetenv(ENV_BATCH);
    if (in_element)
        torchrun_unset(site);
}

int submit_take_option(const struct site *site, const char *text)
{
    char error[SPEC_ERROR_SIZE] = "";

    tagged = false; /* it may be given twice: the last one counts */
    if (spank_context() == S_CTX_LOCAL)
        slurm_error("bftrainer: srun cannot start a trainer; write sbatch --bftrainer -N MIN-MAX");
    else if (site->mistake[0] != '\0')
        slurm_error("bftrainer: the plugstack line is wrong, %s; tell your admin", site->mistake);
    else if (!spec_parse(text, site->max_grace_ms * INT64_C(1000), &request, error))
        slurm_error("--bftrainer: %s", error);
    else
        tagged = true;
    if (!tagged)
        return -1;
    if (site->rewritten_by_filter)
        tell_filter(site);
    return 0;
}

/* Slurm would take a list of node counts, and show it as a range. */
static void check_no_list(const struct written *written)
{
    if (strpbrk(written_value(written, NODES), ",:") != NULL)
        refuse("-N takes one range here, not a list; write -N MIN-MAX, for example -N 2-16, or "
               "--bftrainer=sizes=2:4:8");
}

/*
 * sbatch has meanwhile lowered -N to --ntasks. If the script can no longer be read, only the value that
 * Slurm shows is left, and none after a filter.
 */
static void restore_nodes(slurm_opt_t *options, const struct site *site, struct written *written)
{
    const char *nodes = written_value(written, NODES);

    if (nodes[0] == '\0' && !written->has_script && site->rewritten_by_filter)
        strcpy(written->value[SCRIPT][NODES], "?");
    else if (nodes[0] == '\0' && !written->has_script && options_given(options, "nodes"))
        options_get(options, "nodes", written->value[SCRIPT][NODES], WRITTEN_SIZE);
    else if (nodes[0] != '\0' && !site->rewritten_by_filter)
        options_set(options, "nodes", nodes);
}

/* Options that would contradict an element; a trainer does not need them. */
static void drop_options(slurm_opt_t *options)
{
    static const struct {
        const char *name;
        const char *why; /* NULL: said before */
    } DROPPED[] = {
        {"nodelist", NULL}, /* the record has it; sbatch refuses several for a job of one node */
        {"prefer", "the plan chooses the nodes"},
        {"reservation", "a trainer runs on idle nodes, which belong to no reservation"},
        {"signal", "the limits of elements are short; SIGTERM comes when one has to end"},
    };

    for (size_t i = 0; i < sizeof(DROPPED) / sizeof(DROPPED[0]); i++) {
        char error[REWRITE_ERROR_SIZE];

        if (!options_given(options, DROPPED[i].name))
            continue;
        if (!rewrite_reset(options, DROPPED[i].name, error))
            refuse("%s", error);
        if (DROPPED[i].why != NULL)
            slurm_info("bftrainer: --%s is left out: %s", DROPPED[i].name, DROPPED[i].why);
    }
}

/* Each element counts in slurmctld's job table as soon as it is submitted. */
static void check_size(const struct record *record, const struct site *site)
{
    unsigned size = options_max_array_size();
    unsigned array = size > 0 ? size - 1 : 0; /* without the task that never starts */
    unsigned share = site->max_elements > 0 ? site->max_elements : options_max_job_count() / 10;
    bool by_array = array > 0 && (share == 0 || array < share);
    unsigned limit = by_array ? array : share;

    if (limit == 0 || record->max_nodes <= limit)
        return;
    refuse("-N %u-%u is more than %s; write at most -N %u-%u", record->min_nodes, record->max_nodes,
           by_array ? "this cluster's job arrays allow (MaxArraySize)"
                    : "one trainer may hold of slurmctld's job table here (max_elements)",
           record->min_nodes < limit ? record->min_nodes : limit, limit);
}

/* The text of the table of refusals, with the command to type. */
static void check_no_array(slurm_opt_t *options)
{
    char command[REWRITE_ERROR_SIZE / 2];
    unsigned task;

    if (options_given(options, "array") && !rewrite_one_task(options, &task) &&
        written_as_submit(command, sizeof(command)))
        refuse("a trainer is a job array itself; write %s, which makes a trainer of each task of --array "
               "(or SBATCH_ARRAY_INX)",
               command);
}

static void rewrite_or_exit(slurm_opt_t *options, const struct site *site, struct record *record)
{
    char error[REWRITE_ERROR_SIZE];
    char why[REWRITE_ERROR_SIZE];

    if (!site->rewritten_by_filter) {
        check_no_array(options);
        if (options_given(options, "time-min"))
            slurm_info("bftrainer: --time-min is left out: Slurm may cut a run short anyway");
        if (!rewrite_submission(options, &request, site, error))
            refuse("%s", error);
    }
    if (rewrite_read_back(options, &request, site, record, error))
        return;
    /* A filter does not touch a submission that will be refused. */
    if (!rewrite_may(options, &request, site, record, why))
        refuse("%s", why);
    refuse("the submission was not rewritten (%s); tell your admin", error);
}

/* A list of the record with commas, for people. */
static void add_list(char *line, size_t size, const char *before, const char *list)
{
    size_t length = strlen(line);

    if (list[0] == '\0')
        return;
    text_add(line, size, "%s%s", before, list);
    for (char *colon = line + length; (colon = strchr(colon, ':')) != NULL;)
        *colon = ',';
}

/* What of its nodes the trainer may have, where the site lets it have parts of nodes. */
static void add_part(char *line, size_t size, slurm_opt_t *options, const struct site *site)
{
    if (rewrite_shares(options, site))
        text_add(line, size,
                 ", its GPUs of each; other jobs may have the rest; for whole nodes write --exclusive");
    else if (site->share && rewrite_takes_all_memory(options))
        text_add(line, size, "; whole ones, since --mem=0 asks for all memory of each");
}

/* Prints which nodes this trainer may have. */
static void tell_nodes(slurm_opt_t *options, const struct site *site, const struct record *record)
{
    char line[3 * RECORD_SIZE] = "";
    const struct sizes *sizes = &record->sizes;

    for (unsigned i = 0; i < sizes->count; i++)
        text_add(line, sizeof(line), "%s%u",
                 i == 0 ? "" : i + 1 < sizes->count ? ", " : " or ", sizes->size[i]);
    if (sizes->count == 0 && record->min_nodes < record->max_nodes)
        text_add(line, sizeof(line), "%u to ", record->min_nodes);
    if (sizes->count == 0)
        text_add(line, sizeof(line), "%u", record->max_nodes);
    text_add(line, sizeof(line), " node%s", record->max_nodes > 1 ? "s" : "");
    if (sizes->step > 1)
        text_add(line, sizeof(line), " in steps of %u", sizes->step);
    add_list(line, sizeof(line),
             strchr(record->partitions, ':') != NULL ? " of partitions " : " of partition ",
             record->partitions);
    add_list(line, sizeof(line), ", only ", record->nodes);
    add_part(line, sizeof(line), options, site);
    slurm_info("bftrainer: %s", line);
}

/* A file name in which %a becomes the user's task: Slurm would put the element's task there. */
static bool name_task(const char *name, unsigned task, char *file, size_t size)
{
    size_t length = 0;

    for (const char *at = name; *at != '\0' && length < size; at++) {
        size_t width = at[0] == '%' ? strspn(at + 1, "0123456789") : 0;

        if (at[0] == '%' && at[1] == '%')
            length += (size_t)snprintf(file + length, size - length, "%%%%");
        else if (at[0] == '%' && width < 2 && at[1 + width] == 'a')
            length += (size_t)snprintf(file + length, size - length, "%0*u",
                                       width > 0 ? at[1] - '0' : 1, task);
        else {
            file[length++] = at[0];
            continue;
        }
        at += width + 1;
    }
    if (length >= size)
        return false;
    file[length] = '\0';
    return true;
}

/* The trainer is the one task of the user's own array; its script and files get this task. */
static void be_task(slurm_opt_t *options, const struct record *record)
{
    static const char *const FILES[] = {"input", "output", "error"};

    if (!record->has_task)
        return;
    slurm_info("bftrainer: SLURM_ARRAY_TASK_ID is %u, the one task of --array", record->task);
    for (size_t i = 0; i < sizeof(FILES) / sizeof(FILES[0]); i++) {
        char given[PATH_MAX];
        char file[PATH_MAX];

        if (options_given(options, FILES[i]) &&
            options_get(options, FILES[i], given, sizeof(given)) &&
            name_task(given, record->task, file, sizeof(file)) && strcmp(given, file) != 0)
            options_set(options, FILES[i], file);
    }
}

/* A script that resumes from such a path finds nothing there. */
static void tell_changing_paths(void)
{
    unsigned lines[CHANGING_KINDS];
    FILE *script = written_script();

    if (script == NULL)
        return;
    script_paths_find(script, lines);
    fclose(script);
    if (lines[JOB_ID] > 0)
        slurm_info("bftrainer: line %u has $SLURM_JOB_ID in a path: it is another one on each node and "
                   "at each start; to resume from there, write ${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}, "
                   "which is the trainer's number",
                   lines[JOB_ID]);
    if (lines[THE_TIME] > 0)
        slurm_info("bftrainer: line %u has the time in a path: it is another one on each node and at "
                   "each start; to resume from there, write $SLURM_ARRAY_JOB_ID, the trainer's number",
                   lines[THE_TIME]);
    if (lines[PYTHON_PATH] > 0)
        slurm_info("bftrainer: " SAYS_PYTHON_PATH, lines[PYTHON_PATH]);
}

/* --export=NONE, or a list without ALL, exports only the variables that it names: add this one.
 * (NIL stays unchanged: with it the node also reads no login environment.) */
static void export_no_backend(slurm_opt_t *options)
{
    char given[MAX_EXPORT];
    char longer[MAX_EXPORT + sizeof(ENV_BACKEND) + 1];

    setenv(ENV_BACKEND, NO_BACKEND, 1);
    if (!options_given(options, "export"))
        return;
    options_get(options, "export", given, sizeof(given));
    if (given[0] == '\0')
        refuse("--export is too long to be read; leave it out, or write --export=NONE");
    if (strcasecmp(given, "NIL") == 0 || strcasecmp(given, "ALL") == 0 ||
        strncasecmp(given, "ALL,", 4) == 0)
        return;
    if (strcasecmp(given, "NONE") == 0)
        given[0] = '\0';
    snprintf(longer, sizeof(longer), "%s%s" ENV_BACKEND, given, given[0] != '\0' ? "," : "");
    if (!options_set(options, "export", longer))
        refuse("this Slurm does not let --export be set; tell your admin");
}

static void pass_on(spank_t spank, const char *name, const char *value, const char *what)
{
    if (spank_job_control_setenv(spank, name, value, 1) != ESPANK_SUCCESS)
        refuse("%s cannot be passed on; tell your admin", what);
}

/* What each element needs to know of the record. */
static void pass_numbers(spank_t spank, const struct record *record)
{
    char grace[16];
    char task[16] = "-";
    char text[PASSED_SIZE];

    micros_format(record->spec.grace, grace, sizeof(grace));
    if (record->has_task)
        snprintf(task, sizeof(task), "%u", record->task);
    snprintf(text, sizeof(text), "%u %s %s", record->max_nodes, grace, task);
    pass_on(spank, JOB_CONTROL_PASSED, text, "the trainer's record");
}

void submit_check_or_exit(spank_t spank, const struct site *site)
{
    struct record record;
    struct written written;
    char error[REWRITE_ERROR_SIZE];
    slurm_opt_t *options = options_of_process();

    if (options != NULL && spank_context() == S_CTX_LOCAL && getenv(ENV_ELEMENT) != NULL)
        output_folder_tell(options);
    if (!tagged)
        return;
    if (options == NULL)
        refuse("this Slurm does not let the submission be rewritten; tell your admin");
    if (!options_are_of_sbatch(options))
        refuse("salloc cannot start a trainer; write sbatch --bftrainer -N MIN-MAX");
    if (rewritten)
        refuse("a trainer cannot be part of a heterogeneous job; leave the ':' out");
    written_read(&written);
    check_no_list(&written);
    restore_nodes(options, site, &written);
    rewrite_or_exit(options, site, &record);
    check_size(&record, site);
    if (!per_node_set(options, &written, error) || !namesakes_wait(options, error))
        refuse("%s", error);
    drop_options(options);
    pass_numbers(spank, &record);
    if (request.own_rendezvous)
        pass_on(spank, JOB_CONTROL_RENDEZVOUS, OWN_RENDEZVOUS, "rendezvous=own");
    if (request.no_resume)
        pass_on(spank, ENV_RESUME, NO_RESUME, "resume=no");
    if (request.batch[0] != '\0')
        pass_on(spank, JOB_CONTROL_BATCH, request.batch, "batch=");
    output_folder_check(options);
    tell_nodes(options, site, &record);
    be_task(options, &record);
    tell_changing_paths();
    export_no_backend(options);
    forget_filter();
    rewritten = true;
}

static bool is_sbatch(void)
{
    slurm_opt_t *options = spank_context() == S_CTX_ALLOCATOR ? options_of_process() : NULL;

    return options != NULL && options_are_of_sbatch(options);
}

/*
 * salloc and srun end with their job, so they announce it just before they submit it; the keeper
 * passes that on a moment later. An srun inside a job submits nothing.
 */
void submit_announce(const struct site *site)
{
    if (site->announce[0] != '\0' && getenv("SLURM_JOB_ID") == NULL && !is_sbatch())
        announce_submission(site->announce);
}

/* So the controller need not wait for its next look at the queue. */
void submit_exit(const struct site *site)
{
    /* sbatch gets here after a refusal too; Slurm's message does not say that each element counts. */
    if (rewritten && errno == ESLURM_ACCOUNTING_POLICY)
        slurm_error("bftrainer: limits on jobs (MaxSubmitJobs) count each of a trainer's MAX nodes, "
                    "and one more; write a smaller MAX, or ask your admin for a higher limit");
    else if (rewritten)
        keeper_tell(site->keeper, "submitted");
    else if (site->announce[0] != '\0' && is_sbatch())
        announce_submission(site->announce);
}
