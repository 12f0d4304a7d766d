/*
 * What an allocator costs in a program: ticks of the CPU's counter, which costs some 20 itself. Part of the
 * measurement, not of an adapter.
 *
 * The median of the calls is what they cost. The mean has also what interrupted them: the counter goes on
 * while another thread has the CPU, and one such call of milliseconds is worth thousands.
 */
#ifndef TICKS_H
#define TICKS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CALLS = 1 << 16 }; /* as many are kept */

struct calls {
    uint64_t n, units, ticks;
    double each[CALLS]; /* ticks for a unit of a call */
};

static struct calls takes, gives;

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

/* A call that began then took or gave back so many units. */
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

/* Says what a unit took to be taken and given back, and all that this thread did. */
static void print_cost(const char *unit, const char *allocator, uint64_t units, uint64_t thread_ns)
{
    printf("a %s took %.1f ticks in the allocator (%s), %.1f on average, and %.0f ns in all\n", unit,
        median(&takes) + median(&gives), allocator, mean(&takes) + mean(&gives),
        (double)thread_ns / (double)(units > 0 ? units : 1));
}

static uint64_t thread_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#endif
