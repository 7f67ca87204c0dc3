#include "answer.h"

#include <string.h>

#define TEXTS 3 /* of a word */

static const char END[] = "done\0\0"; /* and its last NUL is the literal's own */

bool answer_is_whole(const char *answer, size_t length)
{
    size_t texts = 0;

    if (length < sizeof(END) || memcmp(answer + length - sizeof(END), END, sizeof(END)) != 0)
        return false;
    for (size_t i = 0; i < length; i++)
        texts += answer[i] == '\0';
    return texts % TEXTS == 0 && (length == sizeof(END) || answer[length - sizeof(END) - 1] == '\0');
}

static const char *next_text(const char **at)
{
    const char *text = *at;

    *at += strlen(text) + 1;
    return text;
}

bool answer_next(const char **at, struct word *word)
{
    word->verb = next_text(at);
    word->name = next_text(at);
    word->value = next_text(at);
    return strcmp(word->verb, "done") != 0;
}
