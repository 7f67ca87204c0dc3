/*
 * bftrainer-look jobs|nodes|shared [SINCE]: prints all jobs or nodes if any has changed since SINCE.
 * With "shared" each node also has what jobs have allocated on it.
 *
 * The first line is the SINCE of the next call. Without a change nothing is printed, and slurmctld
 * has sent nothing. Each further line is a job or a node, its fields separated by tabs. Tabs,
 * newlines and backslashes in fields are escaped, so that a user's text cannot look like a record.
 * If a clock is set back, changes can be missed: ask without SINCE now and then.
 */
#include <errno.h>
#include <pwd.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

/* libslurm exports it, but no header declares it. */
extern const char *slurm_job_state_string(uint32_t state);
extern const char *slurm_node_state_string(uint32_t state);
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(24, 5, 0)
extern const char *slurm_job_reason_string(int reason);
#define slurm_job_state_reason_string slurm_job_reason_string
#else
extern const char *slurm_job_state_reason_string(int reason);
#endif

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 11, 0)
#define JOB_ID(job) ((job)->job_id)
#else
#define JOB_ID(job) ((job)->step_id.job_id)
#endif

static void put_text_until(const char *text, char end)
{
    for (; text != NULL && *text != '\0' && *text != end; text++) {
        switch (*text) {
        case '\t':
            fputs("\\t", stdout);
            break;
        case '\n':
            fputs("\\n", stdout);
            break;
        case '\\':
            fputs("\\\\", stdout);
            break;
        default:
            putchar_unlocked(*text);
        }
    }
    putchar_unlocked('\t');
}

static void put_text(const char *text)
{
    put_text_until(text, '\0');
}

/* Without the list that may follow: "ReqNodeNotAvail, UnavailableNodes:" and 10,000 names. */
static void put_reason(const job_info_t *job)
{
    if (job->state_desc != NULL)
        put_text_until(job->state_desc, ',');
    else
        put_text(slurm_job_state_reason_string((int)job->state_reason));
}

static void put_number(uint64_t number)
{
    printf("%llu\t", (unsigned long long)number);
}

/* What is not known is an empty field. */
static void put_if(bool known, uint64_t number)
{
    if (known)
        put_number(number);
    else
        put_text(NULL);
}

static void put_time(time_t time)
{
    put_if(time > 0, (uint64_t)time);
}

/* The user names so far: without this cache 300 trainers need thousands of look-ups. */
static const char *user_name(uint32_t uid)
{
    static struct user {
        uint32_t uid;
        char *name;
    } *known;
    static size_t count;
    struct passwd *entry;
    struct user *grown;

    for (size_t i = 0; i < count; i++)
        if (known[i].uid == uid)
            return known[i].name;
    grown = reallocarray(known, count + 1, sizeof(*known));
    if (grown == NULL)
        abort();
    known = grown;
    entry = getpwuid(uid);
    known[count].uid = uid;
    known[count].name = strdup(entry == NULL ? "nobody" : entry->pw_name);
    return known[count++].name;
}

static void put_tasks(const job_info_t *job)
{
    if (job->array_task_str != NULL)
        put_text(job->array_task_str);
    else
        put_if(job->array_job_id != 0 && job->array_task_id != NO_VAL, job->array_task_id);
}

/* The memory that a job asks of a node, in MB; with `per_cpu` behind it: of each processor. */
static void put_memory(const job_info_t *job, const char *per_cpu)
{
    if (job->pn_min_memory == NO_VAL64)
        put_text(NULL);
    else
        printf("%llu%s\t", (unsigned long long)(job->pn_min_memory & ~MEM_PER_CPU),
               job->pn_min_memory & MEM_PER_CPU ? per_cpu : "");
}

/*
 * Memory of each node: what a running job of one node got, or what a waiting job asks for, also for each
 * processor ("/cpu") or GPU ("/gpu"). Empty if it is unknown: 0 would be all memory. Slurm writes
 * DefMemPerGPU into mem_per_tres once it has looked where the job fits, also for a job that asks for other
 * memory.
 */
