/* A pool without an owner: any thread takes and returns pages by address. None gets a page that is out. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "check.h"

enum { PAGES = 64, PAGE = 4096, MOST = 32 };
#ifdef V /* valgrind runs one thread at a time, and stops it in a turn, mostly */
enum { TURNS = 500, ROUNDS = 3 };
#define BETWEEN_TURNS() sched_yield()
#else
enum { TURNS = 20000, ROUNDS = 100 };
#define BETWEEN_TURNS() ((void)0)
#endif

static struct pagepool *pool;
static int out[PAGES]; /* 1 while a thread has the page */

static struct pagepool_params params_over(struct pagepool_arena *arena, struct pagepool_domain **domain)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    params.arena = arena;
    params.domains = domain;
    params.n_domains = 1;
    params.no_owner = 1;
    return params;
}

/* Each parameter that only an owner could use is refused by its name. */
static void parameters(struct pagepool_params good)
{
    struct pagepool_params params = good;
    params.no_owner = 2;
    CHECK(pagepool_create(&params, &pool) == -EINVAL && strstr(pagepool_last_error(), "no_owner"));
    params = good;
    params.n_domains = 0;
    CHECK(pagepool_create(&params, &pool) == -EINVAL && strstr(pagepool_last_error(), "n_domains"));
    params = good;
    params.wakeup = 1;
    CHECK(pagepool_create(&params, &pool) == -EINVAL && strstr(pagepool_last_error(), "wakeup"));
    params = good;
    params.defer_capacity = 1;
    CHECK(pagepool_create(&params, &pool) == -EINVAL && strstr(pagepool_last_error(), "defer_capacity"));
}

/* Calls of an owner's are refused, and so are addresses that are not out. */
static void refusals(void)
{
    uint64_t addrs[3];
    CHECK(pagepool_bind(pool) == -EPERM && strstr(pagepool_last_error(), "no_owner"));
    CHECK(pagepool_alloc_page(pool) == NULL && strstr(pagepool_last_error(), "no_owner"));
    CHECK(pagepool_unbind(pool) < 0);
    CHECK(pagepool_alloc_addr_bulk(pool, addrs, 2) == 2 && addrs[0] != addrs[1]);
    addrs[2] = addrs[0] + 100; /* the page of the first one again */
    CHECK(pagepool_put_addr_bulk(pool, addrs, 3) == -ESTALE);
    CHECK(pagepool_put_addr_bulk(pool, addrs, 1) == -ESTALE && pagepool_put_addr(pool, addrs[1]) == -ESTALE);
    CHECK(pagepool_put_addr(pool, (uint64_t)PAGES * PAGE) == -EINVAL);
    CHECK(pagepool_put_addr_bulk(pool, NULL, 1) == -EINVAL);
}

/* A page that is out as an address may also become a buffer, which returns as from any thread. */
static void buffers(void)
{
    uint64_t addr;
    CHECK(pagepool_alloc_addr_bulk(pool, &addr, 1) == 1);
    struct pagepool_buf *buf = pagepool_from_raw(pool, addr);
    CHECK(buf != NULL && pagepool_put_addr(pool, addr) == -ESTALE && pagepool_buf_put(buf) == 0);
}

static void *take_and_return(void *arg)
{
    unsigned int seed = *(unsigned int *)arg;
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t addrs[MOST];
        seed = seed * 1103515245 + 12345;
        size_t n = pagepool_alloc_addr_bulk(pool, addrs, 1 + (seed >> 16) % MOST);
        for (size_t i = 0; i < n; i++)
            CHECK(__atomic_exchange_n(&out[addrs[i] / PAGE], 1, __ATOMIC_RELAXED) == 0);
        for (size_t i = 0; i < n; i++) {
            CHECK(__atomic_exchange_n(&out[addrs[i] / PAGE], 0, __ATOMIC_RELAXED) == 1);
            addrs[i] += (seed >> 8) % PAGE;
        }
        CHECK(pagepool_put_addr_bulk(pool, addrs, n) == 0);
    }
    return NULL;
}

static void threads(void)
{
    struct pagepool_buffer_locations at = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    unsigned int seeds[3] = {1, 2, 3};
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&thread[i], NULL, take_and_return, &seeds[i]) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK(pagepool_read_buffer_locations(pool, &at) == 0 && at.out == 0);
}

static int map(void *arg, const struct pagepool_region *region, uint64_t *addr)
{
    (void)arg;
    *addr = region->offset;
    return 0;
}

static void unmap(void *arg, const struct pagepool_region *region, uint64_t addr)
{
    (void)arg, (void)region, (void)addr;
}

/* In a turn of its thread, which is the owner as long: all its calls work, and none ends the turn. */
static void calls_in_a_callback(void *arg, uint64_t at, size_t len)
{
    int *callbacks = arg;
    uint64_t addr;
    (void)at, (void)len;
    if (++*callbacks > 1)
        return;
    CHECK(pagepool_bind(pool) == -EPERM && pagepool_unbind(pool) == -EBUSY);
    CHECK(pagepool_destroy(pool) == -EBUSY);
    CHECK(pagepool_alloc_addr_bulk(pool, &addr, 1) == 1 && pagepool_put_addr(pool, addr) == 0);
    for (int i = 0; i < 3; i++) {
        struct pagepool_buf *buf = pagepool_alloc_page(pool);
        CHECK(buf != NULL && pagepool_buf_put(buf) == 0);
    }
}

