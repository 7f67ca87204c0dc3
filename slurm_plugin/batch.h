/*
 * A batch script may run on one of a trainer's nodes while its steps run on all: this file has only what
 * needs Slurm. bftrainer_slurm/elastic/batch does the rest; it starts in place of the script.
 */
#pragma once

#include "site.h"

#include <slurm/spank.h>

/* Call in a batch script's task before it executes the script; changes nothing if that cannot work.
 * With `tell` the output says why the script runs on each node, if it does. */
void batch_take_place(spank_t spank, const struct site *site, bool tell);

/* Call first in an srun: tells the process in the script's place, and may end the srun. */
void batch_tell_step(void);
