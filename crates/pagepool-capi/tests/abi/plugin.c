/* A plug-in with a pagepool library of its own. It gets handles of its host's library, which its own must
 * refuse, and gives one of its own. */
#include "../c/check.h"

int plugin_run(struct pagepool *hosts_pool, struct pagepool_buf *hosts_buf, struct pagepool_buf **mine);

int plugin_run(struct pagepool *hosts_pool, struct pagepool_buf *hosts_buf, struct pagepool_buf **mine)
{
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    struct pagepool_arena *arena = arena_of(8 << 20);
    struct pagepool *pool = pool_over(arena);
    CHECK(pagepool_bind(pool) == 0);
    for (int round = 0; round < 3; round++) {
        struct pagepool_buf *buf = pagepool_alloc_page(pool);
        CHECK(buf != NULL && pagepool_alloc_page(hosts_pool) == NULL);
        CHECK(pagepool_buf_put(hosts_buf) < 0 && pagepool_buf_data(hosts_buf) == NULL);
        CHECK(pagepool_buf_put(buf) == 0 && pagepool_buf_put(buf) == -ESTALE);
    }
    CHECK(pagepool_read_stats(hosts_pool, &stats) < 0 && pagepool_unbind(hosts_pool) < 0);
    CHECK(pagepool_read_stats(pool, &stats) == 0 && stats.recycle_cached == 3 && stats.hold == 64);
    *mine = pagepool_alloc_page(pool);
    CHECK(*mine != NULL && pagepool_dump(NULL, 0) > 0);
    return 0; /* the pool stays, so that its host's library could reach it, if they mixed */
}
