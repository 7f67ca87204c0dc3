/*
 * A batch script that runs on one of a trainer's nodes while its steps run on all: here is only what
 * needs Slurm. Everything else does bftrainer_slurm/elastic/batch, which takes the script's place.
 */
#ifndef BFTRAINER_BATCH_H
#define BFTRAINER_BATCH_H

#include "site.h"

#include <slurm/spank.h>

/* In a batch script's task, before it becomes the script; changes nothing where that cannot work. With
 * `tell` the output says why the script runs on each node. */
void batch_take_place(spank_t spank, const struct site *site, bool tell);

/* In an srun, before it does anything: says so to the script's place, and may end here. */
void batch_tell_step(void);

#endif
