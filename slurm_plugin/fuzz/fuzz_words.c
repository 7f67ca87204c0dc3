/*
 * What sbatch passes on to an element, as any bytes of a user's: what is taken is within its bounds, and
 * the same when it is written as sbatch does.
 */
#include "../words.h"
#include "fuzz.h"

static void promise_same(const struct passed *passed)
{
    struct passed again;
    char task[16] = "-";
    char text[PASSED_SIZE];

    if (passed->has_task)
        snprintf(task, sizeof(task), "%u", passed->task);
    snprintf(text, sizeof(text), "%u %u.%03u %s", passed->max_nodes, passed->grace_ms / 1000,
             passed->grace_ms % 1000, task);
    PROMISE(passed_parse(text, &again));
    PROMISE(passed->max_nodes == again.max_nodes && passed->grace_ms == again.grace_ms);
    PROMISE(passed->has_task == again.has_task && (!passed->has_task || passed->task == again.task));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = text_of(data, size);
    struct shown line = shown(text);
    struct passed passed;

    PROMISE(strlen(line.text) <= MAX_SHOWN);
    if (line.text[0] != '\0')
        promise_one_line(line.text, sizeof(line.text));
    if (passed_parse(text, &passed)) {
        PROMISE(passed.max_nodes >= 1 && passed.max_nodes <= MAX_NODES);
        PROMISE(passed.grace_ms < 1000000000 && (!passed.has_task || passed.task < 10000000));
        promise_same(&passed);
    }
    free(text);
    return 0;
}
