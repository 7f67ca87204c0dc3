/*
 * One line to the keeper and one line back, each in a short-lived process of its own, so that
 * neither a slow keeper nor a slow name server can hold Slurm up.
 */
#ifndef BFTRAINER_KEEPER_NOTE_H
#define BFTRAINER_KEEPER_NOTE_H

#include <stdbool.h>
#include <stddef.h>

#define KEEPER_LINE 512
#define KEEPER_LIMIT_S 2

/* Waits for the answer (without its newline), at most KEEPER_LIMIT_S. */
bool keeper_ask(const char *keeper, const char *line, char *answer, size_t size);

/* Does not wait, and does not say whether the line has arrived. */
void keeper_tell(const char *keeper, const char *line);

#endif
