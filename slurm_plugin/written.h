/*
 * Reads what the user wrote on sbatch's command line and in the script's #SBATCH lines. Slurm's own
 * options do not show it: they have only the last value, "4" for 4-4, from 24.11 on "2-6" for 2-8:2 and
 * "2-8" for 2,4,8, and sbatch changes values that do not fit.
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
    bool has_script; /* false if it came through a pipe and cannot be read again */
};

void written_read(struct written *written);

/* Opens the script again from its beginning; NULL if it cannot be read again. */
FILE *written_script(void);

/* The option's value on the command line, or else in the script; empty if neither has it. */
const char *written_value(const struct written *written, enum written_option option);

/* What to type instead of this sbatch: bftrainer submit with the same words. False if that is unknown,
 * too long, or not printable. */
bool written_as_submit(char *command, size_t size);

#endif
