/*
 * What the user of an sbatch wrote, on the command line and in the script's #SBATCH lines. Slurm's own
 * options do not show it: there the last one counts, they read "4" for 4-4, from 24.11 "2-6" for 2-8:2
 * and "2-8" for 2,4,8, and sbatch changes what does not fit.
 */
#ifndef BFTRAINER_WRITTEN_H
#define BFTRAINER_WRITTEN_H

#include <stdbool.h>
#include <stdio.h>

#define WRITTEN_SIZE 64

enum place { COMMAND_LINE, SCRIPT, PLACES };
enum written_option { NODES, NTASKS, NTASKS_PER_NODE, GPUS, WRITTEN_OPTIONS };

struct written {
    char value[PLACES][WRITTEN_OPTIONS][WRITTEN_SIZE]; /* empty: not there */
    bool has_script; /* false where it came through a pipe and can no longer be read */
};

void written_read(struct written *written);

/* The script once more from its beginning; NULL where it can no longer be read. */
FILE *written_script(void);

/* The option's value: the command line's, or the script's; empty where neither has it. */
const char *written_value(const struct written *written, enum written_option option);

/* What to type instead of this sbatch: bftrainer submit, with the same words. False where that is not
 * known, too long, or not to be shown. */
bool written_as_submit(char *command, size_t size);

#endif
