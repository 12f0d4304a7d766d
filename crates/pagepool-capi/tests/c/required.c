/* Every function that scripts rely on, used as it is meant. */
#include <pthread.h>
#include <string.h>

#include "check.h"

static void *put_remote(void *bufs)
{
    CHECK(pagepool_buf_put_bulk(bufs, 64) == 0);
    return NULL;
}

static void pages_and_counters(struct pagepool *pool)
{
    struct pagepool_buf *bufs[64];
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    for (int i = 0; i < 1000; i++) {
        struct pagepool_buf *buf = pagepool_alloc_page(pool);
        CHECK(buf != NULL);
        CHECK(pagepool_buf_put(buf) == 0);
    }
    CHECK(pagepool_read_stats(pool, &stats) == 0);
    CHECK(stats.alloc_empty == 1 && stats.alloc_slow == 1 && stats.alloc_fast == 999 &&
        stats.recycle_cached == 1000);
    CHECK(stats.hold == 64 && stats.release == 0 && pagepool_inflight(pool) == 64);

    CHECK(pagepool_alloc_bulk(pool, bufs, 64) == 64);
    for (int i = 0; i < 64; i++) {
        CHECK(pagepool_buf_len(bufs[i]) == 4096 && pagepool_buf_offset(bufs[i]) == 0);
        memset(pagepool_buf_data(bufs[i]), i, 4096);
        for (int j = 0; j < i; j++)
            CHECK(pagepool_buf_page_index(bufs[i]) != pagepool_buf_page_index(bufs[j]));
    }
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, put_remote, bufs) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pagepool_read_stats(pool, &stats) == 0);
    CHECK(stats.recycle_ring == 64 && stats.recycle_cached == 1000);

    CHECK(pagepool_alloc_bulk(pool, bufs, 64) == 64);
    CHECK(pagepool_read_stats(pool, &stats) == 0 && stats.alloc_refill == 1);
    CHECK(pagepool_buf_put_ring(bufs[0]) == 0);
    CHECK(pagepool_buf_put_ring_bulk(bufs + 1, 31) == 0);
    CHECK(pagepool_buf_put_bulk(bufs + 32, 32) == 0);
    CHECK(pagepool_read_stats(pool, &stats) == 0);
    CHECK(stats.recycle_ring == 96 && stats.recycle_cached == 1032);
}

/* Pages of the cache, and after them fresh ones. */
static void addresses_in_bulk(struct pagepool *pool)
{
    struct pagepool_buf *bufs[300];
    void *data[300];
    CHECK(pagepool_alloc_bulk_data(pool, bufs, data, 300) == 300);
    for (int i = 0; i < 300; i++)
        CHECK(data[i] != NULL && data[i] == pagepool_buf_data(bufs[i]));
    CHECK(pagepool_buf_put_bulk(bufs, 300) == 0);
}

static void frags(struct pagepool *pool)
{
    struct pagepool_buf *a = pagepool_alloc_frag(pool, 1000), *b = pagepool_alloc_frag(pool, 1000);
    size_t size = 1500;
    CHECK(a && b && pagepool_buf_is_frag(a) == 1);
    CHECK(pagepool_buf_page_index(a) == pagepool_buf_page_index(b));
    CHECK(pagepool_buf_offset(a) == 0 && pagepool_buf_offset(b) == 1024 && pagepool_buf_len(b) == 1000);
    CHECK((char *)pagepool_buf_data(b) - (char *)pagepool_buf_data(a) == 1024);
    struct pagepool_buf *c = pagepool_alloc(pool, &size);
    CHECK(c && size == 2048 && pagepool_buf_len(c) == 2048);
    size = 3000;
    struct pagepool_buf *d = pagepool_alloc(pool, &size);
    CHECK(d && size == 4096 && pagepool_buf_is_frag(d) == 0);
    CHECK(pagepool_buf_put(a) == 0 && pagepool_buf_put(b) == 0 && pagepool_buf_put(c) == 0 &&
        pagepool_buf_put(d) == 0);
}

static void page_refs(struct pagepool *pool, struct pagepool_arena *arena)
{
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    struct pagepool_page_ref *page_ref = NULL;
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    int64_t before = pagepool_arena_pages_out(arena);
    CHECK(pagepool_buf_page_ref(buf, &page_ref) == 0);
    CHECK(pagepool_page_ref_page_index(page_ref) == pagepool_buf_page_index(buf));
    CHECK(pagepool_buf_put(buf) == 0);
    CHECK(pagepool_read_stats(pool, &stats) == 0);
    CHECK(stats.recycle_released_refcnt == 1 && stats.release == 1);
    CHECK(pagepool_arena_pages_out(arena) == before);
    CHECK(pagepool_page_ref_put(page_ref) == 0);
    CHECK(pagepool_arena_pages_out(arena) == before - 1);
}

/* A caller that was compiled with another version of the header has a shorter or a longer struct. Behind the
 * shorter one lies something else of the caller's. */
