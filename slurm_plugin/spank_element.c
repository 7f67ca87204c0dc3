/*
 * The plugin in slurmstepd. It guards all batch scripts and steps in the trainers' partition. For a
 * trainer's elements it also sets torchrun's environment, and tells the keeper that an element has ended.
 */
#include "batch.h"
#include "container.h"
#include "contexts.h"
#include "environment.h"
#include "guard.h"
#include "job_secret.h"
#include "keeper_note.h"
#include "torchrun.h"
#include "words.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <slurm/slurm.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#define NODE_NAME 128
#define A_YEAR_S (365 * 24 * 3600) /* what Slurm takes "no limit" for */
#define JOB_NAME (NODE_NAME + 48) /* of a folder */
_Static_assert(JOB_NAME <= NAME_MAX, "a folder may have no such name");
#define MARKS "/run/bftrainer-guarded/"

/* What user_init reads once, for the task that it forks and for the end of the step. */
static struct {
    bool is_guarded;
    bool is_element; /* guarded too */
    bool is_batch;
    char refusal[512]; /* why it cannot run here; empty if it can */
    struct passed passed; /* an element's */
    unsigned grace_ms;
    uint32_t job;
    uint32_t array;
    uint32_t task;
    char id[32]; /* ARRAY_TASK */
    uint32_t step;
    uint32_t tasks_left;
    char node[NODE_NAME];
    char job_name[JOB_NAME];
    char mark[sizeof(MARKS) + JOB_NAME]; /* exists while a guarded batch script of the job runs here */
    char secret[SECRET_SIZE]; /* the trainer's */
    char no_secret[JOB_SECRET_ERROR]; /* why there is none */
    struct element_life *life;
    struct container container;
} element;

/*
 * slurmstepd's configuration; Slurm does not declare it for plugins. From 22.05 to 26.05 no micro release
 * has changed the type of its x.y.
 */
extern slurm_conf_t slurm_conf __attribute__((weak));

#define GONE_MS 50        /* for a connection to the keeper, when the script has ended */
#define FINISHED "{\"finished\"" /* the keeper's answer, Finished in keeper/messages.py */
#define STEPS_END_MS 1000 /* after the grace, for the remaining steps to end */

static void note(char line[KEEPER_LINE], const char *kind)
{
    snprintf(line, KEEPER_LINE, "%s %u %u %s", kind, element.array, element.task, element.node);
}

/* Still as root: only root may read the site's key. A user who fakes an element's environment gets only
 * the secret of the user's own array. */
void element_make_secret(spank_t spank, const struct site *site)
{
    uid_t keeper = &slurm_conf != NULL ? slurm_conf.slurm_user_id : 0;
    char passed[PASSED_SIZE];
    uint32_t array = 0;
    uid_t user;

    if (spank_getenv(spank, ENV_PASSED, passed, sizeof(passed)) == ESPANK_SUCCESS &&
        spank_get_item(spank, S_JOB_ARRAY_ID, &array) == ESPANK_SUCCESS && array != 0 &&
        spank_get_item(spank, S_JOB_UID, &user) == ESPANK_SUCCESS)
        job_secret(site->key_file, keeper, array, user, element.secret, element.no_secret);
}

/* A host may run nodes of several clusters, each with a job 7. The keeper's addresses distinguish them,
 * but may be longer than NAME_MAX: so the name has their FNV-1a hash. */
