/*
 * One datagram that says that something was submitted. Nobody waits for it, and none answers.
 */
#ifndef BFTRAINER_ANNOUNCE_H
#define BFTRAINER_ANNOUNCE_H

#include <stdbool.h>

/* `addresses` is IP:PORT, or several with commas between. Names are not taken: see announce.c. */
bool announce_is_valid(const char *addresses);

void announce_submission(const char *addresses);

#endif
