/* Buffers that wait for a user who only says whether they are in use still. */
#include <string.h>

#include "check.h"

enum { BUSY = 256 };

struct counts {
    int in_use[BUSY], asked, refreshed, released;
    struct pagepool *pool; /* to be used from inside */
};

static int in_use(void *arg, uint64_t cookie)
{
    struct counts *counts = arg;
    CHECK(cookie < BUSY);
    counts->asked++;
    if (counts->pool != NULL) {
        struct pagepool *pool = counts->pool;
        counts->pool = NULL;
        CHECK(pagepool_destroy(pool) == -EBUSY && pagepool_unbind(pool) == -EBUSY &&
            pagepool_poll_deferred(pool) == 0);
        CHECK(pagepool_alloc_page(pool) == NULL && pagepool_dump(NULL, 0) > 0); /* all pages wait */
    }
    return counts->in_use[cookie];
}

static void refresh(void *arg)
{
    ((struct counts *)arg)->refreshed++;
}

static void release(void *arg)
{
    ((struct counts *)arg)->released++;
}

static struct pagepool *waiting_pool(struct pagepool_arena *arena, uint32_t capacity, uint32_t on_busy,
    uint32_t ahead)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool *pool = NULL;
    params.arena = arena;
    params.defer_capacity = capacity;
    params.on_busy = on_busy;
    params.skip_ahead = ahead;
    if (pagepool_create(&params, &pool) == 0)
        CHECK(pagepool_bind(pool) == 0);
    return pool;
}

static struct pagepool_deferred_user *user_of(struct pagepool *pool, struct counts *counts)
{
    struct pagepool_deferred_user_ops ops = {sizeof(ops), counts, in_use, refresh, release};
    struct pagepool_deferred_user *user;
    CHECK(pagepool_deferred_user_create(pool, &ops, &user) == 0);
    return user;
}

static struct pagepool_deferred_stats stats_of(struct pagepool *pool)
{
    struct pagepool_deferred_stats stats = PAGEPOOL_DEFERRED_STATS_INIT;
    CHECK(pagepool_read_deferred_stats(pool, &stats) == 0);
    return stats;
}

static void refills_find_what_is_done(void)
{
    static struct counts counts;
    struct pagepool_arena *arena = arena_of(4096 * 8);
    struct pagepool *pool = waiting_pool(arena, 8, PAGEPOOL_ON_BUSY_KEEP, 0);
    struct pagepool_deferred_user *user = user_of(pool, &counts);
    struct pagepool_buf *bufs[8];
    CHECK(pagepool_alloc_bulk(pool, bufs, 8) == 8);
    for (uint64_t i = 0; i < 8; i++) {
        counts.in_use[i] = 1;
        CHECK(pagepool_defer(pool, user, bufs[i], i) == 0);
    }
    CHECK(pagepool_buf_put(bufs[0]) == -ESTALE && stats_of(pool).pending == 8);
    CHECK(pagepool_alloc_page(pool) == NULL && counts.refreshed > 0 && stats_of(pool).kept > 0);
    counts.in_use[1] = 0;
    CHECK(pagepool_poll_deferred(pool) == 0);
    counts.in_use[0] = 0;
    counts.pool = pool;
    CHECK((bufs[0] = pagepool_alloc_page(pool)) != NULL && (bufs[1] = pagepool_alloc_page(pool)) != NULL);
    CHECK(stats_of(pool).reused == 2 && counts.pool == NULL);
    CHECK(pagepool_buf_put_bulk(bufs, 2) == 0 && pagepool_deferred_user_put(user) == 0 &&
        counts.released == 0);
    CHECK(pagepool_deferred_user_put(user) == -ESTALE);
    memset(counts.in_use, 0, sizeof(counts.in_use));
    CHECK(pagepool_poll_deferred(pool) == 6 && counts.released == 1 && pagepool_inflight(pool) == 8);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_arena_pages_out(arena) == 0 &&
        pagepool_arena_put(arena) == 0);
}

static void a_round_looks_past_or_lets_go(void)
{
    static struct counts skips, lets_go;
    struct pagepool_arena *arena = arena_of(1 << 20);
    struct pagepool *pool = waiting_pool(arena, 16, PAGEPOOL_ON_BUSY_SKIP, 2);
    struct pagepool_deferred_user *user = user_of(pool, &skips);
    for (uint64_t i = 0; i < 6; i++)
        CHECK(pagepool_defer(pool, user, pagepool_alloc_frag(pool, 1000), i) == 0);
    skips.in_use[0] = skips.in_use[1] = skips.in_use[4] = 1;
    CHECK(pagepool_poll_deferred(pool) == 2 && stats_of(pool).skipped == 2 && stats_of(pool).pending == 4);
    skips.in_use[0] = skips.in_use[1] = skips.in_use[4] = 0;
    CHECK(pagepool_poll_deferred(pool) == 4 && pagepool_deferred_user_put(user) == 0 &&
        pagepool_destroy(pool) == 0);
    CHECK(skips.released == 1);

    pool = waiting_pool(arena, 16, PAGEPOOL_ON_BUSY_RELEASE, 0);
    user = user_of(pool, &lets_go);
    lets_go.in_use[0] = 1;
    CHECK(pagepool_defer(pool, user, pagepool_alloc_page(pool), 0) == 0 && pagepool_poll_deferred(pool) == 0);
    CHECK(stats_of(pool).released == 1 && pagepool_inflight(pool) == 63 && stats_of(pool).pending == 1);
    lets_go.in_use[0] = 0;
    CHECK(pagepool_poll_deferred(pool) == 0 && stats_of(pool).freed_late == 1 &&
        pagepool_deferred_user_put(user) == 0);
    CHECK(pagepool_destroy(pool) == 0 && lets_go.released == 1);
    CHECK(pagepool_arena_pages_out(arena) == 0 && pagepool_arena_put(arena) == 0);
}

