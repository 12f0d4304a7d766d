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
    struct pagepool_shared *shared;
    struct pagepool_arena *arena;
    CHECK(pagepool_arena_create(&params, &arena) == 0);
    struct pagepool *pool = pool_over(arena);
    CHECK(pagepool_bind(pool) == 0);
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    FAILS(pagepool_arena_base(arena) == NULL, EOPNOTSUPP);
    FAILS(pagepool_buf_data(buf) == NULL, EOPNOTSUPP);
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

int main(void)
{
    CHECK(pagepool_last_errno() == 0);
    pools_and_buffers();
    packets();
    memory_of_a_device();
    puts("ok");
    return 0;
}
