/*
 * Helper processes that Slurm and the user's job never notice, and their clock.
 */
#pragma once

#include <stddef.h>

/*
 * Makes the calling process, just forked, a helper: with another name (proctrack/linuxproc never signals
 * a "slurmstepd"), default signal handlers (the mask stays), /dev/null as its standard streams, and no
 * open files except those `kept`.
 */
void process_become_helper(const char *name, const int *kept, size_t count);

long long monotonic_ms(void);
