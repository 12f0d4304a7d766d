/*
 * pagepool-cbench: the cost of allocate + return from C, on the owner's thread, per buffer.
 *
 *     cc -O2 -pthread pagepool-cbench.c $(pkg-config --cflags --libs pagepool) -o pagepool-cbench
 *
 * A program shows two of three costs: the inline functions of the header, and the functions that they call
 * in other cases. Linked to libpagepool.a these are out of line in the program. Linked to libpagepool.so they
 * are behind the dynamic linker's table, which is the third cost. Before, other threads returned buffers and
 * used the batch, as in a program that runs. "packet" makes a packet of each buffer and frees it, "clone" also
 * frees a clone of it, "deferred" defers the buffer for a user that is done at once. The pool's counters prove
 * that every buffer took the cache. Each figure is the least of many rounds, because other work only adds time.
 */
#include <pthread.h>
#include <string.h>

#include <pagepool_skb.h>

#include "bench.h"
#include "loop.h"

static void inline_pairs(void *pool)
{
    for (int i = 0; i < LOOPS; i++) {
        struct pagepool_buf *buf = pagepool_alloc_page(pool);
        look(buf);
        pagepool_buf_put(buf);
    }
}

/* Allocates n one by one, then returns them one by one. */
static inline void inline_bursts(void *pool, int n)
{
    struct pagepool_buf *bufs[BURST];
    for (int i = 0; i < LOOPS; i += n) {
        for (int at = 0; at < n; at++)
            bufs[at] = pagepool_alloc_page(pool);
        look(bufs);
        for (int at = 0; at < n; at++)
            pagepool_buf_put(bufs[at]);
    }
}

static void inline_twos(void *pool)
{
    inline_bursts(pool, 2);
}

static void inline_32s(void *pool)
{
    inline_bursts(pool, BURST);
}

/* A name in parentheses is no macro: these are calls. */
static void call_pairs(void *pool)
{
    for (int i = 0; i < LOOPS; i++) {
        struct pagepool_buf *buf = (pagepool_alloc_page)(pool);
        look(buf);
        (pagepool_buf_put)(buf);
    }
}

/* With the address of each buffer's first byte. */
static void data_pairs(void *pool)
{
    for (int i = 0; i < LOOPS; i++) {
        struct pagepool_buf *buf = pagepool_alloc_page(pool);
        look(pagepool_buf_data(buf));
        pagepool_buf_put(buf);
    }
}

/* data_pairs() by calls. */
static void call_data_pairs(void *pool)
{
    for (int i = 0; i < LOOPS; i++) {
        struct pagepool_buf *buf = (pagepool_alloc_page)(pool);
        look((pagepool_buf_data)(buf));
        (pagepool_buf_put)(buf);
    }
}

static void bulk_pairs(void *pool)
{
    struct pagepool_buf *bufs[BURST];
    for (int i = 0; i < LOOPS; i += BURST) {
        pagepool_alloc_bulk(pool, bufs, BURST);
        look(bufs);
        pagepool_buf_put_bulk(bufs, BURST);
    }
}

static void bulk_data_pairs(void *pool)
{
    struct pagepool_buf *bufs[BURST];
    void *data[BURST];
    for (int i = 0; i < LOOPS; i += BURST) {
        pagepool_alloc_bulk_data(pool, bufs, data, BURST);
        for (int at = 0; at < BURST; at++)
            look(data[at]);
        pagepool_buf_put_bulk(bufs, BURST);
    }
}

static void call_bulk_pairs(void *pool)
{
    struct pagepool_buf *bufs[BURST];
    for (int i = 0; i < LOOPS; i += BURST) {
        (pagepool_alloc_bulk)(pool, bufs, BURST);
        look(bufs);
        (pagepool_buf_put_bulk)(bufs, BURST);
    }
}

static void call_bulk_data_pairs(void *pool)
{
    struct pagepool_buf *bufs[BURST];
    void *data[BURST];
    for (int i = 0; i < LOOPS; i += BURST) {
        (pagepool_alloc_bulk_data)(pool, bufs, data, BURST);
        for (int at = 0; at < BURST; at++)
            look(data[at]);
        (pagepool_buf_put_bulk)(bufs, BURST);
    }
}

static struct pagepool_batch *batch;

static void batch_pairs(void *pool)
{
    for (int i = 0; i < LOOPS; i += BURST) {
        pagepool_batch_alloc(batch, pool, BURST);
        look(batch);
        pagepool_batch_put(batch);
    }
}

static void batch_packet_pairs(void *pool)
{
    void *packets[BURST];
    for (int i = 0; i < LOOPS; i += BURST) {
        pagepool_batch_alloc(batch, pool, BURST);
        pagepool_batch_packets(batch, packets, BURST);
        for (int at = 0; at < BURST; at++)
            look(packets[at]);
        pagepool_batch_put(batch);
    }
}

static struct pagepool_buf *elsewhere[64];

static void *return_one_by_one(void *unused)
{
    for (int at = 0; at < 64; at++)
        if (pagepool_buf_put(elsewhere[at]) != 0)
            fail("pagepool_buf_put");
    return unused;
}

static void *return_in_bulk(void *unused)
{
    if (pagepool_buf_put_bulk(elsewhere, 64) != 0 || pagepool_batch_put(batch) != 0)
        fail("pagepool_buf_put_bulk, pagepool_batch_put");
    return unused;
}

