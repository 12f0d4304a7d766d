/* A thread that is not the owner: the inline functions remember a pool to which it returns, and are
 * not misled when that pool ends, when another one gets its places, or when the thread becomes the owner. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

enum { BUFS = 300, SOME = 20, PAGES = 1024, ARENAS = 16 };

static struct pagepool *pool;
static struct pagepool_buf *bufs[BUFS], *all[PAGES];
/* All live to the end, so that no pool gets memory that another pool used. */
static struct pagepool_arena *arenas[ARENAS];
static int arenas_made, fills;
/* What the worker does next. NULL ends the worker. */
static void (*work)(void);
static pthread_barrier_t step;
static pthread_key_t key;
static pthread_t worker;
static atomic_int ready;

static void *work_until_null(void *unused)
{
    CHECK(pthread_setspecific(key, &key) == 0);
    for (;;) {
        pthread_barrier_wait(&step);
        if (work == NULL)
            return unused;
        work();
        pthread_barrier_wait(&step);
    }
}

static void elsewhere(void (*what)(void))
{
    work = what;
    pthread_barrier_wait(&step);
    if (what != NULL)
        pthread_barrier_wait(&step);
}

static struct pagepool_stats stats_of(struct pagepool *of)
{
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    CHECK(pagepool_read_stats(of, &stats) == 0);
    return stats;
}

static struct pagepool *pool_of(uint64_t bytes)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool *made = NULL;
    CHECK(arenas_made < ARENAS);
    params.arena = arenas[arenas_made++] = arena_of(bytes);
    params.wakeup = 1;
    params.max_lanes = 1;
    params.lane_size = 128; /* less than BUFS: the rest goes into the ring */
    CHECK(pagepool_create(&params, &made) == 0 && pagepool_bind(made) == 0);
    return made;
}

static void fill(void)
{
    ++fills;
    for (int i = 0; i < BUFS; i++) {
        CHECK((bufs[i] = pagepool_alloc_page(pool)) != NULL);
        *(int *)pagepool_buf_data(bufs[i]) = fills * BUFS + i;
    }
}

static void read_all(void)
{
    for (int i = 0; i < BUFS; i++) {
        const int *data = pagepool_buf_data(bufs[i]);
        CHECK(data != NULL && *data == fills * BUFS + i);
    }
}

static void put_all(void)
{
    for (int i = 0; i < BUFS; i++)
        CHECK(pagepool_buf_put(bufs[i]) == 0 && pagepool_buf_put(bufs[i]) == -ESTALE);
}

/* Fewer than the lane has room for. */
static void put_some(void)
{
    for (int i = 0; i < SOME; i++)
        CHECK(pagepool_buf_put(bufs[i]) == 0);
}

static void put_first(void)
{
    CHECK(pagepool_buf_put(bufs[0]) == 0);
}

/* All buffers return by message, and none is lost. */
static void return_by(void (*what)(void))
{
    uint64_t before = stats_of(pool).recycle_ring;
    fill();
    elsewhere(what);
    CHECK(stats_of(pool).recycle_ring == before + BUFS && stats_of(pool).returned_twice == 0);
    CHECK(pagepool_alloc_bulk(pool, all, PAGES) == PAGES && pagepool_buf_put_bulk(all, PAGES) == 0);
}

static void read_and_put(void)
{
    read_all();
    put_all();
    for (int i = 0; i < BUFS; i++)
        CHECK(pagepool_buf_data(bufs[i]) == NULL);
    CHECK(pagepool_buf_put(NULL) == -EINVAL && pagepool_buf_data(NULL) == NULL);
}

/* The worker's last returns leave room in its lane, and the buffers are out again. */
static void open_lane(void)
{
    fill();
    elsewhere(put_some);
    CHECK(pagepool_alloc_bulk(pool, bufs, SOME) == SOME);
    for (int i = 0; i < SOME; i++)
        *(int *)pagepool_buf_data(bufs[i]) = fills * BUFS + i;
}

