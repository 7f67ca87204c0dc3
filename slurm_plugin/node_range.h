/*
 * The -N of an sbatch as its user wrote it, which Slurm's own options do not show: they read
 * "4" for 4-4, and from 24.11 "2-6" for 2-8:2 and "2-8" for 2,4,8.
 */
#ifndef BFTRAINER_NODE_RANGE_H
#define BFTRAINER_NODE_RANGE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Looks on the command line, then in the script's #SBATCH lines. False where there is none, and
 * where the script came through a pipe and can no longer be read.
 */
bool node_range_written(char *range, size_t size);

#endif
