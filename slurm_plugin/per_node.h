/*
 * --ntasks and --gpus are for the whole job; an element gets one node's share of them. The share needs
 * the script's own number of nodes: `sbatch --bftrainer -N 1-3` over a script with --nodes=4 --ntasks=8
 * means two tasks a node.
 */
#ifndef BFTRAINER_PER_NODE_H
#define BFTRAINER_PER_NODE_H

#include "rewrite.h"
#include "written.h"

/* Sets one node's tasks and GPUs. On failure returns false; one line in `error` says, with the numbers, what
 * to write. */
bool per_node_set(slurm_opt_t *options, const struct written *written,
                  char error[REWRITE_ERROR_SIZE]);

#endif