static void counters_of_other_versions(struct pagepool *pool)
{
    struct older {
        size_t size;
        uint64_t counters[12]; /* up to recycle_released_refcnt: the least that a caller must have */
    };
    struct {
        uint64_t before;
        struct older stats;
        uint64_t behind[64];
    } old;
    struct newer {
        struct pagepool_stats known;
        uint64_t later, behind;
    } stats;
    memset(&old, 0xff, sizeof(old));
    memset(&stats, 0xff, sizeof(stats));
    stats.known.size = offsetof(struct newer, behind);
    CHECK(pagepool_read_stats(pool, &stats.known) == 0 && stats.later == 0 && stats.behind == UINT64_MAX);
    old.stats.size = sizeof(struct older);
    CHECK(pagepool_read_stats(pool, (struct pagepool_stats *)&old.stats) == 0);
    CHECK(old.stats.size == sizeof(struct older) && old.stats.counters[0] == stats.known.alloc_fast);
    CHECK(old.stats.counters[11] == stats.known.recycle_released_refcnt);
    CHECK(old.before == UINT64_MAX);
    for (int i = 0; i < 64; i++)
        CHECK(old.behind[i] == UINT64_MAX);
}

/* The same for where the pages are, of which every caller has all fields so far. */
static void locations_of_other_versions(struct pagepool *pool)
{
    struct {
        struct pagepool_buffer_locations known;
        uint64_t later, behind;
    } at;
    memset(&at, 0xff, sizeof(at));
    at.known.size = sizeof(at.known);
    CHECK(pagepool_read_buffer_locations(pool, &at.known) == 0 && at.later == UINT64_MAX);
    at.known.size = sizeof(at.known) + sizeof(at.later);
    CHECK(pagepool_read_buffer_locations(pool, &at.known) == 0 && at.later == 0 && at.behind == UINT64_MAX);
    CHECK(at.known.total == pagepool_inflight(pool));
}

/* A struct whose size nobody set, or set wrongly, is refused and stays as it is. */
static void sizes_that_no_struct_has(struct pagepool *pool)
{
    const size_t each = sizeof(struct pagepool_stats);
    const size_t wrong[] = {0, 8, 4, each - 1, 4 * each + 8, 65536, SIZE_MAX};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
        struct pagepool_deferred_stats deferred = PAGEPOOL_DEFERRED_STATS_INIT;
        struct pagepool_buffer_locations at = PAGEPOOL_BUFFER_LOCATIONS_INIT;
        stats.size = deferred.size = at.size = wrong[i];
        CHECK(pagepool_read_stats(pool, &stats) == -EINVAL && stats.alloc_fast == 0);
        CHECK(strstr(pagepool_last_error(), "but must be 104 to "));
        CHECK(pagepool_read_deferred_stats(pool, &deferred) == -EINVAL);
        CHECK(strstr(pagepool_last_error(), "but must be 32 to "));
        CHECK(pagepool_read_buffer_locations(pool, &at) == -EINVAL && at.total == 0);
        CHECK(strstr(pagepool_last_error(), "but must be 56 to "));
    }
    CHECK(pagepool_read_stats(pool, NULL) == -EINVAL && pagepool_read_deferred_stats(pool, NULL) == -EINVAL &&
        pagepool_read_buffer_locations(pool, NULL) == -EINVAL);
}

/* The initialisers are constants. */
static const struct pagepool_params constant_params = PAGEPOOL_PARAMS_INIT;
static const struct pagepool_arena_params constant_arena_params = PAGEPOOL_ARENA_PARAMS_INIT;

static void initialisers(void)
{
    CHECK(constant_params.size == sizeof(struct pagepool_params) && constant_params.colour == 0);
    CHECK(constant_params.nid == 0 && constant_params.skip_ahead == 0);
    CHECK(constant_arena_params.node == 0 && constant_arena_params.inherit_on_fork == 0);
}

int main(void)
{
    struct pagepool_arena *arena = arena_of(16 << 20);
    struct pagepool *pool = pool_over(arena);
    CHECK(pagepool_bind(pool) == 0);
    pages_and_counters(pool);
    addresses_in_bulk(pool);
    frags(pool);
    page_refs(pool, arena);
    counters_of_other_versions(pool);
    locations_of_other_versions(pool);
    sizes_that_no_struct_has(pool);
    initialisers();
    CHECK(pagepool_update_nid(pool, 0) == 0 && pagepool_update_nid(pool, -1) == 0);
    struct pagepool_buf *late = pagepool_alloc_page(pool);
    CHECK(pagepool_buf_dma_addr(late) == UINT64_MAX);
    CHECK(pagepool_unbind(pool) == 0 && pagepool_bind(pool) == 0);
    CHECK(pagepool_destroy(pool) == 0);
    memset(pagepool_buf_data(late), 1, 4096);
    CHECK(pagepool_buf_put(late) == 0);
    CHECK(pagepool_arena_pages_out(arena) == 0);
    CHECK(pagepool_arena_put(arena) == 0);
    puts("ok");
    return 0;
}
