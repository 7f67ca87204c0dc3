/*
 * --dependency=singleton: this job waits for its user's present jobs of the same name. With Slurm's own
 * singleton the elements of a trainer would also wait for each other.
 */
#ifndef BFTRAINER_NAMESAKES_H
#define BFTRAINER_NAMESAKES_H

#include "options.h"
#include "rewrite.h"

/* Replaces the singleton by "afterany" and these jobs. */
bool namesakes_wait(slurm_opt_t *options, char error[REWRITE_ERROR_SIZE]);

#endif
