/*
 * Measures what an allocator costs in a program, in ticks of the CPU's counter. Reading the counter costs
 * about 20 ticks. This is part of the measurement, not of an adapter.
 *
 * The median is the cost of a call. The mean includes interruptions: the counter runs on while another thread
 * has the CPU, and one interruption of milliseconds outweighs thousands of calls.
 */
#ifndef TICKS_H
#define TICKS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CALLS = 1 << 16 }; /* most calls kept */

struct calls {
    uint64_t n, units, ticks;
    double each[CALLS]; /* ticks per unit, by call */
};

static struct calls takes, returns;

static uint64_t ticks(void)
{
    uint64_t now;
#if defined(__x86_64__)
    now = __builtin_ia32_rdtsc();
#else
    __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(now));
#endif
    return now;
}

/* Counts a call that began at `begun` and took or returned `units` units. */
static void count_call(struct calls *calls, uint64_t begun, uint64_t units)
{
    const uint64_t took = ticks() - begun;
    if (units == 0)
        return;
    calls->each[calls->n++ % CALLS] = (double)took / (double)units;
    calls->units += units;
    calls->ticks += took;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(struct calls *calls)
{
    const uint64_t kept = calls->n < CALLS ? calls->n : CALLS;
    qsort(calls->each, kept, sizeof(calls->each[0]), by_size);
    return kept > 0 ? calls->each[kept / 2] : 0;
}

static double mean(const struct calls *calls)
{
    return calls->units > 0 ? (double)calls->ticks / (double)calls->units : 0;
}

/* Prints the cost of taking and returning a unit, and the CPU time of this thread per unit. */
static void print_cost(const char *unit, const char *allocator, uint64_t units, uint64_t thread_ns)
{
    printf("a %s took %.1f ticks in the allocator (%s), %.1f on average, and %.0f ns in all\n", unit,
        median(&takes) + median(&returns), allocator, mean(&takes) + mean(&returns),
        (double)thread_ns / (double)(units > 0 ? units : 1));
}

static uint64_t thread_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#endif
