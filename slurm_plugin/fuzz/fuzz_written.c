/*
 * The options as their user wrote them: in a script of any bytes, and on a command line of any words
 * (the input, split at its NULs). Each value that is found fits into its array.
 */
#include "../written.c" /* the functions that read the script and the words are not exported */
#include "fuzz.h"

#define MAX_WORDS 64

static void promise_they_fit(char values[WRITTEN_OPTIONS][WRITTEN_SIZE])
{
    for (int i = 0; i < WRITTEN_OPTIONS; i++)
        PROMISE(strnlen(values[i], WRITTEN_SIZE) < WRITTEN_SIZE);
}

static void try_script(char *text, size_t size)
{
    char values[WRITTEN_OPTIONS][WRITTEN_SIZE] = {""};
    FILE *script = size > 0 ? fmemopen(text, size, "r") : NULL;

    if (script == NULL)
        return;
    read_script(script, values);
    promise_they_fit(values);
    fclose(script);
}

static void try_words(char *text, size_t size)
{
    char *words[MAX_WORDS];
    char values[WRITTEN_OPTIONS][WRITTEN_SIZE] = {""};
    int count = 0;

    for (size_t at = 0; at < size && count < MAX_WORDS; at += strlen(text + at) + 1)
        words[count++] = text + at;
    read_words(words, count, values);
    promise_they_fit(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = text_of(data, size);

    try_words(text, size);
    try_script(text, size);
    free(text);
    return 0;
}
