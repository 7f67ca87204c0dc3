/*
 * bftrainer-grow ELEMENTS [MINUTES LEAST] < NODES: lets held or delayed elements (12_[0-3,7])
 * start now, on any nodes except those listed, with a time limit of MINUTES, or of LEAST if no more fits.
 * It sends slurmctld one request, with the caller's rights. stderr names the elements that slurmctld
 * refuses; the others start.
 *
 * scontrol needs two requests for the same, because it cannot release in an update, and takes
 * ReqNodeList for one element only (22.05 to 26.05). Only Slurm's public API is used.
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
    fprintf(stderr, "usage: bftrainer-grow ELEMENTS [MINUTES LEAST] < NODES\n");
    return 2;
}

static bool read_number(const char *text, uint32_t *number)
{
    char *end;
    unsigned long read = strtoul(text, &end, 10);

    *number = (uint32_t)read;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && read > 0 && read < NO_VAL;
}

/* The list on stdin, of any length: the names of 10,000 nodes do not fit into an argument. */
static char *read_nodes(void)
{
    char *text = NULL;
    size_t size = 0;

    if (getdelim(&text, &size, '\0', stdin) < 0) {
        if (ferror(stdin) || text == NULL)
            return NULL;
        text[0] = '\0'; /* nothing: no node is excluded */
    }
    text[strcspn(text, "\n")] = '\0';
    return text;
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
    if (argc != 2 && argc != 4)
        return usage();
    slurm_init_job_desc_msg(&request);
    request.job_id_str = argv[1];
    request.req_nodes = ""; /* an owner may have asked for one */
    request.begin_time = time(NULL);
    request.priority = INFINITE; /* as scontrol release does */
    request.requeue = 1; /* a job_submit plugin may have taken it away */
    if (argc == 4 && (!read_number(argv[2], &request.time_limit) ||
                      !read_number(argv[3], &request.time_min)))
        return usage();
    request.exc_nodes = read_nodes();
    if (request.exc_nodes == NULL) {
        perror("bftrainer-grow: stdin");
        return 1;
    }
    slurm_init(NULL);
    if (slurm_update_job2(&request, &answer) != SLURM_SUCCESS) {
        fprintf(stderr, "%s: %s\n", argv[1], slurm_strerror(errno));
        return 1;
    }
    return report(answer);
}
