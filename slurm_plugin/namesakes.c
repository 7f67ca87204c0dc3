#include "namesakes.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIST_SIZE 4096
#define NAME_SIZE 1024
#define SINGLETON "singleton"
#define AFTER "afterany"
#define SBATCHS_OWN_NAME "sbatch" /* the job name of a script from a pipe */

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 11, 0)
#define JOB_ID(job) ((job)->job_id)
#else
#define JOB_ID(job) ((job)->step_id.job_id)
#endif

static bool is_live(const job_info_t *job)
{
    return (job->job_state & JOB_STATE_BASE) < JOB_COMPLETE;
}

/* Writes the jobs of this name as :1:2:3, each array once. */
static bool find(const char *name, char list[LIST_SIZE])
{
    job_info_msg_t *jobs;
    uint32_t last = 0;
    bool fit = true;

    list[0] = '\0';
    if (slurm_load_job_user(&jobs, getuid(), SHOW_ALL) != SLURM_SUCCESS)
        return false;
    for (uint32_t i = 0; fit && i < jobs->record_count; i++) {
        const job_info_t *job = &jobs->job_array[i];
        uint32_t id = job->array_job_id != 0 ? job->array_job_id : JOB_ID(job);

        if (id == last || job->name == NULL || strcmp(job->name, name) != 0 || !is_live(job))
            continue;
        last = id;
        fit = text_add(list, LIST_SIZE, ":%u", id);
    }
    slurm_free_job_info_msg(jobs);
    return fit;
}

bool namesakes_wait(slurm_opt_t *options, char error[REWRITE_ERROR_SIZE])
{
    char dependency[LIST_SIZE];
    char name[NAME_SIZE];
    char jobs[LIST_SIZE];
    char list[LIST_SIZE] = "";
    char *rest = NULL;

    options_get(options, "dependency", dependency, sizeof(dependency));
    if (strstr(dependency, SINGLETON) == NULL)
        return true;
    if (strchr(dependency, '?') != NULL)
        return FAIL("--dependency=singleton cannot be one of several that will do; write it alone, or "
                    "with commas between");
    options_get(options, "job-name", name, sizeof(name));
    if (!find(name[0] != '\0' ? name : SBATCHS_OWN_NAME, jobs))
        return FAIL("the jobs that --dependency=singleton is to wait for are not known now; write "
                    "--dependency=afterany:JOB");
    for (char *one = strtok_r(dependency, ",", &rest); one != NULL; one = strtok_r(NULL, ",", &rest))
        if (strcmp(one, SINGLETON) != 0 &&
            !text_add(list, LIST_SIZE, "%s%s", list[0] != '\0' ? "," : "", one))
            return FAIL("--dependency is too long");
    if (jobs[0] != '\0' &&
        !text_add(list, LIST_SIZE, "%s" AFTER "%s", list[0] != '\0' ? "," : "", jobs))
        return FAIL("--dependency is too long");
    return list[0] != '\0' ? rewrite_set(options, "dependency", list, error)
                           : rewrite_reset(options, "dependency", error);
}
