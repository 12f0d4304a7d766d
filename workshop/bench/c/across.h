/*
 * Buffers that are allocated on one core and returned on another: bursts of 32 go through a ring of 1024
 * pointers. The work is that of `pagepool-bench --filter page_remote`.
 *
 * A way is how a burst is allocated and returned. A figure is the time per buffer while both threads work,
 * the least of the rounds. For each way one thread calls measure_across(), another return_across().
 */
#ifndef ACROSS_H
#define ACROSS_H

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "loop.h"

#define SLOTS 1024
/* Pages or objects of a pool: more than twice what the ring and both bursts hold. */
#define POPULATION (3 * SLOTS)
#ifndef ACROSS_ROUNDS
#define ACROSS_ROUNDS 101
#endif
#define BURSTS 256
#define WARM 64

struct way {
    const char *name;
    void (*fill)(void *pool, void **burst);
    void (*put)(void **burst);
};

/* Each side has its own cache line, with a copy of the other side's position. */
static struct {
    void *slots[SLOTS];
    _Alignas(128) atomic_size_t pushed;
    size_t free_until;
    _Alignas(128) atomic_size_t popped;
    size_t filled_until;
} ring = {.free_until = SLOTS};

/* Spins, and yields at times in case other work keeps the other thread from running. */
static inline void relax(unsigned *spins)
{
    if (++*spins % 4096 == 0)
        sched_yield();
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Fills a burst only when the ring has room, so an object of a slot may be reused with the slot. */
static void send(const struct way *way, void *pool)
{
    void *burst[BURST];
    size_t at = atomic_load_explicit(&ring.pushed, memory_order_relaxed);
    for (unsigned spins = 0; ring.free_until - at < BURST; relax(&spins))
        ring.free_until = atomic_load_explicit(&ring.popped, memory_order_acquire) + SLOTS;
    way->fill(pool, burst);
    memcpy(&ring.slots[at % SLOTS], burst, sizeof(burst));
    atomic_store_explicit(&ring.pushed, at + BURST, memory_order_release);
}

static void return_across(const struct way *way)
{
    void *burst[BURST];
    for (int i = 0; i < ACROSS_ROUNDS * (WARM + BURSTS); i++) {
        size_t at = atomic_load_explicit(&ring.popped, memory_order_relaxed);
        for (unsigned spins = 0; ring.filled_until - at < BURST; relax(&spins))
            ring.filled_until = atomic_load_explicit(&ring.pushed, memory_order_acquire);
        memcpy(burst, &ring.slots[at % SLOTS], sizeof(burst));
        way->put(burst);
        atomic_store_explicit(&ring.popped, at + BURST, memory_order_release);
    }
}

/* The time begins when both threads work, and ends when the last burst is returned. */
static double one_round(const struct way *way, void *pool)
{
    unsigned spins = 0;
    for (int i = 0; i < WARM; i++)
        send(way, pool);
    double begin = now_ns();
    for (int i = 0; i < BURSTS; i++)
        send(way, pool);
    while (atomic_load_explicit(&ring.popped, memory_order_acquire) != atomic_load(&ring.pushed))
        relax(&spins);
    return (now_ns() - begin) / ((double)BURSTS * BURST);
}

static double measure_across(const struct way *way, void *pool)
{
    double best = 1e9;
    for (int round = 0; round < ACROSS_ROUNDS; round++) {
        double each = one_round(way, pool);
        best = each < best ? each : best;
    }
    return best;
}

#endif
