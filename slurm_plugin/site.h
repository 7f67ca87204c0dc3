/*
 * Reads the site's settings in the plugin's plugstack line: KEY=VALUE words, see the README.
 * A mistake there must not affect ordinary jobs: only users of --bftrainer are told.
 */
#pragma once

#include <stdbool.h>

#define SITE_TEXT 256

struct site {
    int count; /* of the line's words */
    char **words;
    char interpreter[SITE_TEXT]; /* Python on hosts where people submit */
    char keeper[SITE_TEXT]; /* HOST:PORT, or several separated by commas */
    char announce[SITE_TEXT]; /* IP:PORT, likewise; gets all submissions; empty: none */
    char partition[SITE_TEXT];
    char qos[SITE_TEXT]; /* empty: whatever the user has */
    char local_addr[SITE_TEXT]; /* empty: torchrun finds its own address */
    char python[SITE_TEXT];       /* folder of our Python package; empty: users install it */
    char key_file[SITE_TEXT];     /* with the site's key */
    unsigned max_grace_ms;
    unsigned max_elements; /* of one trainer; 0: a tenth of MaxJobCount */
    bool batch_once; /* a batch script with sruns runs on one node, its steps on all: batch.h */
    bool share; /* elements that ask for GPUs have parts of nodes */
    bool rewritten_by_filter; /* cli_filter.lua does the rewriting, not the SPANK plugin */
    char mistake[SITE_TEXT];  /* empty when the line is right */
};

void site_parse(int count, char **words, struct site *site);
