#include "spec.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT 256
#define MAX_PAIRS (RECORD_SIZE / 4 + 1)
#define MAX_DIGITS 6
#define EXAMPLE "--bftrainer=weight=2,grace=5"

static const struct spec DEFAULTS = {.weight = MICROS, .grace = MICROS / 2};
static const micros_t MAX_WEIGHT = 1000 * MICROS;

struct pair {
    const char *key;
    const char *value;
};

struct pairs {
    char text[RECORD_SIZE];
    struct pair pair[MAX_PAIRS];
    size_t count;
};

#define FAIL(...) (snprintf(error, SPEC_ERROR_SIZE, __VA_ARGS__), false)

static bool has_key(const struct pairs *pairs, const char *key)
{
    for (size_t i = 0; i < pairs->count; i++)
        if (strcmp(pairs->pair[i].key, key) == 0)
            return true;
    return false;
}

static bool add_pair(struct pairs *pairs, char *part, char error[SPEC_ERROR_SIZE])
{
    char *equals = strchr(part, '=');

    if (equals == NULL || equals == part || equals[1] == '\0')
        return FAIL("'%s' is not KEY=VALUE; write for example " EXAMPLE, shown(part).text);
    *equals = '\0';
    if (has_key(pairs, part))
        return FAIL("key '%s' is given twice", shown(part).text);
    pairs->pair[pairs->count++] = (struct pair){.key = part, .value = equals + 1};
    return true;
}

static bool is_bounded(size_t length, size_t most, char error[SPEC_ERROR_SIZE])
{
    return length <= most ||
           FAIL("longer than %zu characters; write for example " EXAMPLE, most);
}

static bool split(const char *text, size_t length, struct pairs *pairs, char error[SPEC_ERROR_SIZE])
{
    char *next = pairs->text;
    char *part;

    memcpy(pairs->text, text, length);
    pairs->text[length] = '\0';
    pairs->count = 0;
    while ((part = strsep(&next, ",")) != NULL)
        if (!add_pair(pairs, part, error))
            return false;
    return true;
}

static size_t digits(const char *text)
{
    return strspn(text, "0123456789");
}

bool micros_parse(const char *text, micros_t *number)
{
    size_t whole = digits(text);
    micros_t value;
    micros_t place = MICROS;

    if (whole < 1 || whole > MAX_DIGITS)
        return false;
    value = strtoll(text, NULL, 10) * MICROS;
    if (text[whole] == '.') {
        const char *decimals = text + whole + 1;
        size_t count = digits(decimals);

        if (count < 1 || count > MAX_DIGITS || decimals[count] != '\0')
            return false;
        for (size_t i = 0; i < count; i++)
            value += (decimals[i] - '0') * (place /= 10);
    } else if (text[whole] != '\0') {
        return false;
    }
    *number = value;
    return true;
}

void micros_format(micros_t number, char *text, size_t size)
{
    char full[32];
    size_t end;

    snprintf(full, sizeof(full), "%lld.%06lld", (long long)(number / MICROS),
             (long long)(number % MICROS));
    for (end = strlen(full); full[end - 1] == '0'; end--)
        ;
    if (full[end - 1] == '.')
        end--;
    snprintf(text, size, "%.*s", (int)end, full);
}

static bool parse_weight(const char *value, micros_t *weight, char error[SPEC_ERROR_SIZE])
{
    if (!micros_parse(value, weight) || *weight <= 0 || *weight > MAX_WEIGHT)
        return FAIL("weight=%s is not a positive number up to 1000; write for example weight=2",
                    shown(value).text);
    return true;
}

static bool parse_grace(const char *value, micros_t max_grace, micros_t *grace,
                        char error[SPEC_ERROR_SIZE])
{
    char limit[32];

    if (!micros_parse(value, grace))
        return FAIL("grace=%s is not a number of seconds; write for example grace=5",
                    shown(value).text);
    if (*grace > max_grace) {
        micros_format(max_grace, limit, sizeof(limit));
        return FAIL("grace=%s is more than this site allows; write grace=%s or less",
                    shown(value).text, limit);
    }
    return true;
}

static bool parse_node_hours(const char *value, micros_t *hours, char error[SPEC_ERROR_SIZE])
{
    if (!micros_parse(value, hours) || *hours <= 0)
        return FAIL("node_hours=%s is not a positive number; write for example node_hours=100",
                    shown(value).text);
    return true;
}

