/*
 * -N as its user wrote it: in a script of any bytes, and on a command line of any words (the
 * input, split at its NULs). Whatever is found fits.
 */
#include "../node_range.c" /* what reads the script and the words is not exported */
#include "fuzz.h"

#define RANGE_SIZE 64
#define MAX_WORDS 64

static void try_script(char *text, size_t size)
{
    char range[RANGE_SIZE] = "";
    FILE *script = size > 0 ? fmemopen(text, size, "r") : NULL;

    if (script == NULL)
        return;
    if (find_in_script(script, range, sizeof(range)))
        PROMISE(strnlen(range, sizeof(range)) < sizeof(range));
    fclose(script);
}

static void try_words(char *text, size_t size)
{
    char *words[MAX_WORDS];
    char range[RANGE_SIZE] = "";
    int count = 0;

    for (size_t at = 0; at < size && count < MAX_WORDS; at += strlen(text + at) + 1)
        words[count++] = text + at;
    if (copy_found(words, count, range, sizeof(range)))
        PROMISE(strnlen(range, sizeof(range)) < sizeof(range));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = text_of(data, size);

    try_words(text, size);
    try_script(text, size);
    free(text);
    return 0;
}