static void the_end_asks_on(void)
{
    static struct counts watched, alone;
    struct pagepool_arena *arena = arena_of(1 << 20);
    struct pagepool_shutdown *shutdown;
    struct pagepool *pool = waiting_pool(arena, 4, PAGEPOOL_ON_BUSY_KEEP, 0);
    struct pagepool_deferred_user *user = user_of(pool, &watched);
    watched.in_use[3] = 1;
    CHECK(pagepool_defer(pool, user, pagepool_alloc_page(pool), 3) == 0 &&
        pagepool_deferred_user_put(user) == 0);
    CHECK(pagepool_destroy_watched(pool, &shutdown) == 0 &&
        pagepool_shutdown_wait(shutdown, 5000000) == -ETIMEDOUT);
    watched.in_use[3] = 0;
    CHECK(pagepool_shutdown_wait(shutdown, 60000000000) == 0 && pagepool_shutdown_put(shutdown) == 0);
    CHECK(watched.released == 1 && pagepool_arena_pages_out(arena) == 0);

    pool = waiting_pool(arena, 4, PAGEPOOL_ON_BUSY_KEEP, 0);
    user = user_of(pool, &alone);
    alone.in_use[7] = 1;
    CHECK(pagepool_defer(pool, user, pagepool_alloc_page(pool), 7) == 0 &&
        pagepool_deferred_user_put(user) == 0);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_arena_pages_out(arena) == 1 && alone.released == 0);
    alone.in_use[7] = 0;
    CHECK(pagepool_dump(NULL, 0) >= 0 && pagepool_arena_pages_out(arena) == 0 && alone.released == 1);
    CHECK(pagepool_arena_put(arena) == 0);
}

static void what_is_refused_stays(void)
{
    static struct counts counts;
    struct pagepool_deferred_user_ops ops = {sizeof(ops), &counts, in_use, refresh, release};
    struct pagepool_arena *arena = arena_of(1 << 20);
    struct pagepool_deferred_user *user, *others;
    struct pagepool *plain = pool_over(arena), *other, *pool;
    CHECK(pagepool_bind(plain) == 0 && pagepool_deferred_user_create(plain, &ops, &user) == -EOPNOTSUPP);
    CHECK(strstr(pagepool_last_error(), "defer_capacity") && counts.released == 0);
    CHECK(waiting_pool(arena, 0, PAGEPOOL_ON_BUSY_RELEASE, 0) == NULL &&
        waiting_pool(arena, 4, 3, 0) == NULL);
    CHECK(waiting_pool(arena, 4, PAGEPOOL_ON_BUSY_SKIP, 65) == NULL && waiting_pool(arena, 4, 0, 1) == NULL);
    CHECK(waiting_pool(arena, 65537, 0, 0) == NULL && strstr(pagepool_last_error(), "65537"));
    CHECK((pool = waiting_pool(arena, 1, 0, 0)) != NULL && (other = waiting_pool(arena, 1, 0, 0)) != NULL);
    ops.in_use = NULL;
    CHECK(pagepool_deferred_user_create(pool, &ops, &user) == -EINVAL &&
        strstr(pagepool_last_error(), "in_use"));
    user = user_of(pool, &counts);
    others = user_of(other, &counts);
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    CHECK(pagepool_defer(pool, others, buf, 0) == -EINVAL &&
        pagepool_defer(other, others, buf, 0) == -EINVAL);
    CHECK(pagepool_defer(pool, NULL, buf, 0) == -EINVAL && pagepool_defer(pool, user, NULL, 0) == -EINVAL);
    CHECK(pagepool_defer(pool, user, pagepool_alloc_page(pool), 0) == 0);
    CHECK(pagepool_defer(pool, user, buf, 0) == -ENOBUFS && stats_of(pool).full == 1 &&
        pagepool_buf_len(buf) == 4096);
    CHECK(pagepool_buf_put(buf) == 0 && pagepool_poll_deferred(pool) == 1 &&
        pagepool_poll_deferred(plain) == 0);
    CHECK(pagepool_unbind(pool) == 0 && pagepool_poll_deferred(pool) == -EPERM);
    CHECK(pagepool_deferred_user_put(user) == 0 && pagepool_deferred_user_put(others) == 0);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_destroy(other) == 0 && pagepool_destroy(plain) == 0);
    CHECK(counts.released == 2 && pagepool_arena_pages_out(arena) == 0 && pagepool_arena_put(arena) == 0);
}

int main(void)
{
    refills_find_what_is_done();
    a_round_looks_past_or_lets_go();
    the_end_asks_on();
    what_is_refused_stays();
    return 0;
}
