#include "numbers.h"
#include "rewrite.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define ARRAY_SIZE 32
#define COMMENT_SIZE 1025 /* with the user's own; Slurm refuses more */

#define DIGITS "0123456789"

/* Options that contradict a trainer, and what to do instead: bftrainer_slurm/slurm/refusals.txt. */
#define REFUSED(name, instead) name " "
const char rewrite_refused_names[] =
#include "refusals.inc"
    ;
#undef REFUSED
#define REFUSED(name, instead) {name, instead},
static const struct {
    const char *name;
    const char *instead;
} REFUSALS[] = {
#include "refusals.inc"
};

bool rewrite_set(slurm_opt_t *options, const char *name, const char *value,
                 char error[REWRITE_ERROR_SIZE])
{
    return options_set(options, name, value) ||
           FAIL("this Slurm does not let --%s be set; tell your admin", name);
}

bool rewrite_reset(slurm_opt_t *options, const char *name, char error[REWRITE_ERROR_SIZE])
{
    return options_reset(options, name) ||
           FAIL("this Slurm does not let --%s be taken away; leave it out", name);
}

/* N or N-N; a limit (%) on one task changes nothing. */
bool rewrite_one_task(slurm_opt_t *options, unsigned *task)
{
    char array[64];
    const char *at;
    unsigned last;

    if (!options_given(options, "array") || !options_get(options, "array", array, sizeof(array)) ||
        (at = number_read(array, task)) == NULL)
        return false;
    last = *task;
    if (at[0] == '-' && (at = number_read(at + 1, &last)) == NULL)
        return false;
    if (at[0] == '%' && strspn(at + 1, DIGITS) > 0)
        at += 1 + strspn(at + 1, DIGITS);
    return at[0] == '\0' && last == *task;
}

static bool check_refused(slurm_opt_t *options, char error[REWRITE_ERROR_SIZE])
{
    unsigned task;

    for (size_t i = 0; i < sizeof(REFUSALS) / sizeof(REFUSALS[0]); i++)
        if (options_given(options, REFUSALS[i].name) &&
            !(strcmp(REFUSALS[i].name, "array") == 0 && rewrite_one_task(options, &task)))
            return FAIL("%s", REFUSALS[i].instead);
    return true;
}

static bool option_is(slurm_opt_t *options, const char *name, const char *wanted)
{
    char value[256];

    options_get(options, name, value, sizeof(value));
    return strcmp(value, wanted) == 0;
}

/* Options that the rewriting does not change. */
static bool check_kept(slurm_opt_t *options, char error[REWRITE_ERROR_SIZE])
{
    char constraint[1024];

    options_get(options, "constraint", constraint, sizeof(constraint));
    if (options_given(options, "constraint") &&
        (constraint[0] == '\0' || strpbrk(constraint, "[](){}*") != NULL))
        return FAIL("a trainer's nodes come one by one; write --constraint as features with & or "
                    "|, without counts, brackets or parentheses");
    return true;
}

static bool check_qos(slurm_opt_t *options, const struct site *site, char error[REWRITE_ERROR_SIZE])
{
    if (site->qos[0] != '\0' && options_given(options, "qos") &&
        !option_is(options, "qos", site->qos))
        return FAIL("trainers run in QOS %s; leave --qos out (and SBATCH_QOS unset) or write "
                    "--qos=%s",
                    site->qos, site->qos);
    return true;
}

/* N and MIN-MAX; Slurm shows N-N as N. */
static bool read_nodes(slurm_opt_t *options, struct record *record,
                       char error[REWRITE_ERROR_SIZE])
{
    char nodes[32];
    char rest;

    options_get(options, "nodes", nodes, sizeof(nodes));
    if (sscanf(nodes, "%7u-%7u%c", &record->min_nodes, &record->max_nodes, &rest) != 2) {
        if (sscanf(nodes, "%7u%c", &record->max_nodes, &rest) != 1)
            return FAIL("-N %s is not a range; write -N MIN-MAX, for example -N 2-16",
                        shown(nodes).text);
        record->min_nodes = 1;
    }
    if (record->max_nodes > MAX_COUNT)
        return FAIL("-N %s: MAX is at most %d", shown(nodes).text, MAX_COUNT);
    if (record->min_nodes < 1 || record->max_nodes < record->min_nodes)
        return FAIL("-N %s: MIN is at least 1 and not above MAX; write for example -N 2-16",
                    shown(nodes).text);
    return true;
}

