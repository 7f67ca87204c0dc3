/*
 * What an element's environment tells torchrun; the same as bftrainer_slurm/elastic/environment.py.
 */
#ifndef BFTRAINER_TORCHRUN_H
#define BFTRAINER_TORCHRUN_H

#include "site.h"

#include <slurm/spank.h>
#include <sys/types.h>

#define RUN_SIZE 65 /* of the id that the keeper gives one life of a trainer */

/* Whom the keeper runs as. `user` is a name or an id; empty: SlurmUser. */
bool torchrun_keeper_user(const char *user, uid_t *found);

/* For a batch script, and for a step that has nothing of its script's environment. */
void torchrun_set(spank_t spank, const struct site *site, const char *run, unsigned max_nodes);

/* For a step with its script's environment: puts our folder back if the script replaced it. */
void torchrun_mend(spank_t spank, const struct site *site);

/* In a process of the job that submits another one: takes all of it out of its own environment. */
void torchrun_unset(const struct site *site);

#endif
