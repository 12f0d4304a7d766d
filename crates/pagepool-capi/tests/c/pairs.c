/* `pairs HOW N`: N times per page is allocated and returned, for tests/c.rs, which counts instructions.
 * "plain", "data" and "bulk" use the inline functions, "bulk" for 32 at a time as "batch" does by calls; with
 * "data" the program takes the address of each page or packet, too. "addr" is by device address one by one,
 * "addrs" in bulk; "apart" is "addr" where each region has its own distance between offsets and addresses.
 * "data elsewhere" only finds an address, on a thread that does not own the pool. In "bulk elsewhere" such a
 * thread returns the buffers in bulk, and the instructions of both threads are counted. */
#include <pthread.h>
#include <string.h>

#include "check.h"

#define BURST 32

/* What is looked at no compiler leaves out. */
static void look(const void *what)
{
    __asm__ __volatile__("" : : "r"(what) : "memory");
}

static void plain_pairs(struct pagepool *pool, long n)
{
    for (long i = 0; i < n; i++) {
        struct pagepool_buf *buf = pagepool_alloc_page(pool);
        look(buf);
        pagepool_buf_put(buf);
    }
}

static void data_pairs(struct pagepool *pool, long n)
{
    for (long i = 0; i < n; i++) {
        struct pagepool_buf *buf = pagepool_alloc_page(pool);
        look(pagepool_buf_data(buf));
        pagepool_buf_put(buf);
    }
}

static void bulk_pairs(struct pagepool *pool, long n)
{
    struct pagepool_buf *bufs[BURST];
    for (long i = 0; i < n; i += BURST) {
        pagepool_alloc_bulk(pool, bufs, BURST);
        look(bufs);
        pagepool_buf_put_bulk(bufs, BURST);
    }
}

static void bulk_data_pairs(struct pagepool *pool, long n)
{
    struct pagepool_buf *bufs[BURST];
    void *data[BURST];
    for (long i = 0; i < n; i += BURST) {
        pagepool_alloc_bulk_data(pool, bufs, data, BURST);
        look(data);
        for (int at = 0; at < BURST; at++)
            look(data[at]);
        pagepool_buf_put_bulk(bufs, BURST);
    }
}

static struct pagepool_batch *batch;

static void batch_pairs(struct pagepool *pool, long n)
{
    for (long i = 0; i < n; i += BURST) {
        pagepool_batch_alloc(batch, pool, BURST);
        look(batch);
        pagepool_batch_put(batch);
    }
}

static void batch_data_pairs(struct pagepool *pool, long n)
{
    void *packets[BURST];
    for (long i = 0; i < n; i += BURST) {
        pagepool_batch_alloc(batch, pool, BURST);
        pagepool_batch_packets(batch, packets, BURST);
        for (int at = 0; at < BURST; at++)
            look(packets[at]);
        pagepool_batch_put(batch);
    }
}

static void addr_pairs(struct pagepool *pool, long n)
{
    for (long i = 0; i < n; i++) {
        uint64_t addr;
        CHECK(pagepool_alloc_addr_bulk(pool, &addr, 1) == 1);
        CHECK(pagepool_put_addr(pool, addr) == 0);
    }
}

static void addr_bulk_pairs(struct pagepool *pool, long n)
{
    for (long i = 0; i < n; i += 32) {
        uint64_t addrs[32];
        CHECK(pagepool_alloc_addr_bulk(pool, addrs, 32) == 32);
        CHECK(pagepool_put_addr_bulk(pool, addrs, 32) == 0);
    }
}

static struct pagepool_buf *the_buf;
static long times;

static void *find(void *unused)
{
    for (long i = 0; i < times; i++)
        look(pagepool_buf_data(the_buf));
    return unused;
}

static void addresses_elsewhere(struct pagepool *pool, long n)
{
    pthread_t thread;
    CHECK((the_buf = pagepool_alloc_page(pool)) != NULL);
    times = n;
    CHECK(pthread_create(&thread, NULL, find, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pagepool_buf_put(the_buf) == 0);
}

#define AWAY 256

static struct pagepool_buf *away[AWAY];
static pthread_barrier_t turn;

static void *put_away(void *unused)
{
    for (long i = 0; i < times; i += AWAY) {
        pthread_barrier_wait(&turn);
        for (int at = 0; at < AWAY; at += BURST)
            CHECK(pagepool_buf_put_bulk(away + at, BURST) == 0);
        pthread_barrier_wait(&turn);
    }
    return unused;
}

static void bulk_elsewhere(struct pagepool *pool, long n)
{
    pthread_t thread;
    times = n;
    CHECK(pthread_barrier_init(&turn, NULL, 2) == 0 && pthread_create(&thread, NULL, put_away, NULL) == 0);
    for (long i = 0; i < n; i += AWAY) {
        for (int at = 0; at < AWAY; at += BURST)
            CHECK(pagepool_alloc_bulk(pool, away + at, BURST) == BURST);
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
    }
    CHECK(pthread_join(thread, NULL) == 0);
}

static const struct {
    const char *name;
    void (*pairs)(struct pagepool *pool, long n);
} ways[] = {
    {"plain", plain_pairs},         {"data", data_pairs},   {"bulk", bulk_pairs},
    {"bulk data", bulk_data_pairs}, {"batch", batch_pairs}, {"batch data", batch_data_pairs},
    {"addr", addr_pairs},           {"addrs", addr_bulk_pairs}, {"apart", addr_pairs},
    {"data elsewhere", addresses_elsewhere}, {"bulk elsewhere", bulk_elsewhere},
};

static int map_apart(void *arg, const struct pagepool_region *region, uint64_t *addr)
{
    (void)arg;
    *addr = ((uint64_t)1 << 40) - region->offset;
    return 0;
}

static void unmap(void *arg, const struct pagepool_region *region, uint64_t addr)
{
    (void)arg, (void)region, (void)addr;
}

static void sync_nothing(void *arg, uint64_t addr, size_t len)
{
    (void)arg, (void)addr, (void)len;
}

static struct pagepool_domain *domain_for(const char *how)
{
    struct pagepool_domain_ops ops = {sizeof(ops), "apart", NULL, map_apart,   unmap, sync_nothing,
                                      sync_nothing, NULL,  1,    0};
    struct pagepool_domain *domain;
    if (strcmp(how, "apart") == 0)
        CHECK(pagepool_domain_create(&ops, &domain) == 0);
    else
        CHECK(pagepool_domain_identity("pairs", &domain) == 0);
    return domain;
}

int main(int argc, char **argv)
{
    struct pagepool_arena_params arena_params = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_domain *domain;
    struct pagepool *pool;
    CHECK(argc == 3);
    arena_params.max_bytes = 8 << 20; /* two regions */
    arena_params.commit_all = 1;
    CHECK(pagepool_arena_create(&arena_params, &params.arena) == 0);
    domain = domain_for(argv[1]);
    params.n_domains = 1;
    params.domains = &domain;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    CHECK(pagepool_batch_create(&batch) == 0);
    for (size_t at = 0; at < sizeof(ways) / sizeof(ways[0]); at++)
        if (strcmp(argv[1], ways[at].name) == 0)
            return ways[at].pairs(pool, atol(argv[2])), 0;
    return 2;
}