/* At the end of a run of slots the library returns one. */
static void put_two(void)
{
#ifdef PAGEPOOL_LIKELY_ /* the inline functions are there */
    uint32_t missed = pagepool_missed_;
    CHECK(pagepool_there_->token == (uintptr_t)pool);
#endif
    CHECK(pagepool_buf_put(bufs[SOME]) == 0 && pagepool_buf_put(bufs[SOME + 1]) == 0);
#ifdef PAGEPOOL_LIKELY_
    CHECK(pagepool_missed_ - missed < 2 || syscall(SYS_membarrier, 0, 0, 0) <= 0);
#endif
}

static void are_stale(void)
{
    for (int i = 0; i < BUFS; i++)
        CHECK(pagepool_buf_put(bufs[i]) == -ESTALE && pagepool_buf_data(bufs[i]) == NULL);
}

static void use_elsewhere(uint64_t bytes)
{
    pool = pool_of(bytes);
    return_by(put_all); /* first, so that no call has looked at the pool */
    return_by(read_and_put);
}

static void end(struct pagepool *of)
{
    open_lane();
    CHECK(pagepool_buf_put_bulk(bufs, BUFS) == 0 && pagepool_destroy(of) == 0);
    elsewhere(are_stale);
}

/* The next pool has the slot and the places of the last one, then only the places, then only the slot. */
static void pools_follow_each_other(void)
{
    struct pagepool *large;
    use_elsewhere(4 << 20);
    end(pool);
    use_elsewhere(4 << 20);
    end(pool);
    large = pool_of(64 << 20);
    use_elsewhere(4 << 20);
    CHECK(pagepool_destroy(large) == 0);
    end(pool);
    use_elsewhere(64 << 20);
    end(pool);
}

/* The buffers are of two pools in turn: the record changes seldom. */
static void put_in_turn(void)
{
    int changes = 0;
    for (int i = 0; i < BUFS; i++) {
#ifdef PAGEPOOL_LIKELY_
        uint64_t token = pagepool_there_->token;
        CHECK(pagepool_buf_data(bufs[i]) != NULL && pagepool_buf_put(bufs[i]) == 0);
        changes += pagepool_there_->token != token;
#else
        CHECK(pagepool_buf_put(bufs[i]) == 0);
#endif
    }
    CHECK(changes <= BUFS / 16);
}

/* Every second buffer is a fragment, which the record is of no use for. */
static void put_pages_and_frags(void)
{
#ifdef PAGEPOOL_LIKELY_
    pagepool_missed_ = 0;
#endif
    for (int i = 0; i < BUFS; i++)
        CHECK(pagepool_buf_put(bufs[i]) == 0);
#ifdef PAGEPOOL_LIKELY_
    CHECK(pagepool_there_->token == (uintptr_t)pool);
    CHECK(pagepool_there_->pages != 0 || syscall(SYS_membarrier, 0, 0, 0) <= 0);
#endif
}

/* The thread returns to two pools in turn. */
static void two_pools(void)
{
    struct pagepool *both[] = {pool_of(4 << 20), pool_of(4 << 20)};
    for (int i = 0; i < 6; i++) {
        pool = both[i % 2];
        return_by(i < 2 ? put_all : read_and_put);
    }
    for (int i = 0; i < BUFS; i++)
        CHECK((bufs[i] = pagepool_alloc_page(both[i % 2])) != NULL);
    elsewhere(put_in_turn);
    CHECK(pagepool_destroy(both[0]) == 0 && pagepool_destroy(both[1]) == 0);
}

static void pages_and_frags(void)
{
    pool = pool_of(4 << 20);
    for (int i = 0; i < BUFS; i++)
        CHECK((bufs[i] = i % 2 ? pagepool_alloc_frag(pool, 2048) : pagepool_alloc_page(pool)) != NULL);
    elsewhere(put_pages_and_frags);
    CHECK(pagepool_destroy(pool) == 0);
}

/* A destroyed pool is freed when its last buffer returns. */
static void a_pool_ends_with_buffers_out(void)
{
    struct pagepool_shutdown *shutdown = NULL;
    use_elsewhere(4 << 20);
    fill();
    CHECK(pagepool_destroy_watched(pool, &shutdown) == 0);
    CHECK(pagepool_shutdown_wait(shutdown, 0) == -ETIMEDOUT);
    elsewhere(read_all);
    elsewhere(put_all);
    CHECK(pagepool_shutdown_wait(shutdown, 0) == 0 && pagepool_shutdown_put(shutdown) == 0);
}

