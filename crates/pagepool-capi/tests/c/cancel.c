/* A thread that is cancelled (pthread_cancel) in a call finishes the call: none is a cancellation point. */
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <pagepool_skb.h>

#include "check.h"

#ifdef V
enum { WORKERS = 20 };
#else
enum { WORKERS = 400 };
#endif

struct work {
    void (*run)(void *arg);
    void *arg;
    int done;
};

/* Every cancellation point from here on ends the thread. */
static void *with_a_cancellation_pending(void *arg)
{
    struct work *work = arg;
    CHECK(pthread_cancel(pthread_self()) == 0);
    work->run(work->arg);
    work->done = 1;
    pthread_testcancel();
    return NULL;
}

static void run_cancelled(void (*run)(void *arg), void *arg)
{
    struct work work = {run, arg, 0};
    pthread_t thread;
    void *result = NULL;
    CHECK(pthread_create(&thread, NULL, with_a_cancellation_pending, &work) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(work.done && result == PTHREAD_CANCELED);
}

static void arenas(void *arg)
{
    (void)arg;
    for (uint32_t backing = PAGEPOOL_BACKING_DEFAULT; backing <= PAGEPOOL_BACKING_MEMFD_HUGE; backing++) {
        struct pagepool_arena_params params = PAGEPOOL_ARENA_PARAMS_INIT;
        struct pagepool_arena *arena;
        char line[200];
        params.max_bytes = backing == PAGEPOOL_BACKING_HUGE_1G ? (uint64_t)1 << 30 : 4 << 20;
        params.backing = backing;
        int made = pagepool_arena_create(&params, &arena);
        CHECK(made == 0 || made == -ENOMEM || made == -EINVAL);
        params.huge_or_fail = 1;
        if (made == 0) {
            CHECK(pagepool_arena_describe(arena, line, sizeof(line)) > 0 && pagepool_arena_trim(arena) >= 0);
            CHECK(pagepool_arena_put(arena) == 0);
        }
        if (pagepool_arena_create(&params, &arena) == 0)
            CHECK(pagepool_arena_put(arena) == 0);
    }
}

/* The user's functions may do what they like: these are cancellation points. */
static int map(void *arg, const struct pagepool_region *region, uint64_t *addr)
{
    ++*(int *)arg;
    *addr = region->offset;
    return usleep(1);
}

static void unmap(void *arg, const struct pagepool_region *region, uint64_t addr)
{
    (void)region, (void)addr;
    --*(int *)arg;
    pthread_testcancel();
}

static void sync_bytes(void *arg, uint64_t addr, size_t len)
{
    (void)arg, (void)addr, (void)len;
    pthread_testcancel();
}

static void release(void *arg)
{
    CHECK(*(int *)arg == 0);
    *(int *)arg = -1;
    pthread_testcancel();
}

static int in_use(void *arg, uint64_t cookie)
{
    pthread_testcancel();
    return cookie == 7 && *(int *)arg;
}

static void nothing(void *arg)
{
    (void)arg;
    pthread_testcancel();
}

static void lent(void *arg, void *start, size_t len)
{
    (void)start;
    *(size_t *)arg += len;
    pthread_testcancel();
}

static void packets(struct pagepool_buf *buf)
{
    struct pagepool_skb_cache *cache;
    struct pagepool_skb *skb;
    static char image[64];
    size_t freed = 0;
    CHECK(pagepool_skb_cache_create(16, &cache) == 0 && pagepool_skb_from_buf(cache, buf, 64, 60, &skb) == 0);
    CHECK(pagepool_skb_add_memory(skb, image, sizeof(image), lent, &freed) == 0);
    CHECK(pagepool_skb_put(skb) == 0 && freed == sizeof(image) && pagepool_skb_cache_put(cache) == 0);
}

/* Names of functions are looked up in files. */
static void stacks(void *arg)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_arena *arena = params.arena = arena_of(1 << 20);
    struct pagepool_shutdown *shutdown;
    struct pagepool *pool;
    char text[2000];
    (void)arg;
    params.holders = PAGEPOOL_HOLDERS_STACKS;
    params.one_stack_in = 1;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    struct pagepool_buf *kept = pagepool_alloc_page(pool);
    CHECK(pagepool_buf_put(pagepool_alloc_page(pool)) == 0);
    CHECK(pagepool_destroy_watched(pool, &shutdown) == 0);
    CHECK(pagepool_shutdown_report(shutdown, text, sizeof(text)) == 1);
    CHECK(pagepool_buf_put(kept) == 0 && pagepool_shutdown_put(shutdown) == 0);
    CHECK(pagepool_arena_put(arena) == 0);
}

