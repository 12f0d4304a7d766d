/* A thread may use the library for the first time in the destructor of a thread-specific key, after those of
 * its thread-local variables. It leaks no lane and no memory of the library's, and owns no pool for ever. */
#include <pthread.h>
#include <string.h>

#include "check.h"

enum { THREADS = 100 };

/* For the address sanitizer: glibc keeps a record of a variable whose destructor is registered too late. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:__cxa_thread_atexit_impl";
}

static pthread_key_t key;
/* The round of destructors, of four, in which the library is used. */
static int round_of_use;

struct late {
    void (*use)(void *arg);
    void *arg;
    int round, done;
};

static void destructor(void *arg)
{
    struct late *late = arg;
    if (++late->round < round_of_use) {
        CHECK(pthread_setspecific(key, late) == 0);
        return;
    }
    late->use(late->arg);
    late->done = 1;
}

static void *set_the_key(void *late)
{
    CHECK(pthread_setspecific(key, late) == 0);
    return NULL;
}

static void use_late(void (*use)(void *arg), void *arg)
{
    struct late late = {use, arg, 0, 0};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, set_the_key, &late) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(late.done);
}

static void put(void *buf)
{
    CHECK(pagepool_buf_put(buf) == 0);
}

static void *put_in_time(void *buf)
{
    CHECK(pagepool_buf_put(buf) == 0);
    return NULL;
}

static uint64_t pages_in_lanes(struct pagepool *pool)
{
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    CHECK(pagepool_read_buffer_locations(pool, &places) == 0);
    return places.lanes;
}

/* As many threads as there are lanes, and more: each leaves its lane to the next. */
static void lanes(struct pagepool *pool)
{
    struct pagepool_buf *bufs[THREADS + 1];
    pthread_t thread;
    CHECK(pagepool_alloc_bulk(pool, bufs, THREADS + 1) == THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        use_late(put, bufs[i]);
        CHECK(pages_in_lanes(pool) == (uint64_t)i + 1);
    }
    CHECK(pthread_create(&thread, NULL, put_in_time, bufs[THREADS]) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pages_in_lanes(pool) == THREADS + 1);
    CHECK(pagepool_alloc_bulk(pool, bufs, THREADS + 1) == THREADS + 1);
    CHECK(pagepool_buf_put_bulk(bufs, THREADS + 1) == 0);
}

static void bind(void *pool)
{
    struct pagepool_buf *buf;
    CHECK(pagepool_bind(pool) == 0 && (buf = pagepool_alloc_page(pool)) != NULL);
    CHECK(pagepool_buf_put(buf) == 0);
}

static void make_an_error(void *arg)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool *pool;
    params.arena = arg;
    params.headroom = 5000;
    CHECK(pagepool_create(&params, &pool) == -EINVAL && strstr(pagepool_last_error(), "headroom is 5000"));
}

static void *set_the_key_after_use(void *late)
{
    struct pagepool *pool;
    CHECK(pagepool_open(1 << 20, 0, &pool) == 0 && pagepool_destroy(pool) == 0);
    return set_the_key(late);
}

static void open_refused(void *arg)
{
    struct pagepool *pool = NULL;
    (void)arg;
    CHECK(pagepool_open(1 << 20, 0, &pool) == -EPERM && pool == NULL);
}

/* A thread whose pools were unbound can bind no other: the one that it opens is gone again. */
static void no_pool_is_opened_too_late(void)
{
    struct late late = {open_refused, NULL, 0, 0};
    int64_t before = pagepool_dump(NULL, 0);
    pthread_t thread;
    round_of_use = 2;
    CHECK(pthread_create(&thread, NULL, set_the_key_after_use, &late) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && late.done && pagepool_dump(NULL, 0) == before);
}

int main(void)
{
    struct pagepool_arena *arena = arena_of(16 << 20);
    struct pagepool *pool = pool_over(arena);
    CHECK(pthread_key_create(&key, destructor) == 0);
    for (round_of_use = 1; round_of_use <= 3; round_of_use++) {
        CHECK(pagepool_bind(pool) == 0);
        lanes(pool);
        CHECK(pagepool_unbind(pool) == 0);
        for (int i = 0; i < 10; i++) {
            use_late(bind, pool);
            CHECK(pagepool_bind(pool) == 0 && pagepool_unbind(pool) == 0);
            use_late(make_an_error, arena);
        }
    }
    no_pool_is_opened_too_late();
    CHECK(pagepool_destroy(pool) == 0 && pagepool_arena_put(arena) == 0);
    puts("ok");
    return 0;
}