/* Keeps the sizes that are within the range, which then reaches from the first to the last. */
static bool keep_sizes(const struct sizes *wanted, struct record *record,
                       char error[REWRITE_ERROR_SIZE])
{
    struct sizes *kept = &record->sizes;

    for (unsigned i = 0; i < wanted->count; i++)
        if (wanted->size[i] >= record->min_nodes && wanted->size[i] <= record->max_nodes)
            kept->size[kept->count++] = wanted->size[i];
    if (kept->count == 0)
        return FAIL("no size of sizes= is from %u to %u nodes; write other sizes or another -N",
                    record->min_nodes, record->max_nodes);
    record->min_nodes = kept->size[0];
    record->max_nodes = kept->size[kept->count - 1];
    return true;
}

static bool keep_multiples(unsigned step, struct record *record, char error[REWRITE_ERROR_SIZE])
{
    unsigned least = (record->min_nodes + step - 1) / step * step;
    unsigned most = record->max_nodes / step * step;

    if (least > most)
        return FAIL("step=%u: no multiple of it is from %u to %u nodes; write another step or "
                    "another -N",
                    step, record->min_nodes, record->max_nodes);
    record->min_nodes = least;
    record->max_nodes = most;
    record->sizes.step = step;
    return true;
}

static bool choose_nodes(slurm_opt_t *options, const struct request *request,
                         struct record *record, char error[REWRITE_ERROR_SIZE])
{
    record->sizes = (struct sizes){.step = 1};
    record->min_nodes = 1;
    record->max_nodes = MAX_COUNT;
    if (options_given(options, "nodes")) {
        if (!read_nodes(options, record, error))
            return false;
    } else if (request->sizes.count == 0)
        return FAIL("how many nodes? write -N MAX or -N MIN-MAX, for example -N 2-16");
    if (request->min_nodes > record->max_nodes)
        return FAIL("min=%u is more than the %u nodes of -N; write a smaller min or a larger -N",
                    request->min_nodes, record->max_nodes);
    if (request->min_nodes > 0)
        record->min_nodes = request->min_nodes;
    if (request->sizes.count > 0)
        return keep_sizes(&request->sizes, record, error);
    return keep_multiples(request->sizes.step, record, error);
}

bool rewrite_takes_all_memory(slurm_opt_t *options)
{
    static const char *const NAMES[] = {"mem", "mem-per-cpu"};
    char memory[32];
    unsigned number;

    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
        if (options_given(options, NAMES[i]) && options_get(options, NAMES[i], memory, sizeof(memory)) &&
            sscanf(memory, "%7u", &number) == 1 && number == 0) /* Slurm shows it as 0? */
            return true;
    return false;
}

/* Whether a list, separated by commas, has this name. */
static bool has_name(const char *list, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = list; (at = strstr(at, name)) != NULL; at++)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

/* The allowed nodes: those of the user's partitions, and those that the user names. */
static bool read_places(slurm_opt_t *options, const struct site *site, struct record *record,
                        char error[REWRITE_ERROR_SIZE])
{
    char list[RECORD_SIZE];
    char why[SPEC_ERROR_SIZE];

    record->partitions[0] = record->nodes[0] = '\0';
    record->has_task = rewrite_one_task(options, &record->task);
    options_get(options, "partition", list, sizeof(list));
    if (options_given(options, "partition") && !has_name(list, site->partition) &&
        !record_take_partitions(list, record, why))
        return FAIL("--partition: %s; write names with commas between", why);
    options_get(options, "nodelist", list, sizeof(list));
    if (options_given(options, "nodelist") && !record_take_nodes(list, record, why))
        return FAIL("--nodelist: %s; write it as n[1-3,5], or leave it out", why);
    return true;
}

/* Slurm shows a time limit as [DAYS-]HOURS:MINUTES:SECONDS, rounded up to minutes, or a word. */
static bool read_time(slurm_opt_t *options, struct record *record, char error[REWRITE_ERROR_SIZE])
{
    char limit[64];
    unsigned days;
    unsigned hours;
    unsigned minutes;

    options_get(options, "time", limit, sizeof(limit));
    record->minutes = 0; /* UNLIMITED, or not given: as long as the partition allows */
    if (!options_given(options, "time"))
        return true;
    if (sscanf(limit, "%4u-%2u:%2u:", &days, &hours, &minutes) == 3)
        record->minutes = (days * 24 + hours) * 60 + minutes;
    else if (sscanf(limit, "%2u:%2u:", &hours, &minutes) == 2)
        record->minutes = hours * 60 + minutes;
    if (record->minutes > MAX_COUNT)
        return FAIL("--time is more than %d days; write less, or leave it out: then an element may "
                    "run for as long as the partition allows",
                    MAX_COUNT / 60 / 24);
    return true;
}

/* Distinguishes this job from an earlier job of the same number; a trainer also runs without an id. */
static void draw_id(struct record *record)
{
    unsigned drawn;

    if (getrandom(&drawn, sizeof(drawn), GRND_NONBLOCK) == sizeof(drawn))
        snprintf(record->id, sizeof(record->id), "%08x", drawn);
}

