/*
 * Helper processes that Slurm and the user's job never notice.
 */
#ifndef BFTRAINER_PROCESS_H
#define BFTRAINER_PROCESS_H

/*
 * Makes the calling, just forked process a helper: a name of its own (proctrack/linuxproc never
 * signals a "slurmstepd"), default signal handlers (the mask stays), /dev/null for its standard
 * streams, and no other file but `kept` (-1: none).
 */
void process_become_helper(const char *name, int kept);

#endif
