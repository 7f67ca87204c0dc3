/*
 * The rewriting program's answer, of any bytes: a whole one is read to its end and not further.
 */
#include "../answer.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *answer = malloc(size > 0 ? size : 1); /* no NUL behind it, as in the plugin */
    const char *at = answer;
    struct word word;

    if (answer == NULL)
        abort();
    memcpy(answer, data, size);
    if (answer_is_whole(answer, size)) {
        while (answer_next(&at, &word))
            PROMISE(word.value + strlen(word.value) < answer + size);
        PROMISE(at <= answer + size);
    }
    free(answer);
    return 0;
}
