/*
 * A thread in slurmstepd, out of the user's reach, that watches over his guard. An element whose
 * guard is gone or stopped, or does not get to its work, is ended at once.
 */
#ifndef BFTRAINER_WATCH_H
#define BFTRAINER_WATCH_H

#include "guard.h"

#include <pthread.h>
#include <semaphore.h>

struct watch {
    struct scope scope;
    micros_t grace;
    struct guard_life *life;
    sem_t over;
    pthread_t thread;
    bool runs;
};

/* `scope`, `grace` and `life` are set; `watch` stays where it is. */
bool watch_start(struct watch *watch);

/* To be called when the step's last task has ended: its guard ends soon, as it should. */
void watch_end(struct watch *watch);

/* Waits until the thread has ended: slurmstepd is about to unload the plugin. */
void watch_join(struct watch *watch);

#endif