/* Two threads return buffers, and end. */
static void return_elsewhere(struct pagepool *pool)
{
    void *(*const ways[])(void *) = {return_one_by_one, return_in_bulk};
    for (int at = 0; at < 2; at++) {
        pthread_t thread;
        if (pagepool_alloc_bulk(pool, elsewhere, 64) != 64 || pagepool_batch_alloc(batch, pool, BURST) != BURST)
            fail("pagepool_alloc_bulk, pagepool_batch_alloc");
        if (pthread_create(&thread, NULL, ways[at], NULL) != 0 || pthread_join(thread, NULL) != 0)
            fail("pthread_create");
        pagepool_batch_put(batch);
    }
    /* Takes what they returned, and puts it into the cache. */
    struct pagepool_buf *all[512];
    size_t n = pagepool_alloc_bulk(pool, all, 512);
    pagepool_buf_put_bulk(all, n);
}

static void addr_pairs(void *pool)
{
    for (int i = 0; i < LOOPS; i++) {
        uint64_t addr;
        pagepool_alloc_addr_bulk(pool, &addr, 1);
        look(&addr);
        pagepool_put_addr(pool, addr);
    }
}

static void addr_bulk_pairs(void *pool)
{
    uint64_t addrs[BURST];
    for (int i = 0; i < LOOPS; i += BURST) {
        pagepool_alloc_addr_bulk(pool, addrs, BURST);
        look(addrs);
        pagepool_put_addr_bulk(pool, addrs, BURST);
    }
}

static struct pagepool_skb_cache *cache;
static struct pagepool_deferred_user *user;

static struct pagepool_skb *packet(struct pagepool *pool)
{
    struct pagepool_skb *skb;
    if (pagepool_skb_from_buf(cache, pagepool_alloc_page(pool), 64, 60, &skb) != 0)
        fail("pagepool_skb_from_buf");
    return skb;
}

static void packets(void *pool)
{
    for (int i = 0; i < LOOPS; i++)
        pagepool_skb_put(packet(pool));
}

static void clones(void *pool)
{
    for (int i = 0; i < LOOPS; i++) {
        struct pagepool_skb *skb = packet(pool), *clone;
        if (pagepool_skb_clone(skb, &clone) != 0)
            fail("pagepool_skb_clone");
        pagepool_skb_put(skb);
        pagepool_skb_put(clone);
    }
}

static int never_in_use(void *arg, uint64_t cookie)
{
    (void)arg, (void)cookie;
    return 0;
}

static void deferred(void *pool)
{
    for (int i = 0; i < LOOPS; i++) {
        if (pagepool_defer(pool, user, pagepool_alloc_page(pool), 0) != 0)
            fail("pagepool_defer");
        if (i % 32 == 31)
            pagepool_poll_deferred(pool);
    }
}

static void empty_loop(void *pool)
{
    for (int i = 0; i < LOOPS; i++)
        look(pool);
}

/* The work of the loops with data besides the calls: they use 32 addresses. */
static void empty_data_loop(void *pool)
{
    void *packets[BURST] = {pool};
    for (int i = 0; i < LOOPS; i += BURST) {
        look(packets);
        for (int at = 0; at < BURST; at++)
            look(packets[at]);
    }
}

static double counted(const char *name, void (*pairs)(void *), void *pool)
{
    struct pagepool_stats before = PAGEPOOL_STATS_INIT, after = PAGEPOOL_STATS_INIT;
    if (pagepool_read_stats(pool, &before) != 0)
        fail("pagepool_stats");
    double cost = least(pairs, pool);
    pagepool_read_stats(pool, &after);
    if (after.recycle_cached - before.recycle_cached != (uint64_t)ROUNDS * LOOPS ||
        after.alloc_fast - before.alloc_fast != (uint64_t)ROUNDS * LOOPS) {
        fprintf(stderr, "%s: not every buffer took the cache\n", name);
        exit(1);
    }
    printf("%-20s %6.2f ns\n", name, cost);
    return cost;
}

int main(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    const struct pagepool_deferred_user_ops ops = {.size = sizeof(ops), .in_use = never_in_use};
    struct pagepool_domain *domain;
    if (pagepool_domain_identity("bench", &domain) != 0)
        fail("pagepool_domain_identity");
    params.domains = &domain;
    params.n_domains = 1;
    params.defer_capacity = 32;
    struct pagepool *pool = pool_of_this_thread(0, 0, params);
    if (pagepool_batch_create(&batch) != 0)
        fail("pagepool_batch_create");
    if (pagepool_skb_cache_create(64, &cache) != 0 || pagepool_deferred_user_create(pool, &ops, &user) != 0)
        fail("pagepool_skb_cache_create, pagepool_deferred_user_create");
    return_elsewhere(pool);
    printf("%-20s %6.2f ns\n", "empty loop", least(empty_loop, pool));
    printf("%-20s %6.2f ns\n", "empty data loop", least(empty_data_loop, pool));
    counted("inline", inline_pairs, pool);
    counted("inline, 2 out", inline_twos, pool);
    counted("inline, 32 out", inline_32s, pool);
    counted("calls", call_pairs, pool);
    counted("data", data_pairs, pool);
    counted("calls data", call_data_pairs, pool);
    counted("bulk", bulk_pairs, pool);
    counted("bulk data", bulk_data_pairs, pool);
    counted("calls bulk", call_bulk_pairs, pool);
    counted("calls bulk data", call_bulk_data_pairs, pool);
    counted("batch", batch_pairs, pool);
    counted("batch data", batch_packet_pairs, pool);
    counted("addr", addr_pairs, pool);
    counted("addr bulk", addr_bulk_pairs, pool);
    counted("packet", packets, pool);
    counted("clone", clones, pool);
    counted("deferred", deferred, pool);
    pagepool_batch_destroy(batch);
    pagepool_deferred_user_put(user);
    pagepool_skb_cache_put(cache);
    pagepool_destroy(pool);
    pagepool_domain_put(domain);
    return 0;
}
