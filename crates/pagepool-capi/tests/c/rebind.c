/* A thread that was a pool's owner is none any more: the inline functions, which remember the pool that a
 * thread used last, refuse it as the calls do. */
#include <pthread.h>

#include "check.h"

static struct pagepool *pool;
static pthread_barrier_t step;

static uint64_t returned_by_ring(void)
{
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    CHECK(pagepool_read_stats(pool, &stats) == 0);
    return stats.recycle_ring;
}

/* So that the inline functions of this thread remember the pool. */
static void use(void)
{
    for (int i = 0; i < 4; i++) {
        struct pagepool_buf *buf = pagepool_alloc_page(pool);
        CHECK(buf != NULL && pagepool_buf_data(buf) != NULL && pagepool_buf_put(buf) == 0);
    }
}

static void no_pool_is_null(void)
{
    CHECK(pagepool_alloc_page(NULL) == NULL && pagepool_last_errno() == EINVAL);
    CHECK(pagepool_buf_data(NULL) == NULL && pagepool_buf_put(NULL) == -EINVAL);
}

/* Of a thread that is not the owner: it allocates nothing, and its returns do not go into the cache. */
static void is_no_owner(struct pagepool_buf *out)
{
    uint64_t before = returned_by_ring();
    CHECK(pagepool_alloc_page(pool) == NULL && pagepool_last_errno() == EPERM);
    CHECK(pagepool_buf_data(out) != NULL && pagepool_buf_put(out) == 0);
    CHECK(returned_by_ring() == before + 1);
    CHECK(pagepool_buf_put(out) == -ESTALE);
    no_pool_is_null();
}

static void *other_owner(void *unused)
{
    CHECK(pagepool_bind(pool) == 0);
    use();
    pthread_barrier_wait(&step); /* is_no_owner() of main() */
    pthread_barrier_wait(&step);
    use();
    return unused; /* which unbinds */
}

static void hand_over(int by_destroying_another)
{
    pthread_t thread;
    use();
    struct pagepool_buf *out = pagepool_alloc_page(pool);
    if (by_destroying_another) { /* the pool stays, and its place in the table too */
        struct pagepool_arena *arena = arena_of(4 << 20);
        struct pagepool *another = pool_over(arena);
        CHECK(pagepool_bind(another) == 0 && pagepool_buf_put(pagepool_alloc_page(another)) == 0);
        CHECK(pagepool_destroy(another) == 0 && pagepool_arena_put(arena) == 0);
        CHECK(pagepool_alloc_page(another) == NULL && pagepool_last_errno() == ESTALE);
        use();
    }
    CHECK(pagepool_unbind(pool) == 0);
    CHECK(pthread_create(&thread, NULL, other_owner, NULL) == 0);
    pthread_barrier_wait(&step);
    is_no_owner(out);
    pthread_barrier_wait(&step);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pagepool_alloc_page(pool) == NULL && pagepool_last_errno() == EPERM);
    CHECK(pagepool_bind(pool) == 0);
    use();
}

int main(void)
{
    struct pagepool_arena *arena = arena_of(4 << 20);
    no_pool_is_null();
    pool = pool_over(arena);
    CHECK(pthread_barrier_init(&step, NULL, 2) == 0 && pagepool_bind(pool) == 0);
    hand_over(0);
    hand_over(1);
    struct pagepool_buf *out = pagepool_alloc_page(pool);
    CHECK(pagepool_destroy(pool) == 0);
    CHECK(pagepool_alloc_page(pool) == NULL && pagepool_last_errno() == ESTALE);
    CHECK(pagepool_buf_put(out) == 0 && pagepool_buf_put(out) == -ESTALE);
    no_pool_is_null();
    CHECK(pthread_barrier_destroy(&step) == 0 && pagepool_arena_put(arena) == 0);
    return 0;
}
