/*
 * Sends one datagram that announces a submission. Nothing waits for it or answers it.
 */
#ifndef BFTRAINER_ANNOUNCE_H
#define BFTRAINER_ANNOUNCE_H

#include <stdbool.h>

/* `addresses` is IP:PORT, or several separated by commas; host names are refused, see announce.c. */
bool announce_is_valid(const char *addresses);

void announce_submission(const char *addresses);

#endif
