/*
 * Whether a batch script can run on one of a trainer's nodes alone: one that starts its training by
 * srun, puts nothing onto the node's own disk or into its memory, which no other node would have, and
 * is not written for each node.
 */
#ifndef BFTRAINER_SCRIPT_ONCE_H
#define BFTRAINER_SCRIPT_ONCE_H

/* Why it runs on each node, to be put behind "this script"; NULL: it can run on one alone. */
const char *script_runs_on_each(const char *path);

#endif
