/*
 * Reads the answer of the rewriting program: words of three texts, each text ended by a NUL.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct word {
    const char *verb;
    const char *name;
    const char *value;
};

/* Whether the answer is complete: whole words only, and the last of them is "done". */
bool answer_is_whole(const char *answer, size_t length);

/* Takes the next word of a whole answer; false at "done". */
bool answer_next(const char **at, struct word *word);