/* A return wakes the owner that found no page. */
static void an_owner_is_woken(void)
{
    size_t n = 0;
    use_elsewhere(PAGES * 4096);
    int wakeup = pagepool_wake_fd(pool);
    CHECK(wakeup >= 0);
    open_lane();
    while (n < PAGES && (all[n] = pagepool_alloc_page(pool)) != NULL)
        n++;
    CHECK(n == PAGES - BUFS);
    struct pollfd event = {.fd = wakeup, .events = POLLIN};
    CHECK(poll(&event, 1, 0) == 0);
    elsewhere(put_first);
    CHECK(poll(&event, 1, 0) == 1);
    CHECK(pagepool_buf_put_bulk(bufs + 1, BUFS - 1) == 0 && pagepool_buf_put_bulk(all, n) == 0);
    CHECK(pagepool_destroy(pool) == 0);
}

static void own_and_put(void)
{
    uint64_t before = stats_of(pool).recycle_cached;
    CHECK(pagepool_bind(pool) == 0 && pagepool_buf_put(bufs[0]) == 0);
    CHECK(stats_of(pool).recycle_cached == before + 1);
    CHECK(pagepool_buf_put_bulk(bufs + 1, BUFS - 1) == 0 && pagepool_unbind(pool) == 0);
}

/* The thread becomes the owner: what it returns goes into the cache, from the first buffer on. */
static void the_thread_becomes_the_owner(void)
{
    use_elsewhere(4 << 20);
    open_lane();
    CHECK(pagepool_unbind(pool) == 0);
    elsewhere(own_and_put);
    CHECK(pagepool_bind(pool) == 0);
    return_by(read_and_put);
}

/* The thread's returns need no call. */
static void the_functions_are_inline(void)
{
    open_lane();
    elsewhere(put_two);
    CHECK(pagepool_buf_put_bulk(bufs, SOME) == 0);
    CHECK(pagepool_buf_put_bulk(bufs + SOME + 2, BUFS - SOME - 2) == 0);
}

static void put_half(struct pagepool_buf **half)
{
    CHECK(pagepool_buf_put(half[0]) == 0 && pagepool_buf_put(half[1]) == 0);
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&ready) < 2)
        sched_yield();
    for (int i = 2; i < BUFS / 2; i++)
        CHECK(pagepool_buf_put(half[i]) == 0);
}

static void *put_second_half(void *unused)
{
    put_half(bufs + BUFS / 2);
    return unused;
}

/* Runs as a destructor of a thread-specific key, after the thread lost its lanes. The other thread takes over
 * its lane, and both return buffers at once. */
static void at_the_end(void *unused)
{
    pthread_t other;
    (void)unused;
    read_all();
    CHECK(pthread_create(&other, NULL, put_second_half, NULL) == 0);
    put_half(bufs);
    CHECK(pthread_join(other, NULL) == 0);
}

static void threads_end(void)
{
    for (int i = 0; i < 300; i++) {
        CHECK(i == 0 || pthread_create(&worker, NULL, work_until_null, NULL) == 0);
        open_lane();
        atomic_store(&ready, 0);
        elsewhere(NULL);
        CHECK(pthread_join(worker, NULL) == 0);
        CHECK(pagepool_alloc_bulk(pool, all, PAGES) == PAGES && pagepool_buf_put_bulk(all, PAGES) == 0);
        CHECK(stats_of(pool).returned_twice == 0);
    }
}

int main(void)
{
    CHECK(pthread_barrier_init(&step, NULL, 2) == 0 && pthread_key_create(&key, at_the_end) == 0);
    CHECK(pthread_create(&worker, NULL, work_until_null, NULL) == 0);
    pools_follow_each_other();
    two_pools();
    pages_and_frags();
    a_pool_ends_with_buffers_out();
    an_owner_is_woken();
    the_thread_becomes_the_owner();
    the_functions_are_inline();
    threads_end();
    CHECK(pagepool_destroy(pool) == 0 && pthread_key_delete(key) == 0 && pthread_barrier_destroy(&step) == 0);
    while (arenas_made > 0)
        CHECK(pagepool_arena_put(arenas[--arenas_made]) == 0);
    return 0;
}
