/*
 * Sets an element's environment for torchrun, as bftrainer_slurm/elastic/environment.py does.
 */
#pragma once

#include "site.h"

#include <slurm/spank.h>

#define RUN_SIZE 65 /* of the keeper's id for one run of a trainer */

/* Of the job's environment. */
bool variable_is(spank_t spank, const char *name, const char *wanted);

/* For a batch script, and for a step without its script's environment. */
void torchrun_set(spank_t spank, const struct site *site, const char *run, unsigned max_nodes);

/* For a step with its script's environment: puts our folder back if the script replaced it. */
void torchrun_mend(spank_t spank, const struct site *site);

/* Call in a process of the job that submits another job: removes all these variables. */
void torchrun_unset(const struct site *site);
