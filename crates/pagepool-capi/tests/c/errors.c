/* What went wrong, without reading English: pagepool_last_errno after functions that return NULL or 0. */
#include <pthread.h>
#include <string.h>

#include <pagepool_skb.h>

#include "check.h"

/* The call fails so, and had not failed before. */
#define FAILS(call, errno_of_it)                                                                     \
    do {                                                                                             \
        pagepool_clear_error();                                                                      \
        CHECK(pagepool_last_errno() == 0 && *pagepool_last_error() == 0);                            \
        CHECK(call);                                                                                 \
        CHECK(pagepool_last_errno() == (errno_of_it) && *pagepool_last_error() != 0);                \
    } while (0)

static void *not_the_owner(void *pool)
{
    struct pagepool_buf *buf;
    size_t size = 100;
    CHECK(pagepool_last_errno() == 0); /* each thread has its own */
    FAILS(pagepool_alloc_page(pool) == NULL, EPERM);
    FAILS(pagepool_alloc_frag(pool, 100) == NULL, EPERM);
    FAILS(pagepool_alloc(pool, &size) == NULL, EPERM);
    FAILS(pagepool_alloc_bulk(pool, &buf, 1) == 0, EPERM);
    return NULL;
}

static void pools_and_buffers(void)
{
    struct pagepool_arena *arena = arena_of(1 << 20);
    struct pagepool *pool = pool_over(arena);
    struct pagepool_buf *bufs[300];
    uint64_t addr;
    size_t size = 0;
    pthread_t thread;
    CHECK(pagepool_bind(pool) == 0);
    FAILS(pagepool_alloc_page(NULL) == NULL, EINVAL);
    FAILS(pagepool_alloc_frag(pool, 0) == NULL && pagepool_alloc_frag(pool, 5000) == NULL, EINVAL);
    FAILS(pagepool_alloc(pool, &size) == NULL && pagepool_alloc(pool, NULL) == NULL, EINVAL);
    FAILS(pagepool_alloc_bulk(pool, bufs, 300) == 256 && pagepool_alloc_page(pool) == NULL, ENOMEM);
    FAILS(pagepool_alloc_bulk(pool, bufs + 256, 1) == 0, ENOMEM);
    CHECK(pagepool_buf_put(bufs[0]) == 0 && pagepool_last_errno() == ENOMEM); /* as errno is kept */
    FAILS(pagepool_buf_data(bufs[0]) == NULL, ESTALE);
    FAILS(pagepool_buf_packet(bufs[0]) == NULL, ESTALE);
    FAILS(pagepool_buf_len(bufs[0]) == 0 && pagepool_buf_packet_capacity(bufs[0]) == 0, ESTALE);
    FAILS(pagepool_buf_offset(NULL) == SIZE_MAX, EINVAL);
    FAILS(pagepool_buf_page_index(bufs[0]) == UINT32_MAX, ESTALE);
    FAILS(pagepool_buf_dma_addr(bufs[1]) == UINT64_MAX, EOPNOTSUPP);
    FAILS(pagepool_from_raw(pool, 4096) == NULL, EINVAL);
    FAILS(pagepool_alloc_addr_bulk(pool, &addr, 1) == 0, EOPNOTSUPP);
    FAILS(pagepool_buf_put(bufs[0]) == -ESTALE, ESTALE);
    CHECK(pthread_create(&thread, NULL, not_the_owner, pool) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pagepool_last_errno() == ESTALE);
    CHECK(pagepool_buf_put_bulk(bufs + 1, 255) == 0 && pagepool_destroy(pool) == 0);
    FAILS(pagepool_alloc_page(pool) == NULL, ESTALE);
    CHECK(pagepool_arena_put(arena) == 0);
    FAILS(pagepool_arena_base(arena) == NULL, ESTALE);
}

/* Sizes of packets may be 0 without an error. */
static void packets(void)
{
    struct pagepool_skb_cache *cache;
    struct pagepool_skb *skb;
    CHECK(pagepool_skb_cache_create(4, &cache) == 0 && pagepool_skb_alloc(cache, 64, 64, &skb) == 0);
    pagepool_clear_error();
    CHECK(pagepool_skb_len(skb) == 0 && pagepool_skb_nr_frags(skb) == 0 && pagepool_last_errno() == 0);
    CHECK(pagepool_skb_put(skb) == 0);
    FAILS(pagepool_skb_len(skb) == 0, ESTALE);
    FAILS(pagepool_skb_data(skb) == NULL, ESTALE);
    CHECK(pagepool_skb_cache_put(cache) == 0);
}