static bool parse_count(const char *value, unsigned *count, char error[SPEC_ERROR_SIZE])
{
    if (!number_parse(value, count) || *count < 1 || *count > MAX_COUNT)
        return FAIL("'%s' is not a count", shown(value).text);
    return true;
}

static bool parse_task(const char *value, struct record *record, char error[SPEC_ERROR_SIZE])
{
    record->has_task = number_parse(value, &record->task);
    return record->has_task || FAIL("'%s' is not a task of an array", shown(value).text);
}

static bool parse_nodes_wanted(const struct pair *pair, unsigned *count, char error[SPEC_ERROR_SIZE])
{
    if (!parse_count(pair->value, count, error))
        return FAIL("%s=%s is not a number of nodes; write for example %s=4", pair->key,
                    shown(pair->value).text, pair->key);
    return true;
}

/* The numbers of a list with colons between; false where one of them does not ascend. */
static bool read_sizes(const char *value, struct sizes *sizes)
{
    unsigned last = 0;

    for (sizes->count = 0; sizes->count < MAX_SIZES; value++) {
        unsigned *size = &sizes->size[sizes->count++];

        value = number_read(value, size);
        if (value == NULL || *size <= last || *size > MAX_COUNT)
            return false;
        if (value[0] != ':')
            return value[0] == '\0';
        last = *size;
    }
    return false;
}

static bool parse_sizes(const char *value, struct sizes *sizes, char error[SPEC_ERROR_SIZE])
{
    if (!read_sizes(value, sizes))
        return FAIL("sizes=%s is not a list of ascending numbers of nodes, at most %d of them; "
                    "write for example sizes=2:4:8",
                    shown(value).text, MAX_SIZES);
    return true;
}

/* A key with one possible value. */
static bool parse_only(const struct pair *pair, const char *value, bool *given,
                       char error[SPEC_ERROR_SIZE])
{
    *given = strcmp(pair->value, value) == 0;
    return *given || FAIL("%s=%s is not known; write %s=%s or leave it out", pair->key,
                          shown(pair->value).text, pair->key, value);
}

static bool parse_batch(const char *value, char batch[BATCH_SIZE], char error[SPEC_ERROR_SIZE])
{
    if (strcmp(value, "once") != 0 && strcmp(value, "each") != 0)
        return FAIL("batch=%s is not known; write batch=once or batch=each", shown(value).text);
    memcpy(batch, value, BATCH_SIZE);
    return true;
}

static bool parse_id(const char *value, char id[ID_DIGITS + 1], char error[SPEC_ERROR_SIZE])
{
    if (strlen(value) != ID_DIGITS || strspn(value, "0123456789abcdef") != ID_DIGITS)
        return FAIL("'%s' is not an id of eight hexadecimal digits", shown(value).text);
    memcpy(id, value, ID_DIGITS + 1);
    return true;
}

#define NAME_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

/* A record has colons where Slurm's lists have commas. */
static bool copy_list(const char *list, char copy[RECORD_SIZE])
{
    if (snprintf(copy, RECORD_SIZE, "%s", list) >= RECORD_SIZE)
        return false;
    for (char *comma = copy; (comma = strchr(comma, ',')) != NULL;)
        *comma = ':';
    return true;
}

static bool is_list_of_partitions(const char *at)
{
    for (;; at++) {
        size_t length = strspn(at, NAME_BYTES "+@/");

        at += length;
        if (length == 0 || at[0] != ':')
            return length > 0 && at[0] == '\0';
    }
}

static bool is_list_of_nodes(const char *at)
{
    if (at[0] == '\0')
        return false;
    while (at[0] != '\0') {
        size_t digits = at[0] == '[' ? strspn(at + 1, "0123456789:-") : 0;
        size_t length = digits > 0 && at[digits + 1] == ']' ? digits + 2 : strspn(at, NAME_BYTES ":");

        if (length == 0)
            return false;
        at += length;
    }
    return true;
}

bool record_take_partitions(const char *list, struct record *record, char error[SPEC_ERROR_SIZE])
{
    if (!copy_list(list, record->partitions) || !is_list_of_partitions(record->partitions))
        return FAIL("'%s' is not a list of partitions", shown(list).text);
    return true;
}

