/*
 * The option's value and the record in a comment, both any bytes of a user's. A parsed value is within its
 * bounds, and stays the same when it is written and parsed again. An error is one clean line.
 */
#include "../spec.h"
#include "fuzz.h"

#define MAX_GRACE (30 * MICROS)

static void promise_bounds(const struct spec *spec, micros_t max_grace)
{
    PROMISE(spec->weight > 0 && spec->weight <= 1000 * MICROS);
    PROMISE(spec->grace >= 0 && spec->grace <= max_grace);
    PROMISE(spec->node_hours >= 0 && spec->node_hours < 1000000 * MICROS);
}

static bool same_sizes(const struct sizes *one, const struct sizes *other)
{
    return one->count == other->count && one->step == other->step &&
           memcmp(one->size, other->size, one->count * sizeof(one->size[0])) == 0;
}

static void try_spec(const char *text)
{
    struct request request;
    struct request again;
    char error[SPEC_ERROR_SIZE] = "";
    char canonical[SPEC_SIZE];

    if (!spec_parse(text, MAX_GRACE, &request, error)) {
        promise_one_line(error, sizeof(error));
        return;
    }
    promise_bounds(&request.spec, MAX_GRACE);
    spec_format(&request, canonical, sizeof(canonical));
    PROMISE(spec_parse(canonical, MAX_GRACE, &again, error));
    PROMISE(request.spec.weight == again.spec.weight && request.spec.grace == again.spec.grace);
    PROMISE(request.spec.node_hours == again.spec.node_hours);
    PROMISE(request.min_nodes == again.min_nodes);
    PROMISE(same_sizes(&request.sizes, &again.sizes));
}

static void try_record(const char *text)
{
    struct record record;
    struct record again;
    char error[SPEC_ERROR_SIZE] = "";
    char canonical[RECORD_SIZE];

    if (!record_parse(text, &record, error)) {
        promise_one_line(error, sizeof(error));
        return;
    }
    promise_bounds(&record.spec, NO_MAX_GRACE);
    PROMISE(record.min_nodes >= 1 && record.min_nodes <= record.max_nodes);
    PROMISE(record.max_nodes <= 1000000 && record.minutes <= 1000000);
    if (!record_format(&record, canonical)) /* too long: it now has keys that were defaults before */
        return;
    PROMISE(record_parse(canonical, &again, error));
    PROMISE(record.spec.weight == again.spec.weight && record.spec.grace == again.spec.grace);
    PROMISE(record.spec.node_hours == again.spec.node_hours);
    PROMISE(record.min_nodes == again.min_nodes && record.max_nodes == again.max_nodes);
    PROMISE(record.minutes == again.minutes && record.personal == again.personal);
    PROMISE(record.has_task == again.has_task && record.task == again.task);
    PROMISE(strcmp(record.partitions, again.partitions) == 0);
    PROMISE(strcmp(record.nodes, again.nodes) == 0 && same_sizes(&record.sizes, &again.sizes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = text_of(data, size);
    char *prefixed = malloc(strlen(RECORD_PREFIX) + size + 1);

    if (prefixed == NULL)
        abort();
    try_spec(text);
    try_record(text);
    strcpy(prefixed, RECORD_PREFIX);
    memcpy(prefixed + strlen(RECORD_PREFIX), text, size + 1);
    try_record(prefixed);
    free(prefixed);
    free(text);
    return 0;
}
