/*
 * Whether a batch script can run on one node of a trainer alone: it must start its training by srun, must
 * not write to the node's own disk or memory, which other nodes do not see, and must not be written
 * for each node.
 */
#ifndef BFTRAINER_SCRIPT_ONCE_H
#define BFTRAINER_SCRIPT_ONCE_H

/* Why it runs on each node, to follow "this script"; NULL: it can run on one node alone. */
const char *script_runs_on_each(const char *path);

#endif
