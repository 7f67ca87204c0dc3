#include "words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIGITS 6 /* of seconds, on each side of the point */

struct shown shown(const char *text)
{
    struct shown result;
    size_t i;

    for (i = 0; i < MAX_SHOWN && text[i] != '\0'; i++)
        result.text[i] = (text[i] >= 32 && text[i] < 127) ? text[i] : '?';
    result.text[i] = '\0';
    return result;
}

static size_t digits(const char *text)
{
    return strspn(text, "0123456789");
}

const char *number_read(const char *at, unsigned *number)
{
    size_t length = digits(at);
    bool good = length >= 1 && length <= MAX_DIGITS + 1;

    *number = good ? (unsigned)strtoul(at, NULL, 10) : 0;
    return good ? at + length : NULL;
}

bool number_parse(const char *text, unsigned *number)
{
    const char *behind = number_read(text, number);

    return behind != NULL && behind[0] == '\0';
}

bool milliseconds_parse(const char *text, unsigned *milliseconds)
{
    size_t whole = digits(text);
    bool has_point = text[whole] == '.';
    const char *decimals = text + whole + has_point;
    size_t count = digits(decimals);

    if (whole < 1 || whole > MAX_DIGITS || has_point != (count > 0) || count > MAX_DIGITS ||
        decimals[count] != '\0')
        return false;
    *milliseconds = (unsigned)strtoul(text, NULL, 10) * 1000;
    for (unsigned i = 0, place = 100; i < count; i++, place /= 10)
        *milliseconds += (unsigned)(decimals[i] - '0') * place;
    return true;
}

bool passed_parse(const char *text, struct passed *passed)
{
    char copy[PASSED_SIZE];
    char *rest = copy;
    const char *nodes;
    const char *grace;

    if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy))
        return false;
    nodes = strsep(&rest, " ");
    grace = strsep(&rest, " ");
    passed->has_task = rest != NULL && strcmp(rest, "-") != 0;
    return rest != NULL && number_parse(nodes, &passed->max_nodes) && passed->max_nodes >= 1 &&
           passed->max_nodes <= MAX_NODES && milliseconds_parse(grace, &passed->grace_ms) &&
           (!passed->has_task || number_parse(rest, &passed->task));
}
