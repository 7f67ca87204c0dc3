/*
 * Runs the program that decides what becomes of a tagged submission
 * (bftrainer_slurm/submission/rewrite_program.py): a JSON document in, an answer (answer.h) out.
 */
#pragma once

#include "options.h"
#include "site.h"

#define REWRITER_ERROR 1024

struct rewriter {
    int document; /* files in memory; -1: none */
    int answer;
};

/* All of these return false, with one line in `error`, if it is not possible. */

/* Begins a document: what only the plugin knows. */
bool rewriter_begin(struct rewriter *rewriter, const struct site *site, const char *spec,
                    char error[REWRITER_ERROR]);

/* Completes it with the options of this sbatch, and runs the program. */
bool rewriter_run(const struct rewriter *rewriter, const struct site *site, slurm_opt_t *options,
                  char error[REWRITER_ERROR]);

/* The answer, whole, for the caller to free; NULL: there is none. */
char *rewriter_answer(const struct rewriter *rewriter, const struct site *site,
                      char error[REWRITER_ERROR]);

/* For cli_filter.lua, which completes the document, and runs the program: how it does that. */
void rewriter_tell_filter(const struct rewriter *rewriter, const struct site *site);
void rewriter_forget_filter(void);
