#include "numbers.h"

#include "spec.h"

#include <string.h>

#define LIST_SIZE 1024

bool numbers_read(const char *text, unsigned *number)
{
    return number_parse(text, number) && *number > 0;
}

const char *numbers_last(const char *gpus)
{
    const char *colon = strrchr(gpus, ':');

    return colon != NULL ? colon + 1 : gpus;
}

unsigned numbers_gpus(slurm_opt_t *options, const char *name, const char *prefix)
{
    char list[LIST_SIZE];
    char *rest = NULL;
    unsigned sum = 0;

    if (!options_given(options, name))
        return 0;
    options_get(options, name, list, sizeof(list));
    for (char *equals = strchr(list, '='); equals != NULL; equals = strchr(equals, '='))
        *equals = ':';
    for (char *gpus = strtok_r(list, ",", &rest); gpus != NULL; gpus = strtok_r(NULL, ",", &rest)) {
        unsigned count;

        if (strncmp(gpus, "gres:", strlen("gres:")) == 0 || strncmp(gpus, "gres/", strlen("gres/")) == 0)
            gpus += strlen("gres:");
        if (strncmp(gpus, prefix, strlen(prefix)) != 0)
            continue;
        if (prefix[0] == '\0' || strchr(":", gpus[strlen(prefix)]) != NULL) /* or nothing follows */
            sum += numbers_read(numbers_last(gpus), &count) ? count : numbers_last(gpus)[0] != '0';
    }
    return sum;
}
