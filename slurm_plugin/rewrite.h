/*
 * Turns a tagged submission into a held job array of one-node elements: the one rewriting, linked
 * by the SPANK plugin and by the cli_filter.
 */
#ifndef BFTRAINER_REWRITE_H
#define BFTRAINER_REWRITE_H

#include "options.h"
#include "spec.h"

#define REWRITE_ERROR_SIZE 640

/* Where the site wants trainers. */
struct target {
    const char *partition;
    const char *qos; /* empty: whatever the user has */
    bool share;      /* elements that ask for GPUs, or for cores, have parts of nodes */
};

/* The names of the options that are refused whatever they say, each followed by a space. */
extern const char rewrite_refused_names[];

/* Of --time-min, which the rewriting sets itself. */
#define TIME_MIN_IS_OURS "--time-min is left out: Slurm may cut a run short anyway"

/* Whether --array has one task alone, which a trainer can be. */
bool rewrite_one_task(slurm_opt_t *options, unsigned *task);

/*
 * What elements have of a node, if they have a part of it: "GPUs", with their cores and memory, or
 * "cores", with their memory. NULL: they have whole nodes.
 */
const char *rewrite_shares(slurm_opt_t *options, const struct target *target);

/* Reads what a submission that may be rewritten says; otherwise false, and `error` says what to
 * write instead, in one line. */
bool rewrite_may(slurm_opt_t *options, const struct request *request, const struct target *target,
                 struct record *record, char error[REWRITE_ERROR_SIZE]);

/* False: nothing may be submitted, and `error` says what to write instead, in one line. */
bool rewrite_submission(slurm_opt_t *options, const struct request *request,
                        const struct target *target, char error[REWRITE_ERROR_SIZE]);

/* Reads back what a rewriting has left; false when this submission has not been rewritten. */
bool rewrite_read_back(slurm_opt_t *options, const struct request *request,
                       const struct target *target, struct record *record,
                       char error[REWRITE_ERROR_SIZE]);

#endif