static void put_node_memory(const job_info_t *job)
{
    bool waits = (job->job_state & JOB_STATE_BASE) == JOB_PENDING;
    const char *got = job->tres_alloc_str != NULL ? strstr(job->tres_alloc_str, ",mem=") : NULL;
    bool asked = job->bitflags & JOB_MEM_SET;
    const char *each = job->mem_per_tres != NULL && !asked ? strrchr(job->mem_per_tres, ':') : NULL;

    if (!waits && got != NULL && job->num_nodes == 1)
        put_text_until(got + strlen(",mem="), ',');
    else if (waits && each != NULL)
        printf("%s/gpu\t", each + 1);
    else if (waits && (job->pn_min_memory & ~MEM_PER_CPU) > 0)
        put_memory(job, "/cpu");
    else
        put_text(NULL);
}

/* What its user gave and did not leave to Slurm's defaults: "c" processors, "m" memory. */
static void put_given(const job_info_t *job)
{
    printf("%c%c\t", job->bitflags & JOB_CPUS_SET ? 'c' : '-', job->bitflags & JOB_MEM_SET ? 'm' : '-');
}

/* The number of a job's tasks, sockets or nodes; 1 if it is not known. */
static uint32_t known(uint32_t number)
{
    return number == 0 || number >= NO_VAL16 ? 1 : number;
}

/* What it asks for, also for the job, each task or each socket, and how often a node has to have that. */
static void put_gres(const job_info_t *job, bool often)
{
    const char *asked[] = {job->tres_per_node, job->tres_per_job, job->tres_per_task,
                           job->tres_per_socket};
    bool tasks_of_node = job->ntasks_per_node != 0 && job->ntasks_per_node < NO_VAL16;
    uint32_t times[] = {1, 1, tasks_of_node ? job->ntasks_per_node : known(job->num_tasks),
                        known(job->sockets_per_node)};
    uint32_t nodes[] = {1, known(job->num_nodes), tasks_of_node ? 1 : known(job->num_nodes), 1};
    size_t i = 0;

    while (i < 4 && (asked[i] == NULL || strstr(asked[i], "gres") == NULL))
        i++;
    if (!often || i == 4)
        put_text(often || i == 4 ? NULL : asked[i]);
    else
        printf("%u/%u\t", times[i], nodes[i]);
}

/* What --cpus-per-gpu says ("gpu:4"), or Slurm's default once it has looked where the job fits. */
static void put_cpus_per_gpu(const job_info_t *job)
{
    const char *each = job->cpus_per_tres != NULL ? strrchr(job->cpus_per_tres, ':') : NULL;

    put_text(each != NULL ? each + 1 : NULL);
}

static bool has_whole_nodes(const job_info_t *job)
{
#ifdef JOB_EXCLUSIVE_NONE /* from 26.05 on */
    return job->exclusive != JOB_EXCLUSIVE_NONE;
#else
    return job->shared == 0;
#endif
}

static void put_job(const job_info_t *job, time_t now)
{
    bool unlimited = job->time_limit == INFINITE && job->end_time > now;
    uint32_t status = job->exit_code;

    put_number(JOB_ID(job));
    put_number(job->array_job_id != 0 ? job->array_job_id : JOB_ID(job));
    put_tasks(job);
    put_text(slurm_job_state_string(job->job_state));
    put_reason(job);
    put_number(job->priority);
    put_time(job->submit_time);
    put_time(job->start_time);
    put_time(unlimited ? 0 : job->end_time); /* Slurm shows an end a year ahead */
    put_text(job->nodes);
    put_text(job->req_nodes);
    put_text(job->sched_nodes);
    put_number(job->num_nodes);
    put_text(job->partition);
    put_text(user_name(job->user_id));
    put_text(job->name);
    put_text(job->comment);
    put_text(job->features);
    put_text(job->exc_nodes);
    put_text(job->licenses);
    put_text(job->resv_name);
    /* In minutes; the job may have none, or only its partition's. */
    put_if(job->time_limit != INFINITE && job->time_limit != NO_VAL, job->time_limit);
    /* As in a shell: 128 plus the signal, if a signal ended the process. */
    put_number(WIFSIGNALED(status) ? 128u + WTERMSIG(status) : WEXITSTATUS(status));
    put_text(job->dependency);
    put_memory(job, "c");
    put_number(job->pn_min_cpus);
    put_number(job->num_cpus);
    put_gres(job, false);
    put_text(has_whole_nodes(job) ? "NO" : "OK"); /* as squeue up to 24.11 */
    put_text((job->bitflags & JOB_NTASKS_SET) ? "yes" : NULL);
    put_node_memory(job);
    put_given(job);
    put_text(job->qos);
    put_gres(job, true);
    put_cpus_per_gpu(job);
    putchar_unlocked('\n');
}