static void callbacks(struct pagepool_params params)
{
    int calls = 0;
    struct pagepool_domain_ops ops = {
        sizeof(ops), "iommu0", &calls, map, unmap, calls_in_a_callback, calls_in_a_callback, NULL, 0, 0,
    };
    struct pagepool_domain *domain;
    uint64_t addrs[3];
    char dump[1000];
    CHECK(pagepool_domain_create(&ops, &domain) == 0);
    params.domains = &domain;
    params.sync_for_device = 1;
    params.refill = 16; /* leaves pages in the arena for the callback */
    CHECK(pagepool_create(&params, &pool) == 0);
    CHECK(pagepool_alloc_addr_bulk(pool, addrs, 3) == 3 && pagepool_put_addr_bulk(pool, addrs, 3) == 0);
    CHECK(calls >= 2 && pagepool_alloc_page(pool) == NULL); /* the turn is over */
    CHECK(pagepool_dump(dump, sizeof(dump)) > 0 && strstr(dump, " no_owner page 4096 ") != NULL);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_domain_put(domain) == 0);
}

static void *until_cancelled(void *arg)
{
    (void)arg;
    for (;;) {
        uint64_t addrs[MOST];
        size_t n = pagepool_alloc_addr_bulk(pool, addrs, MOST);
        CHECK(pagepool_put_addr_bulk(pool, addrs, n) == 0);
        BETWEEN_TURNS();
        pthread_testcancel();
    }
}

/* A thread that is cancelled leaves no turn behind. */
static void cancelled(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct pagepool_buffer_locations at = PAGEPOOL_BUFFER_LOCATIONS_INIT;
        struct timespec moment = {0, round * 997};
        pthread_t thread[2];
        for (int i = 0; i < 2; i++)
            CHECK(pthread_create(&thread[i], NULL, until_cancelled, NULL) == 0);
        nanosleep(&moment, NULL);
        for (int i = 0; i < 2; i++)
            CHECK(pthread_cancel(thread[i]) == 0);
        for (int i = 0; i < 2; i++)
            CHECK(pthread_join(thread[i], NULL) == 0);
        CHECK(pagepool_read_buffer_locations(pool, &at) == 0 && at.out == 0);
    }
}

/* What a thread could not return, because the pool ended meanwhile. */
struct left {
    uint64_t addrs[MOST];
    size_t n;
};

static void *until_destroyed(void *arg)
{
    struct left *left = arg;
    for (;;) {
        uint64_t addrs[MOST];
        BETWEEN_TURNS();
        size_t n = pagepool_alloc_addr_bulk(pool, addrs, MOST);
        if (n == 0 && pagepool_last_errno() == ESTALE)
            return NULL;
        int done = pagepool_put_addr_bulk(pool, addrs, n);
        CHECK(done == 0 || (done == -ESTALE && n > 0));
        if (done == 0)
            continue;
        memcpy(left->addrs, addrs, n * sizeof(*addrs));
        left->n = n;
        return NULL;
    }
}

/* Any thread ends the pool, between two turns of others. The next pool has the same place. */
static void destroyed(struct pagepool_params params)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct left left[2] = {{{0}, 0}, {{0}, 0}};
        struct timespec moment = {0, round * 997};
        struct pagepool_shutdown *shutdown;
        pthread_t thread[2];
        CHECK(pagepool_create(&params, &pool) == 0);
        for (int i = 0; i < 2; i++)
            CHECK(pthread_create(&thread[i], NULL, until_destroyed, &left[i]) == 0);
        nanosleep(&moment, NULL);
        CHECK(pagepool_destroy_watched(pool, &shutdown) == 0);
        for (int i = 0; i < 2; i++)
            CHECK(pthread_join(thread[i], NULL) == 0);
        for (int i = 0; i < 2; i++)
            for (size_t at = 0; at < left[i].n; at++)
                CHECK(pagepool_shutdown_put_addr(shutdown, left[i].addrs[at]) == 0);
        CHECK(pagepool_shutdown_wait(shutdown, 0) == 0 && pagepool_shutdown_put(shutdown) == 0);
    }
}

int main(void)
{
    struct pagepool_arena *arena = arena_of((uint64_t)PAGES * PAGE);
    struct pagepool_domain *offsets;
    uint64_t addrs[PAGES + 1];
    CHECK(pagepool_domain_offset("offsets", &offsets) == 0);
    struct pagepool_params params = params_over(arena, &offsets);
    parameters(params);
    CHECK(pagepool_create(&params, &pool) == 0);
    refusals();
    buffers();
    threads();
    cancelled();
    CHECK(pagepool_alloc_addr_bulk(pool, addrs, PAGES + 1) == PAGES); /* each page, and no more */
    CHECK(pagepool_put_addr_bulk(pool, addrs, PAGES) == 0);
    CHECK(pagepool_destroy(pool) == 0);
    CHECK(pagepool_alloc_addr_bulk(pool, addrs, 1) == 0 && pagepool_put_addr(pool, addrs[0]) == -ESTALE);
    CHECK(pagepool_destroy(pool) == -ESTALE);
    /* Nor is the place of a pool that ended behind NULL. */
    CHECK(pagepool_alloc_addr_bulk(NULL, addrs, 1) == 0 && pagepool_alloc_addr_bulk(NULL, addrs, 2) == 0);
    CHECK(pagepool_put_addr(NULL, addrs[0]) == -EINVAL && pagepool_put_addr_bulk(NULL, addrs, 2) == -EINVAL);
    callbacks(params);
    destroyed(params);
    CHECK(pagepool_domain_put(offsets) == 0 && pagepool_arena_put(arena) == 0);
    return 0;
}
