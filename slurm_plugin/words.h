/*
 * Numbers in words: of the plugstack line, and those that sbatch passes on to an element. They may be any
 * bytes, for a user can write them too; knows nothing of Slurm.
 */
#pragma once

#include <stdbool.h>

#define MAX_NODES 1000000
#define DEFAULT_GRACE_MS 500

/* What may be shown on a terminal: printable ASCII, other bytes as '?', not too long. */
#define MAX_SHOWN 40
struct shown {
    char text[MAX_SHOWN + 1];
};
struct shown shown(const char *text);

/* Returns the text after a whole number of at most 7 digits; NULL if there is no number. */
const char *number_read(const char *at, unsigned *number);
/* False if the text is anything but such a number. */
bool number_parse(const char *text, unsigned *number);

/* Seconds, with at most six digits before and behind the point; less than a millisecond is cut off. */
bool milliseconds_parse(const char *text, unsigned *milliseconds);

/* What an element needs to know of its trainer: "MOST GRACE TASK", as in "16 0.5 -". */
#define PASSED_SIZE 48
struct passed {
    unsigned max_nodes;
    unsigned grace_ms;
    bool has_task;
    unsigned task; /* of the user's own --array, which this trainer is */
};
bool passed_parse(const char *text, struct passed *passed);
