#include "torchrun.h"

#include "environment.h"
#include "path_list.h"

#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Linux allows no longer variable. */
#define MAX_VARIABLE (128 * 1024)

struct variable {
    const char *name;
    const char *value;
};

static const struct variable ALWAYS[] = {
    {ENV_BACKEND, "bftrainer"},
    {"PET_MAX_RESTARTS", "1000000"}, /* each lost node costs each survivor one restart */
};

/* The element's other variables; our rendezvous in torchrun sets some of them. */
static const char *const OTHERS[] = {
    "PET_NNODES", "PET_NPROC_PER_NODE", "PET_RDZV_ID", "PET_LOCAL_ADDR",
    "PET_RDZV_ENDPOINT", "SLURM_OPEN_MODE",
    ENV_ELEMENT, ENV_FIRST, ENV_KEEPER, ENV_GRACE, ENV_JOB_SECRET,
    ENV_SRUNS, ENV_STEP, "BFTRAINER_STEPS",
    "BFTRAINER_TASKS", "BFTRAINER_STARTED_BY", /* where a task of srun has become a torchrun */
};

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* Only Slurm's own allocation says how many processes a node should run. */
static void set_processes_per_node(spank_t spank)
{
    char text[32];

    if (spank_getenv(spank, "SLURM_GPUS_ON_NODE", text, sizeof(text)) != ESPANK_SUCCESS ||
        atoi(text) < 1)
        snprintf(text, sizeof(text), "1");
    spank_setenv(spank, "PET_NPROC_PER_NODE", text, 1);
}

static void put_into(spank_t spank, const char *name, char separator, const char *folder, bool in_front)
{
    char *list = malloc(MAX_VARIABLE);
    char *mended = NULL;
    spank_err_t read;

    if (list == NULL)
        return;
    read = spank_getenv(spank, name, list, MAX_VARIABLE);
    if (read == ESPANK_ENV_NOEXIST)
        list[0] = '\0';
    if (read == ESPANK_SUCCESS || read == ESPANK_ENV_NOEXIST)
        mended = path_list_with(list, separator, folder, in_front);
    if (mended == NULL || spank_setenv(spank, name, mended, 1) != ESPANK_SUCCESS)
        slurm_error("bftrainer: %s cannot be put into %s", folder, name);
    free(mended);
    free(list);
}

static void take_out_of(const char *name, char separator, const char *folder)
{
    const char *list = getenv(name);
    char *rest = list != NULL ? path_list_without(list, separator, folder) : NULL;

    if (rest != NULL && rest[0] != '\0')
        setenv(name, rest, 1);
    else if (rest != NULL)
        unsetenv(name);
    free(rest);
}

/*
 * The variables that list a container's mounts. apptainer reads SINGULARITY_X only if there is no
 * APPTAINER_X. So we use the older name, unless the user has set the newer one: otherwise mounts of the
 * user's would be lost. (Both also have a shorter name, which most scripts set.)
 */
static const char *const BINDS[] = {"APPTAINER_BINDPATH", "SINGULARITY_BINDPATH"};

bool variable_is(spank_t spank, const char *name, const char *wanted)
{
    char value[SITE_TEXT];

    return spank_getenv(spank, name, value, sizeof(value)) == ESPANK_SUCCESS &&
           strcmp(value, wanted) == 0;
}

void torchrun_set(spank_t spank, const struct site *site, const char *run, unsigned max_nodes)
{
    char nodes[32];

    snprintf(nodes, sizeof(nodes), "1:%u", max_nodes);
    spank_setenv(spank, "PET_NNODES", nodes, 1);
    set_processes_per_node(spank);
    spank_setenv(spank, "PET_RDZV_ID", run, 1);
    for (size_t i = 0; i < COUNT(ALWAYS); i++)
        spank_setenv(spank, ALWAYS[i].name, ALWAYS[i].value, 1);
    if (variable_is(spank, ENV_RENDEZVOUS, "own"))
        spank_setenv(spank, ENV_BACKEND, "c10d", 1);
    if (variable_is(spank, ENV_CARRIED_RESUME, "no"))
        spank_setenv(spank, ENV_RESUME, "no", 1);
    if (site->local_addr[0] != '\0')
        spank_setenv(spank, "PET_LOCAL_ADDR", site->local_addr, 1);
    torchrun_mend(spank, site);
}

/* Without the folder torchrun does not find our rendezvous, and ends at once. Containers mount it after what
 * their user has them mount. */
void torchrun_mend(spank_t spank, const struct site *site)
{
    char any[2];
    bool has_newer = spank_getenv(spank, BINDS[0], any, sizeof(any)) != ESPANK_ENV_NOEXIST;

    if (site->python[0] == '\0')
        return;
    put_into(spank, "PYTHONPATH", ':', site->python, true);
    put_into(spank, BINDS[has_newer ? 0 : 1], ',', site->python, false);
}

void torchrun_unset(const struct site *site)
{
    for (size_t i = 0; i < COUNT(ALWAYS); i++)
        unsetenv(ALWAYS[i].name);
    for (size_t i = 0; i < COUNT(OTHERS); i++)
        unsetenv(OTHERS[i]);
    if (site->python[0] == '\0')
        return;
    take_out_of("PYTHONPATH", ':', site->python);
    for (size_t i = 0; i < COUNT(BINDS); i++)
        take_out_of(BINDS[i], ',', site->python);
}