static void name_job(const struct site *site)
{
    uint64_t hash = 14695981039346656037u;

    for (const char *at = site->keeper; *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    snprintf(element.job_name, JOB_NAME, "bftrainer-%016llx-%s-%u", (unsigned long long)hash,
             element.node, element.job);
    snprintf(element.mark, sizeof(element.mark), MARKS "%s", element.job_name);
}

/*
 * By partition, or by QOS if the site preempts by QOS. In a batch script these variables come from
 * slurmctld: slurmd sets them after the user's. A step's environment comes from its srun, so a user can
 * hide the partition there. But if the job's batch script is guarded, its steps are, too.
 */
static bool is_where_trainers_are(spank_t spank, const struct site *site)
{
    if (site->qos[0] != '\0' ? variable_is(spank, "SLURM_JOB_QOS", site->qos)
                             : variable_is(spank, "SLURM_JOB_PARTITION", site->partition))
        return true;
    return !element.is_batch && access(element.mark, F_OK) == 0;
}

/* No process of a trainer may run unguarded or without the keeper: see element_start_task. */
static void refuse(const char *why, const char *what)
{
    snprintf(element.refusal, sizeof(element.refusal), why, what);
    slurm_info("bftrainer: job %u_%u is ended: %s", element.array, element.task, element.refusal);
}

static bool is_of_trainer(spank_t spank, const struct site *site)
{
    char text[PASSED_SIZE] = "";
    spank_err_t read = spank_getenv(spank, ENV_PASSED, text, sizeof(text));

    if (read == ESPANK_ENV_NOEXIST ||
        spank_get_item(spank, S_JOB_ARRAY_ID, &element.array) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_ARRAY_TASK_ID, &element.task) != ESPANK_SUCCESS ||
        element.array == 0 || element.task == NO_VAL)
        return false;
    if (site->mistake[0] != '\0')
        refuse("this node's plugstack line is wrong, %s; tell your admin", site->mistake);
    else if (read != ESPANK_SUCCESS || !passed_parse(text, &element.passed))
        refuse("what sbatch has passed on is wrong: '%s'; what an older plugin submitted has to be submitted again",
               shown(text).text);
    if (element.refusal[0] == '\0' && element.passed.has_task && !element.is_batch &&
        spank_getenv(spank, ENV_TASK, text, sizeof(text)) == ESPANK_SUCCESS)
        element.task = (unsigned)strtoul(text, NULL, 10);
    snprintf(element.id, sizeof(element.id), "%u_%u", element.array, element.task);
    return element.refusal[0] == '\0';
}

/* What the trainer has; `bftrainer submit`, or another user, may ask for it in the environment. */
static unsigned allowed_grace(spank_t spank, const struct site *site)
{
    char text[32];
    unsigned grace_ms = DEFAULT_GRACE_MS;

    if (element.is_element)
        grace_ms = element.passed.grace_ms;
    else if (spank_getenv(spank, ENV_GRACE, text, sizeof(text)) == ESPANK_SUCCESS)
        milliseconds_parse(text, &grace_ms);
    return grace_ms < site->max_grace_ms ? grace_ms : site->max_grace_ms;
}

/* Whether a step got its element's environment from the batch script. */
static bool has_environment(spank_t spank)
{
    return !element.is_batch && variable_is(spank, ENV_ELEMENT, element.id);
}

