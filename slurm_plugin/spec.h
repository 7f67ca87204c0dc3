/*
 * The text of --bftrainer[=KEY=VAL,...] and the record that a trainer's elements carry.
 * Grammar and messages are those of bftrainer_slurm/spec.py; knows nothing of Slurm.
 */
#ifndef BFTRAINER_SPEC_H
#define BFTRAINER_SPEC_H

#include "words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPEC_ERROR_SIZE 256
#define RECORD_SIZE 1025 /* with its end */
#define SPEC_SIZE 512    /* of a spec in its canonical form */
#define RECORD_PREFIX "bftrainer:"
#define ID_DIGITS 8
#define MAX_COUNT 1000000 /* of nodes, or minutes, in a record */
#define MAX_SIZES 32

/* Numbers have at most six decimals, so millionths hold them exactly. */
typedef int64_t micros_t;
#define MICROS INT64_C(1000000)
#define NO_MAX_GRACE INT64_MAX

struct spec {
    micros_t weight;
    micros_t grace; /* seconds */
    micros_t node_hours; /* 0: no limit */
};

#define BATCH_SIZE sizeof("once")

/* The only numbers of nodes, ascending; or the multiples of `step`. */
struct sizes {
    unsigned size[MAX_SIZES];
    unsigned count; /* 0: any */
    unsigned step;
};

/* The value of --bftrainer: the spec, and what only the submission needs. */
struct request {
    struct spec spec;
    unsigned min_nodes; /* 0: not said */
    struct sizes sizes;
    bool own_rendezvous;
    bool no_resume; /* no framework is made to go on from its newest checkpoint */
    char batch[BATCH_SIZE]; /* "once" or "each"; empty: as the site has it */
};

struct record {
    struct spec spec;
    unsigned min_nodes;
    unsigned max_nodes;
    unsigned minutes; /* 0: the partition's limit */
    bool personal;
    char partitions[RECORD_SIZE]; /* separated by colons; empty: any */
    char nodes[RECORD_SIZE];      /* Slurm's list with colons for commas; empty: any */
    struct sizes sizes;
    bool has_task;
    unsigned task; /* of the user's own --array, which this trainer is */
    char id[ID_DIGITS + 1]; /* empty: none */
};

/* Adds to a text; what is too long is cut, and the answer is false. */
bool text_add(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* All of these return false, with one line in `error`, if the text is wrong. */
bool spec_parse(const char *text, micros_t max_grace, struct request *request,
                char error[SPEC_ERROR_SIZE]);
bool record_parse(const char *comment, struct record *record, char error[SPEC_ERROR_SIZE]);
bool record_take_partitions(const char *list, struct record *record, char error[SPEC_ERROR_SIZE]);
bool record_take_nodes(const char *list, struct record *record, char error[SPEC_ERROR_SIZE]);
bool micros_parse(const char *text, micros_t *number);

/* Writes what the record will have of it. */
void spec_format(const struct request *request, char *text, size_t size);
/* Returns false if the record is too long. */
bool record_format(const struct record *record, char text[RECORD_SIZE]);
void micros_format(micros_t number, char *text, size_t size);

#endif
