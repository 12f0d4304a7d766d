/*
 * pagepool-cbench-remote: what a page costs from C that is allocated on one core and returned on another.
 *
 *     cc -O2 pagepool-cbench-remote.c $(pkg-config --cflags --libs pagepool) -lpthread -o remote
 *
 * The work is that of `pagepool bench --filter page_remote`: bursts of 32 pages go through a ring of 1024 to
 * a second thread, which returns them, one by one or in bulk; the pool has 3072 pages. A figure is the time
 * of one buffer while both threads work. It is the median of the rounds, with the least behind it. The
 * pool's counters prove that every buffer returned by message.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define SLOTS 1024
#define POPULATION (3 * SLOTS)
#define ROUNDS 101
#define BURSTS 256
#define WARM 64

/* The ring: each side has its own line, with what it knows of the other side. */
static struct {
    struct pagepool_buf *bufs[SLOTS];
    _Alignas(128) atomic_size_t pushed;
    size_t free_until;
    _Alignas(128) atomic_size_t popped;
    size_t filled_until;
} ring = {.free_until = SLOTS};

/* Spins, and lets others run where the other thread does not: on a machine with other work. */
static void relax(unsigned *spins)
{
    if (++*spins % 4096 == 0)
        sched_yield();
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void push(struct pagepool_buf **burst)
{
    size_t at = atomic_load_explicit(&ring.pushed, memory_order_relaxed);
    for (unsigned spins = 0; ring.free_until - at < BURST; relax(&spins))
        ring.free_until = atomic_load_explicit(&ring.popped, memory_order_acquire) + SLOTS;
    memcpy(&ring.bufs[at % SLOTS], burst, BURST * sizeof(*burst));
    atomic_store_explicit(&ring.pushed, at + BURST, memory_order_release);
}

/* Copies a burst out; taken() gives its slots back, and tells that it has returned. */
static void receive(struct pagepool_buf **burst)
{
    size_t at = atomic_load_explicit(&ring.popped, memory_order_relaxed);
    for (unsigned spins = 0; ring.filled_until - at < BURST; relax(&spins))
        ring.filled_until = atomic_load_explicit(&ring.pushed, memory_order_acquire);
    memcpy(burst, &ring.bufs[at % SLOTS], BURST * sizeof(*burst));
}

static void taken(void)
{
    size_t at = atomic_load_explicit(&ring.popped, memory_order_relaxed);
    atomic_store_explicit(&ring.popped, at + BURST, memory_order_release);
}

/* The CPUs of the process, before a thread is pinned: a new thread has those of the one that made it. */
static cpu_set_t cpus;

static void pin(int which)
{
    cpu_set_t one;
    int cpu = 0;
    for (int seen = CPU_ISSET(0, &cpus) ? 0 : -1; seen < which;)
        seen += CPU_ISSET(++cpu, &cpus) ? 1 : 0;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0)
        fail("sched_setaffinity");
}

static void put_burst(struct pagepool_buf **burst, int bulk)
{
    if (bulk) {
        if (pagepool_buf_put_bulk(burst, BURST) != 0)
            fail("pagepool_buf_put_bulk");
        return;
    }
    for (int at = 0; at < BURST; at++)
        if (pagepool_buf_put(burst[at]) != 0)
            fail("pagepool_buf_put");
}

static void *return_all(void *unused)
{
    struct pagepool_buf *burst[BURST];
    pin(1);
    for (int bulk = 0; bulk < 2; bulk++)
        for (int i = 0; i < ROUNDS * (WARM + BURSTS); i++) {
            receive(burst);
            put_burst(burst, bulk);
            taken();
        }
    return unused;
}

static void send(struct pagepool *pool, int bulk)
{
    struct pagepool_buf *burst[BURST];
    if (bulk && pagepool_alloc_bulk(pool, burst, BURST) != BURST)
        fail("pagepool_alloc_bulk");
    for (int at = 0; !bulk && at < BURST; at++)
        if ((burst[at] = pagepool_alloc_page(pool)) == NULL)
            fail("pagepool_alloc_page");
    push(burst);
}

/* The time begins when both threads are at work, and ends when the last burst has returned. */
static double one_round(struct pagepool *pool, int bulk)
{
    for (int i = 0; i < WARM; i++)
        send(pool, bulk);
    double begin = now_ns();
    for (int i = 0; i < BURSTS; i++)
        send(pool, bulk);
    unsigned spins = 0;
    while (atomic_load_explicit(&ring.popped, memory_order_acquire) != atomic_load(&ring.pushed))
        relax(&spins);
    return (now_ns() - begin) / ((double)BURSTS * BURST);
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void measure(struct pagepool *pool, const char *name, int bulk)
{
    struct pagepool_stats before = PAGEPOOL_STATS_INIT, after = PAGEPOOL_STATS_INIT;
    double each[ROUNDS];
    if (pagepool_read_stats(pool, &before) != 0)
        fail("pagepool_read_stats");
    for (int round = 0; round < ROUNDS; round++)
        each[round] = one_round(pool, bulk);
    pagepool_read_stats(pool, &after);
    if (after.recycle_ring - before.recycle_ring != (uint64_t)ROUNDS * (BURSTS + WARM) * BURST ||
        after.alloc_slow != before.alloc_slow) {
        fprintf(stderr, "%s: not every buffer returned by message\n", name);
        exit(1);
    }
    qsort(each, ROUNDS, sizeof(each[0]), by_value);
    printf("%-14s %6.2f ns (least %.2f)\n", name, each[ROUNDS / 2], each[0]);
}

/* The pool has all its pages before the first round. */
static void fill(struct pagepool *pool)
{
    static struct pagepool_buf *all[POPULATION];
    if (pagepool_alloc_bulk(pool, all, POPULATION) != POPULATION)
        fail("pagepool_alloc_bulk");
    pagepool_buf_put_bulk(all, POPULATION);
}

int main(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    pthread_t thread;
    if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0 || CPU_COUNT(&cpus) < 2) {
        printf("SKIP: two CPUs are required\n");
        return 0;
    }
    pin(0);
    params.cache_size = 512;
    params.ring_size = 8192;
    params.lane_size = 8192;
    struct pagepool *pool = pool_of_this_thread((uint64_t)POPULATION * 4096, params);
    fill(pool);
    if (pthread_create(&thread, NULL, return_all, NULL) != 0)
        fail("pthread_create");
    measure(pool, "remote", 0);
    measure(pool, "remote bulk32", 1);
    pthread_join(thread, NULL);
    pagepool_destroy(pool);
    return 0;
}
