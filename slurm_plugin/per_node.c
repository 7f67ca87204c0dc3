#include "numbers.h"
#include "per_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_SIZE 256
#define ONE_NODE 1 /* without -N a number for the whole job is for one node */

/* N and N-N stand for one number, 2-4 does not. */
static bool is_one_number(const char *nodes, unsigned *number)
{
    unsigned most;
    char rest;

    if (numbers_read(nodes, number))
        return true;
    return sscanf(nodes, "%7u-%7u%c", number, &most, &rest) == 2 && *number == most && most > 0;
}

/*
 * For how many nodes a whole job's number is: the -N beside it counts, in the script or on the command
 * line; without one the other -N. A range on the command line does not count for a number in the script.
 */
static bool find_nodes(const struct written *written, enum written_option option, unsigned *nodes)
{
    enum place place = written->value[COMMAND_LINE][option][0] != '\0' ? COMMAND_LINE : SCRIPT;
    const char *here = written->value[place][NODES];
    const char *there = written->value[place == SCRIPT ? COMMAND_LINE : SCRIPT][NODES];

    if (here[0] != '\0')
        return is_one_number(here, nodes);
    if (there[0] != '\0' && is_one_number(there, nodes))
        return true;
    *nodes = ONE_NODE;
    return there[0] == '\0' || (place == SCRIPT && written->has_script);
}

/* One node's share of `count`, which the option `said` ("--ntasks=8") is for all nodes. */
static bool divide(const struct written *written, enum written_option option, const char *said,
                   const char *instead, unsigned *count, char error[REWRITE_ERROR_SIZE])
{
    unsigned nodes;

    if (*count == 1)
        return true;
    if (!find_nodes(written, option, &nodes))
        return FAIL("%s is for all nodes together, and their number is a range here; write %s",
                    said, instead);
    if (*count % nodes != 0)
        return FAIL("%s does not divide by %u nodes; write %s", said, nodes, instead);
    *count /= nodes;
    return true;
}

/* A node's share of a whole job's --gpus=a100:8,h100:4. */
static bool divide_gpus(const struct written *written, char *list, char share[LIST_SIZE],
                        char error[REWRITE_ERROR_SIZE])
{
    char said[MAX_SHOWN + 16];
    char *rest = NULL;

    snprintf(said, sizeof(said), "--gpus=%s", shown(list).text);
    share[0] = '\0';
    for (char *gpus = strtok_r(list, ",", &rest); gpus != NULL; gpus = strtok_r(NULL, ",", &rest)) {
        unsigned count;

        if (!numbers_read(numbers_last(gpus), &count))
            return FAIL("%s is not a number of GPUs; write --gpus-per-node", said);
        if (!divide(written, GPUS, said, "--gpus-per-node", &count, error))
            return false;
        if (!text_add(share, LIST_SIZE, "%s%.*s%u", share[0] != '\0' ? "," : "",
                      (int)(numbers_last(gpus) - gpus), gpus, count))
            return FAIL("%s is too long; write --gpus-per-node", said);
    }
    return true;
}

static bool set_gpus(slurm_opt_t *options, const struct written *written,
                     char error[REWRITE_ERROR_SIZE])
{
    char list[LIST_SIZE];
    char share[LIST_SIZE];

    if (!options_given(options, "gpus"))
        return true;
    options_get(options, "gpus", list, sizeof(list));
    if (!divide_gpus(written, list, share, error))
        return false;
    if (!options_given(options, "gpus-per-node") && !options_given(options, "gpus-per-task") &&
        !rewrite_set(options, "gpus-per-node", share, error))
        return false;
    return rewrite_reset(options, "gpus", error);
}

static unsigned given_number(slurm_opt_t *options, const char *name)
{
    char text[32];
    unsigned number;

    options_get(options, name, text, sizeof(text));
    return options_given(options, name) && numbers_read(text, &number) ? number : 0;
}

