/*
 * Helper processes that Slurm and the user's job never notice.
 */
#ifndef BFTRAINER_PROCESS_H
#define BFTRAINER_PROCESS_H

#include <stddef.h>

/*
 * Makes the calling, just forked process a helper: a name of its own (proctrack/linuxproc never
 * signals a "slurmstepd"), default signal handlers (the mask stays), /dev/null for its standard
 * streams, and no other files but those `kept`.
 */
void process_become_helper(const char *name, const int *kept, size_t count);

#endif
