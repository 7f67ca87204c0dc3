/*
 * Paths in a script that differ from node to node of a trainer, and from start to start: each element has
 * a job id of its own, and runs the script at a time of its own. The same rules as script_paths.py.
 */
#ifndef BFTRAINER_SCRIPT_PATHS_H
#define BFTRAINER_SCRIPT_PATHS_H

#include <stdio.h>

enum changing { JOB_ID, THE_TIME, CHANGING_KINDS };

/* The lines (from 1) of the first such path of each kind; 0: none. */
void script_paths_find(FILE *script, unsigned lines[CHANGING_KINDS]);

#endif