bool record_take_nodes(const char *list, struct record *record, char error[SPEC_ERROR_SIZE])
{
    if (!copy_list(list, record->nodes) || !is_list_of_nodes(record->nodes))
        return FAIL("'%s' is not a list of nodes", shown(list).text);
    return true;
}

static bool parse_key(const struct pair *pair, micros_t max_grace, struct request *request,
                      char error[SPEC_ERROR_SIZE])
{
    if (strcmp(pair->key, "weight") == 0)
        return parse_weight(pair->value, &request->spec.weight, error);
    if (strcmp(pair->key, "grace") == 0)
        return parse_grace(pair->value, max_grace, &request->spec.grace, error);
    if (strcmp(pair->key, "node_hours") == 0)
        return parse_node_hours(pair->value, &request->spec.node_hours, error);
    if (strcmp(pair->key, "min") == 0)
        return parse_nodes_wanted(pair, &request->min_nodes, error);
    if (strcmp(pair->key, "sizes") == 0)
        return parse_sizes(pair->value, &request->sizes, error);
    if (strcmp(pair->key, "step") == 0)
        return parse_nodes_wanted(pair, &request->sizes.step, error);
    if (strcmp(pair->key, "rendezvous") == 0)
        return parse_only(pair, "own", &request->own_rendezvous, error);
    if (strcmp(pair->key, "resume") == 0)
        return parse_only(pair, "no", &request->no_resume, error);
    if (strcmp(pair->key, "batch") == 0)
        return parse_batch(pair->value, request->batch, error);
    if (strcmp(pair->key, "gpus") == 0)
        return FAIL("unknown key 'gpus'; for K GPUs of each node write --gpus-per-node=K");
    return FAIL("unknown key '%s'; known keys: weight, grace, node_hours, min, sizes, step, "
                "rendezvous, resume, batch",
                shown(pair->key).text);
}

bool spec_parse(const char *text, micros_t max_grace, struct request *request,
                char error[SPEC_ERROR_SIZE])
{
    struct pairs pairs;

    *request = (struct request){.spec = DEFAULTS, .sizes.step = 1};
    /* What a plugin gets from Slurm for an option without a value; it depends on the place. */
    if (text == NULL || text[0] == '\0' || strcmp(text, "(null)") == 0)
        return true;
    if (!is_bounded(strlen(text), MAX_TEXT, error) || !split(text, strlen(text), &pairs, error))
        return false;
    for (size_t i = 0; i < pairs.count; i++)
        if (!parse_key(&pairs.pair[i], max_grace, request, error))
            return false;
    if (has_key(&pairs, "sizes") && has_key(&pairs, "step"))
        return FAIL("sizes and step exclude each other; write one of them");
    return true;
}

static bool parse_field(const struct pair *pair, struct record *record,
                        char error[SPEC_ERROR_SIZE])
{
    if (strcmp(pair->key, "min") == 0)
        return parse_count(pair->value, &record->min_nodes, error);
    if (strcmp(pair->key, "max") == 0)
        return parse_count(pair->value, &record->max_nodes, error);
    if (strcmp(pair->key, "minutes") == 0)
        return parse_count(pair->value, &record->minutes, error);
    if (strcmp(pair->key, "weight") == 0)
        return parse_weight(pair->value, &record->spec.weight, error);
    if (strcmp(pair->key, "grace") == 0)
        return parse_grace(pair->value, NO_MAX_GRACE, &record->spec.grace, error);
    if (strcmp(pair->key, "node_hours") == 0)
        return parse_node_hours(pair->value, &record->spec.node_hours, error);
    if (strcmp(pair->key, "personal") == 0) {
        record->personal = strcmp(pair->value, "1") == 0;
        return record->personal || FAIL("'%s' is not a flag", shown(pair->value).text);
    }
    if (strcmp(pair->key, "partitions") == 0)
        return record_take_partitions(pair->value, record, error);
    if (strcmp(pair->key, "nodes") == 0)
        return record_take_nodes(pair->value, record, error);
    if (strcmp(pair->key, "sizes") == 0)
        return parse_sizes(pair->value, &record->sizes, error);
    if (strcmp(pair->key, "step") == 0)
        return parse_count(pair->value, &record->sizes.step, error);
    if (strcmp(pair->key, "task") == 0)
        return parse_task(pair->value, record, error);
    if (strcmp(pair->key, "id") == 0)
        return parse_id(pair->value, record->id, error);
    return FAIL("unknown key '%s' in a trainer's comment", shown(pair->key).text);
}

