/*
 * Rewrites a tagged submission into a held job array of one-node elements.
 */
#ifndef BFTRAINER_REWRITE_H
#define BFTRAINER_REWRITE_H

#include "options.h"
#include "site.h"
#include "spec.h"

#define REWRITE_ERROR_SIZE 640

/* For functions that return false with one line in their `error`. */
#define FAIL(...) (snprintf(error, REWRITE_ERROR_SIZE, __VA_ARGS__), false)

/* The names of the options that are always refused, each followed by a space. */
extern const char rewrite_refused_names[];

bool rewrite_set(slurm_opt_t *options, const char *name, const char *value,
                 char error[REWRITE_ERROR_SIZE]);
bool rewrite_reset(slurm_opt_t *options, const char *name, char error[REWRITE_ERROR_SIZE]);

/* Whether --array has exactly one task, which can be a trainer. */
bool rewrite_one_task(slurm_opt_t *options, unsigned *task);

/* Whether the user asks for all memory of a node (--mem=0): no other job fits beside that. */
bool rewrite_takes_all_memory(slurm_opt_t *options);

/* Whether elements have a part of a node: its GPUs, with their cores and memory. */
bool rewrite_shares(slurm_opt_t *options, const struct site *site);

/* Reads a submission; if it cannot be rewritten, returns false, and one line in `error` says what to
 * write instead. */
bool rewrite_may(slurm_opt_t *options, const struct request *request, const struct site *site,
                 struct record *record, char error[REWRITE_ERROR_SIZE]);

/* On failure returns false: nothing may be submitted; one line in `error` says what to write. */
bool rewrite_submission(slurm_opt_t *options, const struct request *request,
                        const struct site *site, char error[REWRITE_ERROR_SIZE]);

/* Reads a rewritten submission back; false if it has not been rewritten. */
bool rewrite_read_back(slurm_opt_t *options, const struct request *request,
                       const struct site *site, struct record *record,
                       char error[REWRITE_ERROR_SIZE]);

#endif