/* One thread makes a pool, dries it up, is woken, and ends the pool. */
static void a_pools_life(void *arg)
{
    struct pagepool_domain_ops ops = {
        sizeof(ops), "iommu0", arg, map, unmap, sync_bytes, sync_bytes, release, 0, 0,
    };
    int reading = 1;
    struct pagepool_deferred_user_ops user_ops = {sizeof(user_ops), &reading, in_use, nothing, nothing};
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_arena *arena = params.arena = arena_of(1 << 20);
    struct pagepool_deferred_user *user;
    struct pagepool_shutdown *shutdown;
    struct pagepool_domain *domain;
    struct pagepool_buf *bufs[256];
    struct pagepool *pool;
    char text[1000];
    CHECK(pagepool_domain_create(&ops, &domain) == 0);
    params.domains = &domain;
    params.n_domains = 1;
    params.sync_for_device = params.wakeup = 1;
    params.low_water = 10;
    params.defer_capacity = 16;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    CHECK(pagepool_domain_put(domain) == 0);
    CHECK(pagepool_deferred_user_create(pool, &user_ops, &user) == 0);
    size_t n = pagepool_alloc_bulk(pool, bufs, 256);
    CHECK(n == 256 && pagepool_alloc_page(pool) == NULL);
    for (int i = 0; i < 3; i++) {
        CHECK(pagepool_ask_to_shrink(pool, 1000) == 0); /* signals the descriptor */
        CHECK(pagepool_alloc_page(pool) == NULL && pagepool_acknowledge_wake(pool) == 0);
        CHECK(pagepool_alloc_page(pool) == NULL && pagepool_buf_put_ring(bufs[n - 1]) == 0);
        CHECK((bufs[n - 1] = pagepool_alloc_page(pool)) != NULL);
    }
    packets(bufs[--n]);
    CHECK(pagepool_defer(pool, user, bufs[--n], 0) == 0 && pagepool_poll_deferred(pool) == 1);
    CHECK(pagepool_defer(pool, user, bufs[--n], 7) == 0 && pagepool_poll_deferred(pool) == 0);
    CHECK(pagepool_deferred_user_put(user) == 0 && pagepool_buf_put_bulk(bufs, n) == 0);
    CHECK(pagepool_dump(text, sizeof(text)) > 0 && pagepool_destroy_watched(pool, &shutdown) == 0);
    CHECK(pagepool_shutdown_wait(shutdown, 2000000) == -ETIMEDOUT); /* asks in_use while it waits */
    CHECK(pagepool_shutdown_report(shutdown, text, sizeof(text)) == 1);
    reading = 0;
    CHECK(pagepool_shutdown_wait(shutdown, UINT64_MAX) == 0);
    CHECK(pagepool_shutdown_put(shutdown) == 0 && pagepool_arena_put(arena) == 0);
}

/* Buffers of another thread's pool; `at` is the next one to be returned. */
struct load {
    struct pagepool_buf *bufs[256];
    size_t n;
    volatile size_t at;
    size_t wait_at; /* from here on it returns no more, and is cancelled */
};

static void *put_one_by_one(void *arg)
{
    struct load *load = arg;
    while (load->at < load->n) {
        CHECK(pagepool_buf_put(load->bufs[load->at]) == 0);
        load->at = load->at + 1;
        do
            pthread_testcancel();
        while (load->at == load->wait_at);
    }
    return NULL;
}

/* Workers that return buffers to a starved owner, and so signal its descriptor, are cancelled. */
static void workers_are_cancelled_at_any_moment(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_arena *arena = params.arena = arena_of(1 << 20);
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    struct pagepool *pool;
    int ended_early = 0;
    params.wakeup = 1;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    for (int round = 0; round < WORKERS; round++) {
        struct load load = {{NULL}, 0, 0, round % 4 == 0 ? 100 : 0};
        struct timespec moment = {0, round * 997 % 100000};
        pthread_t worker;
        void *result;
        load.n = pagepool_alloc_bulk(pool, load.bufs, 256);
        CHECK(load.n == 256 && pagepool_alloc_page(pool) == NULL);
        CHECK(pthread_create(&worker, NULL, put_one_by_one, &load) == 0);
        if (round % 4 != 0)
            nanosleep(&moment, NULL);
        CHECK(pthread_cancel(worker) == 0 && pthread_join(worker, &result) == 0);
        ended_early += result == PTHREAD_CANCELED && load.at < load.n;
        CHECK(pagepool_buf_put_bulk(load.bufs + load.at, load.n - load.at) == 0);
        CHECK(pagepool_read_buffer_locations(pool, &places) == 0 && places.out == 0 && places.total == 256);
        CHECK(pagepool_acknowledge_wake(pool) == 0);
    }
    CHECK(ended_early > 0 && pagepool_destroy(pool) == 0 && pagepool_arena_put(arena) == 0);
}

int main(void)
{
    int mapped = 0;
    may_take_huge_pages();
    run_cancelled(arenas, NULL);
    run_cancelled(a_pools_life, &mapped);
    CHECK(mapped == -1); /* released */
    run_cancelled(stacks, NULL);
    workers_are_cancelled_at_any_moment();
    puts("ok");
    return 0;
}
