/*
 * A submission's options with any values: NAME=VALUE texts, each ended by a NUL. A rewritten submission
 * can be read back; a refusal is one line.
 */
#include "../rewrite.h"
#include "fuzz.h"

#define MAX_OPTIONS 32
static const struct site SITE = {.partition = "bftrainer", .qos = "idle"};

/* Stands in for sbatch's options. */
struct slurm_options {
    const char *name[MAX_OPTIONS];
    char *value[MAX_OPTIONS];
    size_t count;
};

static int find(const slurm_opt_t *options, const char *name)
{
    for (size_t i = 0; i < options->count; i++)
        if (strcmp(options->name[i], name) == 0)
            return (int)i;
    return -1;
}

bool options_given(slurm_opt_t *options, const char *name)
{
    return find(options, name) >= 0;
}

bool options_get(slurm_opt_t *options, const char *name, char *value, size_t size)
{
    int at = find(options, name);
    bool fits = at < 0 || strlen(options->value[at]) < size;

    value[0] = '\0';
    if (at >= 0 && fits)
        memcpy(value, options->value[at], strlen(options->value[at]) + 1);
    return fits;
}

bool options_set(slurm_opt_t *options, const char *name, const char *value)
{
    int at = find(options, name);
    char *copy;

    if (at < 0 && options->count == MAX_OPTIONS)
        return false;
    copy = strdup(value != NULL ? value : "");
    if (at < 0)
        at = (int)options->count++;
    else
        free(options->value[at]);
    options->name[at] = name;
    options->value[at] = copy;
    return true;
}

bool options_reset(slurm_opt_t *options, const char *name)
{
    int at = find(options, name);

    if (at >= 0)
        options->name[at] = "gone";
    return true;
}

static void read_options(char *text, size_t size, slurm_opt_t *options)
{
    for (char *word = text; word < text + size && options->count < MAX_OPTIONS / 2;
         word += strlen(word) + 1) {
        char *equals = strchr(word, '=');

        if (equals == NULL)
            continue;
        *equals = '\0';
        options_set(options, word, equals + 1);
        word = equals + 1;
    }
}

static void rewrite(slurm_opt_t *options)
{
    const struct request request = {.spec = {.weight = MICROS, .grace = MICROS / 2}, .sizes.step = 1};
    char error[REWRITE_ERROR_SIZE] = "";
    struct record record;

    if (!rewrite_submission(options, &request, &SITE, error)) {
        promise_one_line(error, sizeof(error));
        return;
    }
    /* Reading back refuses more nodes than a record can have. */
    if (!rewrite_read_back(options, &request, &SITE, &record, error)) {
        promise_one_line(error, sizeof(error));
        return;
    }
    PROMISE(record.min_nodes >= 1 && record.min_nodes <= record.max_nodes);
    PROMISE(record.spec.weight == request.spec.weight && record.spec.grace == request.spec.grace);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    slurm_opt_t options = {.count = 0};
    char *text = text_of(data, size);

    read_options(text, size, &options);
    rewrite(&options);
    for (size_t i = 0; i < options.count; i++)
        free(options.value[i]);
    free(text);
    return 0;
}