/*
 * The last task of an array to start gets the array's own job id: a requeue by this id would requeue all
 * tasks. So the array has one more task than nodes, and this task never starts.
 */
static void format_array(const struct record *record, char array[ARRAY_SIZE])
{
    snprintf(array, ARRAY_SIZE, "0-%u", record->max_nodes);
}

/* The record, and after it the user's own comment. */
static bool format_comment(slurm_opt_t *options, const struct record *record,
                           char comment[COMMENT_SIZE], char error[REWRITE_ERROR_SIZE])
{
    char text[RECORD_SIZE];
    char own[COMMENT_SIZE];

    if (!record_format(record, text))
        return FAIL("a trainer's record has at most %d characters; write shorter lists for --partition "
                    "and --nodelist",
                    RECORD_SIZE - 1);
    if (options_get(options, "comment", own, sizeof(own)) &&
        snprintf(comment, COMMENT_SIZE, "%s%s%s", text, own[0] != '\0' ? " " : "", own) < COMMENT_SIZE)
        return true;
    return FAIL("--comment is too long: Slurm takes %d characters, and the trainer's record is %zu of "
                "them",
                COMMENT_SIZE - 1, strlen(text) + 1);
}

bool rewrite_shares(slurm_opt_t *options, const struct site *site)
{
    if (!site->share || options_given(options, "exclusive") ||
        options_given(options, "gpus-per-task") || rewrite_takes_all_memory(options))
        return false;
    return options_given(options, "gpus") || numbers_gpus(options, "gpus-per-node", "") > 0 ||
           numbers_gpus(options, "gres", "gpu") > 0;
}

static bool set_all(slurm_opt_t *options, const struct record *record,
                    const struct site *site, char error[REWRITE_ERROR_SIZE])
{
    char array[ARRAY_SIZE];
    char comment[COMMENT_SIZE];
    const struct {
        const char *name;
        const char *value;
    } settings[] = {
        {"nodes", "1"},
        {"array", array},
        {"hold", NULL},
        {"partition", site->partition},
        {"requeue", NULL},
        {"open-mode", "append"},
        {rewrite_shares(options, site) ? NULL : "exclusive", "exclusive"},
        {"time-min", "1"},
        {"comment", comment},
        {site->qos[0] != '\0' ? "qos" : NULL, site->qos},
    };

    format_array(record, array);
    if (!format_comment(options, record, comment, error))
        return false;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        if (settings[i].name != NULL &&
            !rewrite_set(options, settings[i].name, settings[i].value, error))
            return false;
    return true;
}

/* Before the rewriting, while --comment is the user's; the later id counts too. */
static bool check_comment(slurm_opt_t *options, const struct record *record,
                          char error[REWRITE_ERROR_SIZE])
{
    struct record full = *record;
    char comment[COMMENT_SIZE];

    memset(full.id, '0', sizeof(full.id) - 1);
    full.id[sizeof(full.id) - 1] = '\0';
    return format_comment(options, &full, comment, error);
}

bool rewrite_may(slurm_opt_t *options, const struct request *request, const struct site *site,
                 struct record *record, char error[REWRITE_ERROR_SIZE])
{
    return check_kept(options, error) && check_refused(options, error) &&
           check_qos(options, site, error) && choose_nodes(options, request, record, error) &&
           read_places(options, site, record, error) && read_time(options, record, error) &&
           check_comment(options, record, error);
}

bool rewrite_submission(slurm_opt_t *options, const struct request *request,
                        const struct site *site, char error[REWRITE_ERROR_SIZE])
{
    struct record record = {.spec = request->spec};

    if (!rewrite_may(options, request, site, &record, error))
        return false;
    draw_id(&record);
    return set_all(options, &record, site, error);
}

bool rewrite_read_back(slurm_opt_t *options, const struct request *request,
                       const struct site *site, struct record *record,
                       char error[REWRITE_ERROR_SIZE])
{
    char comment[COMMENT_SIZE];
    char array[ARRAY_SIZE];

    options_get(options, "comment", comment, sizeof(comment));
    if (!record_parse(comment, record, error))
        return false;
    format_array(record, array);
    if (record->spec.weight != request->spec.weight || record->spec.grace != request->spec.grace ||
        record->spec.node_hours != request->spec.node_hours ||
        record->sizes.step != request->sizes.step ||
        record->min_nodes < request->min_nodes ||
        !option_is(options, "array", array) || !option_is(options, "nodes", "1") ||
        !option_is(options, "partition", site->partition) ||
        (site->qos[0] != '\0' && !option_is(options, "qos", site->qos)) ||
        !options_given(options, "hold"))
        return FAIL("comment, array, nodes, partition, qos or hold are not what they should be");
    return check_kept(options, error);
}
