/*
 * The rewriting as a cli_filter plugin, for sites that want Slurm's documented hooks only. The
 * SPANK plugin, listed with rewrite=cli_filter, takes the option in the same process and passes it
 * on by environment variables. Afterwards it checks what was done here.
 */
#include "environment.h"
#include "rewrite.h"

#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdlib.h>

const char plugin_name[] = "BFTrainer: tagged submissions become elastic trainers";
const char plugin_type[] = "cli_filter/bftrainer";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

int init(void);
int fini(void);
int cli_filter_p_setup_defaults(slurm_opt_t *options, bool early);
int cli_filter_p_pre_submit(slurm_opt_t *options, int offset);
void cli_filter_p_post_submit(int offset, uint32_t job, uint32_t step);

int init(void)
{
    return SLURM_SUCCESS;
}

int fini(void)
{
    return SLURM_SUCCESS;
}

int cli_filter_p_setup_defaults(slurm_opt_t *options, bool early)
{
    (void)options;
    (void)early;
    return SLURM_SUCCESS;
}

int cli_filter_p_pre_submit(slurm_opt_t *options, int offset)
{
    const char *text = getenv(ENV_FILTER_SPEC);
    const struct target target = {getenv(ENV_FILTER_PARTITION), getenv(ENV_FILTER_QOS),
                                  getenv(ENV_FILTER_SHARE) != NULL};
    struct request request;
    char error[REWRITE_ERROR_SIZE];

    /* salloc and heterogeneous jobs are refused by the SPANK plugin. */
    if (text == NULL || target.partition == NULL || target.qos == NULL || offset > 0 ||
        !options_are_of_sbatch(options))
        return SLURM_SUCCESS;
    if (options_given(options, "time-min"))
        slurm_info("bftrainer: " TIME_MIN_IS_OURS);
    if (spec_parse(text, NO_MAX_GRACE, &request, error) &&
        rewrite_submission(options, &request, &target, error))
        return SLURM_SUCCESS;
    slurm_error("bftrainer: %s", error);
    return SLURM_ERROR;
}

void cli_filter_p_post_submit(int offset, uint32_t job, uint32_t step)
{
    (void)offset;
    (void)job;
    (void)step;
}
