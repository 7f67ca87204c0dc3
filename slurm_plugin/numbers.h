/* Numbers in the values of options: 4, and of GPUs a100:4. */
#ifndef BFTRAINER_NUMBERS_H
#define BFTRAINER_NUMBERS_H

#include "options.h"

#include <stdbool.h>

/* Reads a number above 0. */
bool numbers_read(const char *text, unsigned *number);

/* The number at the end of TYPE:NUMBER, which begins at the number itself or behind the last colon. */
const char *numbers_last(const char *gpus);

/*
 * How many GPUs of a node an option asks for: a100:4, or in --gres with the prefix gpu, as Slurm shows it,
 * gpu:a100:4, gres:gpu:4 or gres/gpu=4. 0 if it is not given.
 */
unsigned numbers_gpus(slurm_opt_t *options, const char *name, const char *prefix);

#endif