void element_recognise(spank_t spank, const struct site *site)
{
    const char *node = getenv("SLURMD_NODENAME"); /* slurmstepd's own environment has it */

    element.is_guarded =
        spank_get_item(spank, S_JOB_ID, &element.job) == ESPANK_SUCCESS &&
        spank_get_item(spank, S_JOB_STEPID, &element.step) == ESPANK_SUCCESS &&
        spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &element.tasks_left) == ESPANK_SUCCESS &&
        node != NULL && snprintf(element.node, sizeof(element.node), "%s", node) > 0;
    element.is_batch = element.step == SLURM_BATCH_SCRIPT;
    name_job(site);
    element.is_element = is_of_trainer(spank, site);
    if (element.is_element && !element.is_guarded)
        refuse("%s; tell your admin", "slurmstepd does not say what it runs");
    element.is_guarded &= element.is_element || is_where_trainers_are(spank, site);
    if (!element.is_guarded)
        return;
    if (element.is_element && element.secret[0] == '\0' && !has_environment(spank))
        refuse("%s; the site's key belongs on each node, and only root reads it: tell your admin",
               element.no_secret);
    element.grace_ms = allowed_grace(spank, site);
    element.life = mmap(NULL, sizeof(*element.life), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (element.life == MAP_FAILED) {
        refuse("its guard gets no memory: %s", strerror(errno));
        element.is_element = element.is_guarded = false;
    }
    /* So all of the user's processes stay descendants of this slurmstepd. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* The keeper's answer, Started in keeper/messages.py. */
static bool read_run(const char *answer, char run[RUN_SIZE], bool *is_first)
{
    char word[8] = "";
    int read = sscanf(answer, "{\"started\":{\"run\":\"%64[A-Za-z0-9._-]\",\"first\":%7[a-z]}}", run,
                      word);

    *is_first = strcmp(word, "true") == 0;
    return read == 2;
}

/* Nothing can train without the keeper, so ask until it answers. A finished training does not begin
 * again: its last elements start only so that Slurm sees each of them complete. */
static bool ask_for_run(const struct site *site, char run[RUN_SIZE])
{
    const char *answer = element.life->keeper.answer;
    char line[KEEPER_LINE];
    char who[16];
    bool told = false;
    bool is_first;

    snprintf(line, sizeof(line), "{\"up\":{\"task\":%u,\"node\":\"%s\"}}", element.task, element.node);
    snprintf(who, sizeof(who), "%u", element.array);
    while (!keeper_ask(site->keeper, who, element.secret, line, &element.life->keeper) ||
           !read_run(answer, run, &is_first)) {
        if (strncmp(answer, FINISHED, strlen(FINISHED)) == 0)
            _exit(0);
        if (!told)
            dprintf(STDERR_FILENO, "bftrainer: the keeper at %s %s%s; waiting for it\n", site->keeper,
                    answer[0] != '\0' ? "says: " : "does not answer", answer);
        told = true;
        sleep(1);
    }
    return is_first;
}

/* Slurm has it since 23.02, by the element's own limit. A trainer has no end. */
static void set_end_time(spank_t spank)
{
    char end[32];

    if (spank_getenv(spank, "SLURM_JOB_END_TIME", end, sizeof(end)) != ESPANK_SUCCESS)
        return;
    snprintf(end, sizeof(end), "%lld", (long long)time(NULL) + A_YEAR_S);
    spank_setenv(spank, "SLURM_JOB_END_TIME", end, 1);
}

/* Variables of sbatch, or of a step that called sbatch, which are wrong in an element. The file of a
 * step's own --output must not be truncated at each start of an element. */
static void correct_batch_environment(spank_t spank)
{
    char tasks[32];

    spank_setenv(spank, "SLURM_OPEN_MODE", "append", 1);
    spank_unsetenv(spank, "SLURM_STEP_ID");
    spank_unsetenv(spank, "SLURM_STEPID");
    if (spank_getenv(spank, "SLURM_NTASKS", tasks, sizeof(tasks)) != ESPANK_SUCCESS)
        return;
    if (spank_getenv(spank, "SLURM_NTASKS_PER_NODE", tasks, sizeof(tasks)) != ESPANK_SUCCESS)
        snprintf(tasks, sizeof(tasks), "1");
    spank_setenv(spank, "SLURM_NTASKS", tasks, 1);
    spank_setenv(spank, "SLURM_NPROCS", tasks, 1);
}

/* The variables of the user's own array task, which this trainer is. */
static void set_user_task(spank_t spank)
{
    static const char *const SAME[] = {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN",
                                       "SLURM_ARRAY_TASK_MAX"};
    char task[16];

    if (!element.passed.has_task)
        return;
    snprintf(task, sizeof(task), "%u", element.task);
    spank_setenv(spank, ENV_TASK, task, 1);
    snprintf(task, sizeof(task), "%u", element.passed.task);
    for (size_t i = 0; i < sizeof(SAME) / sizeof(SAME[0]); i++)
        spank_setenv(spank, SAME[i], task, 1);
    spank_setenv(spank, "SLURM_ARRAY_TASK_COUNT", "1", 1);
    spank_setenv(spank, "SLURM_ARRAY_TASK_STEP", "1", 1);
}

static void open_container(pid_t task)
{
    char step[32] = "step_batch";

    if (!element.is_batch)
        snprintf(step, sizeof(step), "step_%u", element.step);
    container_open(&element.container, task, element.job_name, step);
}

/* Only root can make or remove it: without root we trust a step's environment. */
static void make_mark(void)
{
    int file;

    mkdir(MARKS, 0755);
    file = open(element.mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (file >= 0)
        close(file);
}

static bool start_guard(void)
{
    char leaving[KEEPER_LINE];
    const struct guard guard = {
        .container = &element.container,
        .grace_ms = element.grace_ms,
        .mark = element.is_batch ? element.mark : NULL,
        .leaving = element.is_batch && element.is_element ? leaving : NULL,
        .life = element.life,
    };

    note(leaving, "leaving");
    return guard_start(&guard);
}

/* Runs in slurmstepd, before its tasks execute the user's programs. */
void element_guard_task(spank_t spank)
{
    pid_t task;

    if (!element.is_guarded || spank_get_item(spank, S_TASK_PID, &task) != ESPANK_SUCCESS)
        return;
    if (element.container.slurmstepd != 0) {
        container_add_task(&element.container, task);
        return;
    }
    if (element.is_batch)
        make_mark();
    open_container(task);
    if (start_guard())
        return;
    slurm_error("bftrainer: job %u is ended because it cannot be guarded: %m", element.job);
    container_kill_step(&element.container);
}

/* Runs in the task's own process, as the user, just before it executes the user's program. */
void element_start_task(spank_t spank, const struct site *site)
{
    char keeper[SITE_TEXT];
    char run[RUN_SIZE];
    char grace[32];
    bool is_first;

    if (element.refusal[0] != '\0') {
        dprintf(STDERR_FILENO, "bftrainer: %s; this element ends\n", element.refusal);
        _exit(EX_CONFIG);
    }
    if (!element.is_element)
        return;
    /*
     * Slurm must be able to end it while it waits here: proctrack/linuxproc signals no "slurmstepd",
     * and slurmstepd's handlers, which 24.11 has for SIGTERM, are gone only with the exec.
     */
    prctl(PR_SET_NAME, "bftrainer-start");
    signal(SIGTERM, SIG_DFL);
    if (element.is_batch)
        correct_batch_environment(spank);
    set_user_task(spank);
    set_end_time(spank);
    if (has_environment(spank)) {
        torchrun_mend(spank, site);
        return;
    }
    is_first = ask_for_run(site, run);
    spank_setenv(spank, ENV_FIRST, is_first ? "1" : "0", 1);
    if (element.is_batch && site->python[0] == '\0')
        dprintf(STDERR_FILENO, "bftrainer: this site has no python= in its plugstack line: torchrun "
                               "needs the package bftrainer-slurm in its Python\n");
    torchrun_set(spank, site, run, element.passed.max_nodes);
    keeper_begin_with(site->keeper, element.life->keeper.answered, keeper);
    spank_setenv(spank, ENV_KEEPER, keeper, 1);
    snprintf(grace, sizeof(grace), "%.9g", element.grace_ms / 1000.0);
    spank_setenv(spank, ENV_GRACE, grace, 1);
    spank_setenv(spank, ENV_JOB_SECRET, element.secret, 1);
    spank_setenv(spank, ENV_ELEMENT, element.id, 1);
    if (element.is_batch)
        batch_take_place(spank, site, is_first && element.passed.max_nodes > 1);
}

/* Whether Slurm wants the node back; that may have killed the script before its guard noticed. */
static bool was_signaled(spank_t spank)
{
    int status = 0;

    if (element.life->is_reclaimed)
        return true;
    return spank_get_item(spank, S_TASK_EXIT_STATUS, &status) == ESPANK_SUCCESS &&
           WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
}

/*
 * Runs in slurmstepd, which will now SIGKILL the processes of the step that it still knows. Others would
 * go on running on a node that belongs to the next job. When a batch script dies of SIGTERM, the steps
 * of its sruns still use their grace.
 */
void element_end_task(spank_t spank)
{
    if (!element.is_guarded || --element.tasks_left > 0)
        return;
    if (element.is_batch && was_signaled(spank))
        container_wait_for_other_steps(&element.container,
                                       (int)element.grace_ms + STEPS_END_MS);
    element.life->is_over = true;
    if (!container_kill_step(&element.container))
        slurm_error("bftrainer: processes of job %u cannot be killed", element.job);
    container_end_helpers(&element.container);
}

void element_exit(void)
{
    char line[KEEPER_LINE];

    if (!element.is_guarded)
        return;
    container_remove(&element.container);
    if (element.is_batch)
        unlink(element.mark);
    if (!element.is_batch || !element.is_element)
        return;
    note(line, "gone");
    keeper_say(&element.life->keeper, line, GONE_MS, -1);
}