/* Whether the least and the most number of nodes are among the sizes. */
static bool sizes_fit(const struct record *record)
{
    const struct sizes *sizes = &record->sizes;

    if (sizes->count > 0 &&
        (sizes->step > 1 || sizes->size[0] != record->min_nodes ||
         sizes->size[sizes->count - 1] != record->max_nodes))
        return false;
    return record->min_nodes % sizes->step == 0 && record->max_nodes % sizes->step == 0;
}

static bool is_in_word(char one)
{
    return (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9') ||
           one == '_';
}

/* The first record in a comment, NULL without one: sites put words of their own before it. */
static const char *find_record(const char *comment)
{
    const char *at = comment;

    while ((at = strstr(at, RECORD_PREFIX)) != NULL && at > comment && is_in_word(at[-1]))
        at++;
    return at;
}

bool record_parse(const char *comment, struct record *record, char error[SPEC_ERROR_SIZE])
{
    struct pairs pairs;
    const size_t prefix = strlen(RECORD_PREFIX);
    const char *text = find_record(comment);
    size_t length;

    *record = (struct record){.spec = DEFAULTS, .sizes.step = 1};
    if (text == NULL)
        return FAIL("not a trainer's comment");
    length = strcspn(text, " "); /* behind it stands the user's own comment */
    if (!is_bounded(length, RECORD_SIZE - 1, error) ||
        !split(text + prefix, length - prefix, &pairs, error))
        return false;
    for (size_t i = 0; i < pairs.count; i++)
        if (!parse_field(&pairs.pair[i], record, error))
            return false;
    if (record->min_nodes == 0 || record->max_nodes == 0 || record->min_nodes > record->max_nodes)
        return FAIL("a trainer's comment needs min and max, min not above max");
    if (!sizes_fit(record))
        return FAIL("sizes and step of a trainer's comment do not fit its min and max");
    return true;
}

bool text_add(char *text, size_t size, const char *format, ...)
{
    size_t length = strlen(text);
    va_list values;
    int added;

    va_start(values, format);
    added = vsnprintf(text + length, size - length, format, values);
    va_end(values);
    return (size_t)added < size - length;
}

static void add_spec(const struct spec *spec, char *text, size_t size)
{
    char number[32];

    micros_format(spec->weight, number, sizeof(number));
    text_add(text, size, "weight=%s", number);
    micros_format(spec->grace, number, sizeof(number));
    text_add(text, size, ",grace=%s", number);
    micros_format(spec->node_hours, number, sizeof(number));
    if (spec->node_hours > 0)
        text_add(text, size, ",node_hours=%s", number);
}

static void add_sizes(const struct sizes *sizes, char *text, size_t size)
{
    for (unsigned i = 0; i < sizes->count; i++)
        text_add(text, size, "%s%u", i == 0 ? ",sizes=" : ":", sizes->size[i]);
    if (sizes->step > 1)
        text_add(text, size, ",step=%u", sizes->step);
}

void spec_format(const struct request *request, char *text, size_t size)
{
    text[0] = '\0';
    add_spec(&request->spec, text, size);
    if (request->min_nodes > 0)
        text_add(text, size, ",min=%u", request->min_nodes);
    add_sizes(&request->sizes, text, size);
}

bool record_format(const struct record *record, char text[RECORD_SIZE])
{
    char full[4 * RECORD_SIZE];

    snprintf(full, sizeof(full), RECORD_PREFIX "min=%u,max=%u,", record->min_nodes, record->max_nodes);
    add_spec(&record->spec, full, sizeof(full));
    if (record->minutes > 0)
        text_add(full, sizeof(full), ",minutes=%u", record->minutes);
    if (record->personal)
        text_add(full, sizeof(full), ",personal=1");
    if (record->partitions[0] != '\0')
        text_add(full, sizeof(full), ",partitions=%s", record->partitions);
    if (record->nodes[0] != '\0')
        text_add(full, sizeof(full), ",nodes=%s", record->nodes);
    add_sizes(&record->sizes, full, sizeof(full));
    if (record->has_task)
        text_add(full, sizeof(full), ",task=%u", record->task);
    if (record->id[0] != '\0')
        text_add(full, sizeof(full), ",id=%s", record->id);
    return snprintf(text, RECORD_SIZE, "%s", full) < RECORD_SIZE;
}
