/*
 * Shared by the fuzz targets: PROMISE prints the broken promise before it aborts the process.
 * A target is libFuzzer's one function; fuzz_replay.c calls it without libFuzzer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PROMISE(holds)                                                                       \
    do {                                                                                     \
        if (!(holds)) {                                                                      \
            fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #holds);      \
            abort();                                                                         \
        }                                                                                    \
    } while (0)

/* A copy that ends where the input ends, so that sanitizers notice a read beyond it. */
static inline char *text_of(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (text == NULL)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* What is shown to a user must be one line of printable ASCII, and not empty. */
static inline void promise_one_line(const char *error, size_t size)
{
    size_t length = strnlen(error, size);

    PROMISE(length > 0 && length < size);
    for (size_t i = 0; i < length; i++)
        PROMISE(error[i] >= 32 && error[i] < 127);
}