static void memory_of_a_device(void)
{
    struct pagepool_arena_params params = {
        .size = sizeof(params), .max_bytes = 1 << 20, .backing = PAGEPOOL_BACKING_DEVICE};
    struct pagepool_page_ref *page_ref;
    struct pagepool_buf *none = NULL;
    void *data;
    struct pagepool_shared *shared;
    struct pagepool_arena *arena;
    CHECK(pagepool_arena_create(&params, &arena) == 0);
    struct pagepool *pool = pool_over(arena);
    CHECK(pagepool_bind(pool) == 0);
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    FAILS(pagepool_arena_base(arena) == NULL, EOPNOTSUPP);
    FAILS(pagepool_buf_data(buf) == NULL, EOPNOTSUPP);
    FAILS(pagepool_alloc_bulk_data(pool, &none, &data, 1) == 0 && none == NULL, EOPNOTSUPP);
    FAILS(pagepool_buf_packet(buf) == NULL, EOPNOTSUPP);
    CHECK(pagepool_buf_page_ref(buf, &page_ref) == 0);
    FAILS(pagepool_page_ref_data(page_ref) == NULL, EOPNOTSUPP);
    CHECK(pagepool_page_ref_put(page_ref) == 0);
    FAILS(pagepool_page_ref_data(page_ref) == NULL, ESTALE);
    CHECK(pagepool_buf_share(buf, &shared) == 0);
    FAILS(pagepool_shared_data(shared) == NULL, EOPNOTSUPP);
    CHECK(pagepool_shared_put(shared) == 0);
    FAILS(pagepool_shared_data(shared) == NULL && pagepool_shared_len(shared) == 0, ESTALE);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_arena_put(arena) == 0);
}

/* Errors name the fields and functions of C. */
static void remedies(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT, good;
    struct pagepool_arena_params of_arena = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_skb_cache *cache;
    struct pagepool *pool;
    char page[4096] __attribute__((aligned(4096)));
    good = params;
    good.arena = arena_of(1 << 20);
#define SAYS(call, text)                                    \
    do {                                                    \
        CHECK((call) < 0);                                  \
        CHECK(strncmp(pagepool_last_error(), text, strlen(text)) == 0); \
    } while (0)
    params = good, params.on_busy = PAGEPOOL_ON_BUSY_RELEASE;
    SAYS(pagepool_create(&params, &pool), "on_busy is 2, but must be PAGEPOOL_ON_BUSY_KEEP with");
    params = good, params.on_busy = PAGEPOOL_ON_BUSY_SKIP, params.defer_capacity = 8;
    params.skip_ahead = UINT32_MAX;
    SAYS(pagepool_create(&params, &pool), "skip_ahead is 4294967295, but must be 1 to ");
    params = good, params.sync_for_device = 1;
    SAYS(pagepool_create(&params, &pool), "sync_for_device is 1, but must be 0 in a pool without domains");
    params = good, params.wakeup = 2;
    SAYS(pagepool_create(&params, &pool), "wakeup is 2, but must be 0 or 1");
    params = good, params.tagging = 7;
    SAYS(pagepool_create(&params, &pool), "tagging is 7, but must be 0 or 1");
    params = good, params.node_blind = 99;
    SAYS(pagepool_create(&params, &pool), "node_blind is 99, but must be 0 or 1");
    of_arena.max_bytes = 1 << 20, of_arena.huge_or_fail = 9;
    SAYS(pagepool_arena_create(&of_arena, &params.arena), "huge_or_fail is 9, but must be 0 or 1");
    of_arena.huge_or_fail = 0, of_arena.prefault = 3;
    SAYS(pagepool_arena_create(&of_arena, &params.arena), "prefault is 3, but must be 0 or 1");
    of_arena.prefault = 0;
    params = good, params.order = 10;
    SAYS(pagepool_create(&params, &pool), "order is 10, but must be an order whose pages fit the arena's");
    SAYS(pagepool_skb_cache_create(0, &cache), "packets is 0, but must be 1 to ");
    of_arena.backing = PAGEPOOL_BACKING_CALLER, of_arena.memory = &page, of_arena.max_bytes = 5000;
    SAYS(pagepool_arena_create(&of_arena, &params.arena), "max_bytes is 5000, but must be");
    of_arena.memory = NULL;
    SAYS(pagepool_arena_create(&of_arena, &params.arena), "memory is ");
    SAYS(pagepool_open(5000, 0, &pool), "bytes is 5000, but must be");
    of_arena.backing = PAGEPOOL_BACKING_HUGE_1G, of_arena.max_bytes = 1 << 30, of_arena.huge_or_fail = 1;
    of_arena.commit_all = 1;
    if (pagepool_arena_create(&of_arena, &params.arena) == 0)
        CHECK(pagepool_arena_put(params.arena) == 0); /* a machine with such pages */
    else
        CHECK(strstr(pagepool_last_error(), "or set huge_or_fail to 0") != NULL);
    CHECK(pagepool_arena_put(good.arena) == 0);
}

int main(void)
{
    CHECK(pagepool_last_errno() == 0);
    remedies();
    pagepool_clear_error();
    pools_and_buffers();
    packets();
    memory_of_a_device();
    puts("ok");
    return 0;
}
