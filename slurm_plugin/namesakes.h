/*
 * --dependency=singleton: this job waits for those of its user and its name that are there. As Slurm
 * reads it, each element of a trainer would wait for the others.
 */
#ifndef BFTRAINER_NAMESAKES_H
#define BFTRAINER_NAMESAKES_H

#include "options.h"
#include "rewrite.h"

/* Puts "afterany" and these jobs in its place. */
bool namesakes_wait(slurm_opt_t *options, char error[REWRITE_ERROR_SIZE]);

#endif
