/*
 * Paths in a script that differ from node to node of a trainer, and from start to start: each element has
 * a job id of its own, and runs the script at a time of its own. The same rules as script_paths.py.
 */
#ifndef BFTRAINER_SCRIPT_PATHS_H
#define BFTRAINER_SCRIPT_PATHS_H

#include <stdio.h>

enum changing { JOB_ID, THE_TIME, PYTHON_PATH, CHANGING_KINDS };

/* Where it is set so that Python does not find us any more, though srun puts us back. */
#define SAYS_PYTHON_PATH                                                                               \
    "line %u sets PYTHONPATH anew, which hides BFTrainer from torchrun and Python there: they end, or "   \
    "each node trains alone; write PYTHONPATH=...:$PYTHONPATH"

/* The lines (from 1) of the first such path of each kind; 0: none. */
void script_paths_find(FILE *script, unsigned lines[CHANGING_KINDS]);

#endif
