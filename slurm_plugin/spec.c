#include "spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT 256
#define MAX_PAIRS (MAX_TEXT / 2)
#define MAX_DIGITS 6
#define EXAMPLE "--bftrainer=weight=2,grace=5"

static const struct spec DEFAULTS = {.weight = MICROS, .grace = MICROS / 2};
static const micros_t MAX_WEIGHT = 1000 * MICROS;

struct pair {
    const char *key;
    const char *value;
};

struct pairs {
    char text[MAX_TEXT + 1];
    struct pair pair[MAX_PAIRS];
    size_t count;
};

struct shown shown(const char *text)
{
    struct shown result;
    size_t i;

    for (i = 0; i < MAX_SHOWN && text[i] != '\0'; i++)
        result.text[i] = (text[i] >= 32 && text[i] < 127) ? text[i] : '?';
    result.text[i] = '\0';
    return result;
}

#define FAIL(...) (snprintf(error, SPEC_ERROR_SIZE, __VA_ARGS__), false)

static bool add_pair(struct pairs *pairs, char *part, char error[SPEC_ERROR_SIZE])
{
    char *equals = strchr(part, '=');

    if (equals == NULL || equals == part || equals[1] == '\0')
        return FAIL("'%s' is not KEY=VALUE; write for example " EXAMPLE, shown(part).text);
    *equals = '\0';
    for (size_t i = 0; i < pairs->count; i++)
        if (strcmp(pairs->pair[i].key, part) == 0)
            return FAIL("key '%s' is given twice", shown(part).text);
    pairs->pair[pairs->count++] = (struct pair){.key = part, .value = equals + 1};
    return true;
}

static bool split(const char *text, struct pairs *pairs, char error[SPEC_ERROR_SIZE])
{
    size_t length = strlen(text);
    char *next = pairs->text;
    char *part;

    if (length > MAX_TEXT)
        return FAIL("longer than %d characters; write for example " EXAMPLE, MAX_TEXT);
    memcpy(pairs->text, text, length + 1);
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
    size_t length = digits(value);

    if (length >= 1 && length <= MAX_DIGITS + 1 && value[length] == '\0')
        *count = (unsigned)strtoul(value, NULL, 10);
    else
        *count = 0;
    if (*count < 1 || *count > MAX_COUNT)
        return FAIL("'%s' is not a count", shown(value).text);
    return true;
}

static bool parse_id(const char *value, char id[ID_DIGITS + 1], char error[SPEC_ERROR_SIZE])
{
    if (strlen(value) != ID_DIGITS || strspn(value, "0123456789abcdef") != ID_DIGITS)
        return FAIL("'%s' is not an id of eight hexadecimal digits", shown(value).text);
    memcpy(id, value, ID_DIGITS + 1);
    return true;
}

bool spec_parse(const char *text, micros_t max_grace, struct spec *spec,
                char error[SPEC_ERROR_SIZE])
{
    struct pairs pairs;

    *spec = DEFAULTS;
    /* What a plugin gets from Slurm for an option without a value; it depends on the place. */
    if (text == NULL || text[0] == '\0' || strcmp(text, "(null)") == 0)
        return true;
    if (!split(text, &pairs, error))
        return false;
    for (size_t i = 0; i < pairs.count; i++) {
        const struct pair *pair = &pairs.pair[i];

        if (strcmp(pair->key, "weight") == 0) {
            if (!parse_weight(pair->value, &spec->weight, error))
                return false;
        } else if (strcmp(pair->key, "grace") == 0) {
            if (!parse_grace(pair->value, max_grace, &spec->grace, error))
                return false;
        } else if (strcmp(pair->key, "node_hours") == 0) {
            if (!parse_node_hours(pair->value, &spec->node_hours, error))
                return false;
        } else {
            return FAIL("unknown key '%s'; known keys: weight, grace, node_hours", shown(pair->key).text);
        }
    }
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
    if (strcmp(pair->key, "id") == 0)
        return parse_id(pair->value, record->id, error);
    return FAIL("unknown key '%s' in a trainer's comment", shown(pair->key).text);
}

bool record_parse(const char *text, struct record *record, char error[SPEC_ERROR_SIZE])
{
    struct pairs pairs;

    *record = (struct record){.spec = DEFAULTS};
    if (strncmp(text, RECORD_PREFIX, strlen(RECORD_PREFIX)) != 0)
        return FAIL("not a trainer's comment");
    if (!split(text + strlen(RECORD_PREFIX), &pairs, error))
        return false;
    for (size_t i = 0; i < pairs.count; i++)
        if (!parse_field(&pairs.pair[i], record, error))
            return false;
    if (record->min_nodes == 0 || record->max_nodes == 0 || record->min_nodes > record->max_nodes)
        return FAIL("a trainer's comment needs min and max, min not above max");
    return true;
}

void spec_format(const struct spec *spec, char *text, size_t size)
{
    char weight[32];
    char grace[32];
    char hours[32];

    micros_format(spec->weight, weight, sizeof(weight));
    micros_format(spec->grace, grace, sizeof(grace));
    micros_format(spec->node_hours, hours, sizeof(hours));
    snprintf(text, size, "weight=%s,grace=%s%s%s", weight, grace,
             spec->node_hours > 0 ? ",node_hours=" : "", spec->node_hours > 0 ? hours : "");
}

void record_format(const struct record *record, char *text, size_t size)
{
    char spec[80];
    char minutes[24] = "";

    spec_format(&record->spec, spec, sizeof(spec));
    if (record->minutes > 0)
        snprintf(minutes, sizeof(minutes), ",minutes=%u", record->minutes);
    snprintf(text, size, RECORD_PREFIX "min=%u,max=%u,%s%s%s%s%s", record->min_nodes,
             record->max_nodes, spec, minutes, record->personal ? ",personal=1" : "",
             record->id[0] != '\0' ? ",id=" : "", record->id);
}