static int look_at_jobs(time_t since)
{
    job_info_msg_t *jobs;

    if (slurm_load_jobs(since, &jobs, SHOW_ALL | SHOW_LOCAL) != SLURM_SUCCESS)
        return -1;
    printf("%lld\n", (long long)jobs->last_update);
    for (uint32_t i = 0; i < jobs->record_count; i++)
        put_job(&jobs->job_array[i], time(NULL));
    return 0;
}

/* A node's partitions are those that list it; so also ask for the part that has not changed. */
static int load_nodes(time_t since, uint16_t flags, node_info_msg_t **nodes,
                      partition_info_msg_t **partitions)
{
    bool same_nodes = false;

    if (slurm_load_node(since, nodes, flags) != SLURM_SUCCESS) {
        if (errno != SLURM_NO_CHANGE_IN_DATA)
            return -1;
        same_nodes = true;
    }
    if (slurm_load_partitions(same_nodes ? since : 0, partitions, SHOW_ALL) != SLURM_SUCCESS)
        return -1;
    if (same_nodes && slurm_load_node(0, nodes, flags) != SLURM_SUCCESS)
        return -1;
    slurm_populate_node_partitions(*nodes, *partitions);
    return 0;
}

/* What jobs have on a node: memory in MB, processors, GRES. */
static void put_used(const node_info_t *node)
{
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 5, 0)
    uint64_t memory = 0;
    uint16_t cpus = 0;

    slurm_get_select_nodeinfo(node->select_nodeinfo, SELECT_NODEDATA_MEM_ALLOC, NODE_STATE_ALLOCATED,
                              &memory);
    slurm_get_select_nodeinfo(node->select_nodeinfo, SELECT_NODEDATA_SUBCNT, NODE_STATE_ALLOCATED,
                              &cpus);
#else
    uint64_t memory = node->alloc_memory;
    uint16_t cpus = node->alloc_cpus;
#endif
    put_number(memory);
    put_number(cpus);
    put_text(node->gres_used);
}

static int look_at_nodes(time_t since, bool shared)
{
    uint16_t flags = shared ? SHOW_ALL | SHOW_DETAIL : SHOW_ALL;
    partition_info_msg_t *partitions;
    node_info_msg_t *nodes;

    if (load_nodes(since, flags, &nodes, &partitions) < 0)
        return -1;
    printf("%lld\n", (long long)(nodes->last_update < partitions->last_update
                                     ? nodes->last_update
                                     : partitions->last_update));
    for (uint32_t i = 0; i < nodes->record_count; i++) {
        const node_info_t *node = &nodes->node_array[i];

        if (node->name == NULL || node->name[0] == '\0')
            continue; /* an empty row of the table */
        put_text(node->name);
        put_text(slurm_node_state_string(node->node_state));
        put_text(node->features_act);
        put_text(node->partitions);
        put_number(node->weight);
        put_number(node->real_memory);
        put_number(node->cpus_efctv != 0 ? node->cpus_efctv : node->cpus);
        put_text(node->gres);
        if (shared)
            put_used(node);
        putchar_unlocked('\n');
    }
    return 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: bftrainer-look jobs|nodes|shared [SINCE]\n");
    return 2;
}

int main(int argc, char **argv)
{
    time_t since = argc == 3 ? (time_t)strtoll(argv[2], NULL, 10) : 0;
    int done;

    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("%u.%02u\n", SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER),
               SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER));
        return 0;
    }
    if (argc < 2 || argc > 3)
        return usage();
    if (strcmp(argv[1], "jobs") != 0 && strcmp(argv[1], "nodes") != 0 &&
        strcmp(argv[1], "shared") != 0)
        return usage();
    slurm_init(NULL);
    done = argv[1][0] == 'j' ? look_at_jobs(since) : look_at_nodes(since, argv[1][0] == 's');
    if (done < 0 && errno != SLURM_NO_CHANGE_IN_DATA) {
        fprintf(stderr, "%s: %s\n", argv[1], slurm_strerror(errno));
        return 1;
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
