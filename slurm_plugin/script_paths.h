/*
 * Finds paths in a script that differ on each node and at each start of a trainer: each element has its
 * own job id, and runs the script at its own time. The rules are those of script_paths.py.
 */
#ifndef BFTRAINER_SCRIPT_PATHS_H
#define BFTRAINER_SCRIPT_PATHS_H

#include <stdio.h>

enum changing { JOB_ID, THE_TIME, PYTHON_PATH, CHANGING_KINDS };

/* Where it is set so that Python no longer finds our package, although srun restores it. */
#define SAYS_PYTHON_PATH                                                                               \
    "line %u sets PYTHONPATH anew, which hides BFTrainer from torchrun and Python there: they end, or "   \
    "each node trains alone; write PYTHONPATH=...:$PYTHONPATH"

/* The lines (from 1) of the first such path of each kind; 0: none. */
void script_paths_find(FILE *script, unsigned lines[CHANGING_KINDS]);

/* Where a text has a word, which no letter, digit or underscore touches; NULL: nowhere. */
const char *script_find_word(const char *text, const char *word);

#endif
