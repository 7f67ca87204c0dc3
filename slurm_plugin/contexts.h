/*
 * The SPANK hooks by the program they run in; spank_plugin.c only dispatches to these.
 */
#pragma once

#include "site.h"

#include <slurm/spank.h>

/* sbatch, salloc and srun: spank_submit.c */
void submit_init(const struct site *site);
int submit_take_option(const struct site *site, const char *text);
void submit_check_or_exit(spank_t spank, const struct site *site);
void submit_announce(const struct site *site);
void submit_exit(const struct site *site);

/* slurmstepd, and the task that it has forked: spank_element.c */
void element_make_secret(spank_t spank, const struct site *site);
void element_recognise(spank_t spank, const struct site *site);
void element_guard_task(spank_t spank);
void element_start_task(spank_t spank, const struct site *site);
void element_end_task(spank_t spank);
void element_exit(void);