/* How many GPUs a node's tasks have, as far as the options tell. */
static unsigned gpus_of_node(slurm_opt_t *options, unsigned tasks)
{
    unsigned gpus = numbers_gpus(options, "gpus-per-node", "");

    if (gpus == 0)
        gpus = numbers_gpus(options, "gres", "gpu");
    return gpus > 0 ? gpus : tasks * numbers_gpus(options, "gpus-per-task", "");
}

/* A node's number of tasks. sbatch has already adjusted --ntasks-per-node to its own -N. */
static bool read_tasks(slurm_opt_t *options, const struct written *written, unsigned *tasks,
                       char error[REWRITE_ERROR_SIZE])
{
    unsigned all = given_number(options, "ntasks");
    char said[32];

    if (!numbers_read(written_value(written, NTASKS_PER_NODE), tasks))
        *tasks = given_number(options, "ntasks-per-node");
    if (*tasks > 0) {
        if (all > 0 && all < *tasks)
            *tasks = all;
        return true;
    }
    if (all == 0) {
        *tasks = given_number(options, "ntasks-per-gpu") * gpus_of_node(options, 0);
        return true;
    }
    snprintf(said, sizeof(said), "--ntasks=%u", all);
    *tasks = all;
    return divide(written, NTASKS, said, "--ntasks-per-node", tasks, error);
}

/* srun in the element reads these; sbatch has set them for the whole job. */
static void tell_srun(const char *tasks)
{
    setenv("SLURM_NTASKS_PER_NODE", tasks, 1);
    setenv("SLURM_NTASKS", tasks, 1);
    setenv("SLURM_NPROCS", tasks, 1);
}

static bool set_tasks(slurm_opt_t *options, unsigned tasks, char error[REWRITE_ERROR_SIZE])
{
    char text[16];

    if (options_given(options, "ntasks-per-gpu") && !rewrite_reset(options, "ntasks-per-gpu", error))
        return false;
    unsetenv("SLURM_NTASKS_PER_NODE");
    unsetenv("SLURM_NTASKS_PER_GPU");
    snprintf(text, sizeof(text), "%u", tasks > 0 ? tasks : 1);
    if (tasks > 0)
        tell_srun(text);
    if (tasks > 0 && !rewrite_set(options, "ntasks-per-node", text, error))
        return false;
    return rewrite_set(options, "ntasks", text, error);
}

/* An exclusive element has all GPUs of its node, and Slurm would count these for all. */
static bool set_shares_of_gpus(slurm_opt_t *options, unsigned tasks,
                               char error[REWRITE_ERROR_SIZE])
{
    unsigned gpus = gpus_of_node(options, tasks);
    unsigned cpus = given_number(options, "cpus-per-gpu");
    char text[64];
    char memory[32];
    char *unit;

    if (gpus > 0 && cpus > 0) {
        snprintf(text, sizeof(text), "%u", (cpus * gpus + tasks - 1) / tasks);
        if (!rewrite_reset(options, "cpus-per-gpu", error) ||
            !rewrite_set(options, "cpus-per-task", text, error))
            return false;
        unsetenv("SLURM_CPUS_PER_GPU");
        setenv("SLURM_CPUS_PER_TASK", text, 1);
    }
    if (gpus == 0 || !options_given(options, "mem-per-gpu"))
        return true;
    options_get(options, "mem-per-gpu", memory, sizeof(memory));
    snprintf(text, sizeof(text), "%llu", strtoull(memory, &unit, 10) * gpus);
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", unit);
    unsetenv("SLURM_MEM_PER_GPU");
    return rewrite_reset(options, "mem-per-gpu", error) && rewrite_set(options, "mem", text, error);
}

bool per_node_set(slurm_opt_t *options, const struct written *written,
                  char error[REWRITE_ERROR_SIZE])
{
    unsigned tasks;

    if (!set_gpus(options, written, error) || !read_tasks(options, written, &tasks, error))
        return false;
    return set_tasks(options, tasks, error) &&
           set_shares_of_gpus(options, tasks > 0 ? tasks : 1, error);
}
