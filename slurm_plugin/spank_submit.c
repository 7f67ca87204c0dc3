/*
 * The plugin in sbatch, salloc and srun: takes the option, and in sbatch carries out what the rewriting
 * program answers. Any error ends the command: a tagged job is submitted only as a trainer.
 */
#include "answer.h"
#include "batch.h"
#include "contexts.h"
#include "environment.h"
#include "keeper_note.h"
#include "rewriter.h"
#include "torchrun.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct rewriter rewriter = {.document = -1, .answer = -1};
static bool tagged;
static bool rewritten;

static void refuse(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void refuse(const char *format, ...)
{
    char why[4096];
    va_list values;

    va_start(values, format);
    vsnprintf(why, sizeof(why), format, values);
    va_end(values);
    slurm_error("bftrainer: %s", why);
    exit(1);
}

/* A job that is submitted in an element is an ordinary job, and a step there just a step. */
void submit_init(const struct site *site)
{
    bool in_element = getenv(ENV_ELEMENT) != NULL;

    if (in_element && spank_context() == S_CTX_LOCAL)
        batch_tell_step();
    rewriter_forget_filter();
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
    char error[REWRITER_ERROR] = "";

    tagged = false; /* it may be given twice: the last one counts */
    if (spank_context() == S_CTX_LOCAL)
        slurm_error("bftrainer: srun cannot start a trainer; write sbatch --bftrainer -N MIN-MAX");
    else if (site->mistake[0] != '\0')
        slurm_error("bftrainer: the plugstack line is wrong, %s; tell your admin", site->mistake);
    else if (!rewriter_begin(&rewriter, site, text, error))
        slurm_error("bftrainer: %s", error);
    else
        tagged = true;
    if (!tagged)
        return -1;
    if (site->rewritten_by_filter)
        rewriter_tell_filter(&rewriter, site);
    return 0;
}

static void set(slurm_opt_t *options, const char *name, const char *value)
{
    if (!options_set(options, name, value))
        refuse("this Slurm does not let --%s be set; tell your admin", name);
}

/* Also after cli_filter.lua: nothing else makes it certain that the job is a trainer. */
static void check(bool is_so, const char *name)
{
    if (!is_so)
        refuse("the submission was not rewritten (--%s is not what it should be); tell your admin",
               name);
}

static void carry_out(spank_t spank, slurm_opt_t *options, const struct site *site,
                      const struct word *word)
{
#define VERB_IS(text) (strcmp(word->verb, text) == 0)
    if (VERB_IS("refuse"))
        refuse("%s", word->value);
    else if (VERB_IS("set") && !site->rewritten_by_filter)
        set(options, word->name, word->value);
    else if (VERB_IS("reset") && !options_reset(options, word->name))
        refuse("this Slurm does not let --%s be taken away; leave it out", word->name);
    else if (VERB_IS("check"))
        check(options_is(options, word->name, word->value), word->name);
    else if (VERB_IS("given"))
        check(options_given(options, word->name), word->name);
    else if (VERB_IS("env"))
        setenv(word->name, word->value, 1);
    else if (VERB_IS("unset"))
        unsetenv(word->name);
    else if (VERB_IS("job") &&
             spank_job_control_setenv(spank, word->name, word->value, 1) != ESPANK_SUCCESS)
        refuse("%s cannot be passed on; tell your admin", word->name);
    else if (VERB_IS("say"))
        slurm_info("bftrainer: %s", word->value);
#undef VERB_IS
}

static void rewrite(spank_t spank, slurm_opt_t *options, const struct site *site)
{
    char error[REWRITER_ERROR];
    struct word word;
    const char *at;
    char *answer;

    if (!site->rewritten_by_filter && !rewriter_run(&rewriter, site, options, error))
        refuse("%s", error);
    answer = rewriter_answer(&rewriter, site, error);
    if (answer == NULL)
        refuse("%s", error);
    for (at = answer; answer_next(&at, &word);)
        carry_out(spank, options, site, &word);
    free(answer);
}

/* In an srun of an element: a step's own file is not the script's. */
static void tell_output(slurm_opt_t *options)
{
    char *file = options_given(options, "output") ? options_get(options, "output") : NULL;
    char *folder = options_given(options, "chdir") ? options_get(options, "chdir") : getcwd(NULL, 0);

    if (file != NULL && folder != NULL && strcmp(file, "all") != 0 && strcmp(file, "none") != 0 &&
        strncmp(file, "/dev/", strlen("/dev/")) != 0)
        slurm_info("bftrainer: this step writes to %s%s%s", file[0] == '/' ? "" : folder,
                   file[0] == '/' ? "" : "/", file);
    free(file);
    free(folder);
}

void submit_check_or_exit(spank_t spank, const struct site *site)
{
    slurm_opt_t *options = options_of_process();

    if (options != NULL && spank_context() == S_CTX_LOCAL && getenv(ENV_ELEMENT) != NULL)
        tell_output(options);
    if (!tagged)
        return;
    if (options == NULL)
        refuse("this Slurm does not let the submission be rewritten; tell your admin");
    if (!options_are_of_sbatch(options))
        refuse("salloc cannot start a trainer; write sbatch --bftrainer -N MIN-MAX");
    if (rewritten)
        refuse("a trainer cannot be part of a heterogeneous job; leave the ':' out");
    rewrite(spank, options, site);
    rewriter_forget_filter();
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
