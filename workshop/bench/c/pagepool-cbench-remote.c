/*
 * pagepool-cbench-remote: the cost from C of a page that is allocated on one core and returned on another.
 *
 *     cc -O2 pagepool-cbench-remote.c $(pkg-config --cflags --libs pagepool) -lpthread -o remote
 *
 * The work is that of across.h. Buffers with handles are returned one by one or in bulk, also by a thread that
 * finds and reads the first byte of each ("read"), or makes a packet of each and frees it ("packet"); each burst
 * of the ring has one batch. The pool's counters prove that every page was returned by message.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <pagepool_skb.h>

#include "across.h"
#include "bench.h"

static struct pagepool_batch *batches[SLOTS / BURST];

static void fill_one_by_one(void *pool, void **burst)
{
    for (int at = 0; at < BURST; at++)
        if ((burst[at] = pagepool_alloc_page(pool)) == NULL)
            fail("pagepool_alloc_page");
}

static void put_one_by_one(void **burst)
{
    for (int at = 0; at < BURST; at++)
        if (pagepool_buf_put(burst[at]) != 0)
            fail("pagepool_buf_put");
}

static void fill_bulk(void *pool, void **burst)
{
    if (pagepool_alloc_bulk(pool, (struct pagepool_buf **)burst, BURST) != BURST)
        fail("pagepool_alloc_bulk");
}

static void put_bulk(void **burst)
{
    if (pagepool_buf_put_bulk((struct pagepool_buf *const *)burst, BURST) != 0)
        fail("pagepool_buf_put_bulk");
}

static void read_buf(struct pagepool_buf *buf)
{
    look((void *)(uintptr_t)*(volatile char *)pagepool_buf_data(buf));
}

static void read_one_by_one(void **burst)
{
    for (int at = 0; at < BURST; at++) {
        read_buf(burst[at]);
        if (pagepool_buf_put(burst[at]) != 0)
            fail("pagepool_buf_put");
    }
}

static void read_bulk(void **burst)
{
    for (int at = 0; at < BURST; at++)
        read_buf(burst[at]);
    put_bulk(burst);
}

static struct pagepool_skb_cache *cache;

static void packets(void **burst)
{
    for (int at = 0; at < BURST; at++) {
        struct pagepool_skb *skb;
        if (pagepool_skb_from_buf(cache, burst[at], 64, 60, &skb) != 0)
            fail("pagepool_skb_from_buf");
        pagepool_skb_put(skb);
    }
}

static void fill_batch(void *pool, void **burst)
{
    static unsigned next;
    burst[0] = batches[next++ % (SLOTS / BURST)];
    if (pagepool_batch_alloc(burst[0], pool, BURST) != BURST)
        fail("pagepool_batch_alloc");
}

static void put_batch(void **burst)
{
    if (pagepool_batch_put(burst[0]) != 0)
        fail("pagepool_batch_put");
}

static const struct way ways[] = {
    {"remote", fill_one_by_one, put_one_by_one},
    {"remote bulk", fill_bulk, put_bulk},
    {"remote read", fill_one_by_one, read_one_by_one},
    {"remote read bulk", fill_bulk, read_bulk},
    {"remote packet", fill_one_by_one, packets},
    {"remote batch", fill_batch, put_batch},
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* The CPUs of the process, before a thread is pinned: a new thread inherits those of its creator. */
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

static void *return_all(void *unused)
{
    pin(1);
    if (pagepool_skb_cache_create(64, &cache) != 0)
        fail("pagepool_skb_cache_create");
    for (size_t at = 0; at < WAYS; at++)
        return_across(&ways[at]);
    pagepool_skb_cache_put(cache);
    return unused;
}

static void measure(const struct way *way, struct pagepool *pool)
{
    struct pagepool_stats before = PAGEPOOL_STATS_INIT, after = PAGEPOOL_STATS_INIT;
    if (pagepool_read_stats(pool, &before) != 0)
        fail("pagepool_read_stats");
    double each = measure_across(way, pool);
    pagepool_read_stats(pool, &after);
    if (after.recycle_ring - before.recycle_ring != (uint64_t)ACROSS_ROUNDS * (BURSTS + WARM) * BURST ||
        after.alloc_slow != before.alloc_slow) {
        fprintf(stderr, "%s: not every buffer returned by message\n", way->name);
        exit(1);
    }
    printf("%-20s %6.2f ns\n", way->name, each);
}

/* Takes all pages into the pool before the first round. */
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
    params.refill = 256;
    params.ring_size = 8192;
    params.lane_size = 8192;
    struct pagepool *pool = pool_of_this_thread((uint64_t)POPULATION * 2048, 2048, params);
    fill(pool);
    for (size_t at = 0; at < SLOTS / BURST; at++)
        if (pagepool_batch_create(&batches[at]) != 0)
            fail("pagepool_batch_create");
    if (pthread_create(&thread, NULL, return_all, NULL) != 0)
        fail("pthread_create");
    for (size_t at = 0; at < WAYS; at++)
        measure(&ways[at], pool);
    pthread_join(thread, NULL);
    for (size_t at = 0; at < SLOTS / BURST; at++)
        pagepool_batch_destroy(batches[at]);
    pagepool_destroy(pool);
    return 0;
}
