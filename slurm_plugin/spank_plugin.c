/*
 * The SPANK plugin's entry points. They only dispatch by spank_context(): sbatch, salloc and srun to
 * spank_submit.c, slurmstepd to spank_element.c.
 */
#include "contexts.h"

#include <slurm/spank.h>
#include <stddef.h>

SPANK_PLUGIN(bftrainer, 1);

#define UNUSED __attribute__((unused))

static struct site site;

static int take_option(int value UNUSED, const char *text, int remote)
{
    /* In the job the record in its environment has more than the option. */
    return remote ? 0 : submit_take_option(&site, text);
}

static struct spank_option OPTION = {
    .name = "bftrainer",
    .arginfo = "KEY=VAL,...",
    .usage = "train on idle nodes, as many as there are up to -N MAX; keys: weight=NUMBER, "
             "grace=SECONDS, node_hours=NUMBER, samples=NUMBER, by=TIME, min=NODES, sizes=NODES:NODES, "
             "step=NODES, rendezvous=own, resume=no, batch=once or each",
    .has_arg = 2, /* optional, as getopt counts */
    .cb = take_option,
};

static bool is_client(void)
{
    spank_context_t context = spank_context();

    return context == S_CTX_ALLOCATOR || context == S_CTX_LOCAL;
}

int slurm_spank_init(spank_t spank, int count, char **words)
{
    if (!is_client() && spank_context() != S_CTX_REMOTE)
        return 0;
    site_parse(count, words, &site);
    if (is_client())
        submit_init(&site);
    return spank_option_register(spank, &OPTION);
}

int slurm_spank_init_post_opt(spank_t spank, int count UNUSED, char **words UNUSED)
{
    if (is_client()) {
        submit_check_or_exit(spank, &site);
        submit_announce(&site);
    } else if (spank_context() == S_CTX_REMOTE)
        element_make_secret(spank, &site);
    return 0;
}

int slurm_spank_user_init(spank_t spank, int count UNUSED, char **words UNUSED)
{
    element_recognise(spank, &site);
    return 0;
}

int slurm_spank_task_post_fork(spank_t spank, int count UNUSED, char **words UNUSED)
{
    element_guard_task(spank);
    return 0;
}

int slurm_spank_task_init(spank_t spank, int count UNUSED, char **words UNUSED)
{
    element_start_task(spank, &site);
    return 0;
}

int slurm_spank_task_exit(spank_t spank, int count UNUSED, char **words UNUSED)
{
    element_end_task(spank);
    return 0;
}

int slurm_spank_exit(spank_t spank UNUSED, int count UNUSED, char **words UNUSED)
{
    if (is_client())
        submit_exit(&site);
    else if (spank_context() == S_CTX_REMOTE)
        element_exit();
    return 0;
}
