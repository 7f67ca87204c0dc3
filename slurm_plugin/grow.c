/*
 * bftrainer-grow ELEMENT NODE [MINUTES]: lets a held or delayed element start on NODE now, and
 * only there, with a time limit of MINUTES. One request to slurmctld, with the caller's rights.
 *
 * scontrol needs four for the same: before it changes ReqNodeList it asks for the federation and
 * for the job, and it cannot release in an update (22.05 to 26.05). Only Slurm's public API is used.
 */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int usage(void)
{
    fprintf(stderr, "usage: bftrainer-grow ELEMENT NODE [MINUTES]\n");
    return 2;
}

static bool read_minutes(const char *text, uint32_t *minutes)
{
    char *end;
    unsigned long read = strtoul(text, &end, 10);

    *minutes = (uint32_t)read;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && read > 0 && read < NO_VAL;
}

static int report(const job_array_resp_msg_t *answer)
{
    int status = 0;

    for (uint32_t i = 0; answer != NULL && i < answer->job_array_count; i++) {
        if (answer->error_code[i] == SLURM_SUCCESS)
            continue;
        fprintf(stderr, "%s: %s\n", answer->job_array_id[i],
                slurm_strerror((int)answer->error_code[i]));
        status = 1;
    }
    return status;
}

int main(int argc, char **argv)
{
    job_desc_msg_t request;
    job_array_resp_msg_t *answer = NULL;

    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("%u.%02u\n", SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER),
               SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER));
        return 0;
    }
    if (argc < 3 || argc > 4)
        return usage();
    slurm_init_job_desc_msg(&request);
    request.job_id_str = argv[1];
    request.req_nodes = argv[2];
    request.begin_time = time(NULL);
    request.priority = INFINITE; /* as scontrol release does */
    if (argc == 4 && !read_minutes(argv[3], &request.time_limit))
        return usage();
    slurm_init(NULL);
    if (slurm_update_job2(&request, &answer) != SLURM_SUCCESS) {
        fprintf(stderr, "%s: %s\n", argv[1], slurm_strerror(errno));
        return 1;
    }
    return report(answer);
}
