/*
 * For all benches: the clock, and loops whose figure is the least of many rounds, because other work on the
 * machine only adds time.
 */
#ifndef LOOP_H
#define LOOP_H

#include <time.h>

#define BURST 32
#ifndef ROUNDS
#define ROUNDS 300
#endif
#define LOOPS 20000 /* buffers of a round */

static inline double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Uses a value, so that the compiler keeps the code that computes it. */
static inline void look(const void *what)
{
    __asm__ __volatile__("" : : "r"(what) : "memory");
}

/* Nanoseconds per buffer of a loop over LOOPS buffers. */
static inline double least(void (*loop)(void *pool), void *pool)
{
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = now_ns();
        loop(pool);
        double each = (now_ns() - begin) / LOOPS;
        best = each < best ? each : best;
    }
    return best;
}

#endif
