/* What the header offers beside the functions that scripts rely on. */
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include <pagepool_skb.h>

#include "check.h"

struct checked {
    int maps, unmaps, syncs, released;
    struct pagepool_buf *give_back; /* returned from inside map */
    struct pagepool *pool;
};

static int map(void *arg, const struct pagepool_region *region, uint64_t *addr)
{
    struct checked *checked = arg;
    checked->maps++;
    if (checked->pool != NULL) {
        CHECK(pagepool_buf_put(checked->give_back) == 0);
        CHECK(pagepool_destroy(checked->pool) == -EBUSY && pagepool_unbind(checked->pool) == -EBUSY);
        checked->pool = NULL;
    }
    CHECK(region->size == sizeof(*region) && region->cpu_addr != NULL && region->len > 0);
    *addr = 0x100000000 + region->offset;
    return 0;
}

static int refuse(void *arg, const struct pagepool_region *region, uint64_t *addr)
{
    (void)arg, (void)region, (void)addr;
    return -EPERM;
}

static void unmap(void *arg, const struct pagepool_region *region, uint64_t addr)
{
    CHECK(addr == 0x100000000 + region->offset);
    ((struct checked *)arg)->unmaps++;
}

static void sync(void *arg, uint64_t addr, size_t len)
{
    CHECK(addr >= 0x100000000 && len > 0);
    ((struct checked *)arg)->syncs++;
}

static void release(void *arg)
{
    ((struct checked *)arg)->released++;
}

static void domains(void)
{
    struct checked checked = {0, 0, 0, 0, NULL, NULL};
    struct pagepool_domain_ops ops = {sizeof(ops), "iommu0", &checked, map, unmap, sync, sync, release, 0, 0};
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_domain *both[2], *refusing;
    struct pagepool_arena *arena = arena_of(16 << 20);
    struct pagepool *pool;
    struct pagepool_buf *bufs[1500];
    struct pagepool_raw raw;
    CHECK(pagepool_domain_create(&ops, &both[0]) == 0 && pagepool_domain_identity(NULL, &both[1]) == 0);
    params.arena = arena;
    params.domains = both;
    params.n_domains = 2;
    params.sync_for_device = 1;
    CHECK(pagepool_create(&params, &pool) == 0 && checked.maps == 1 && pagepool_bind(pool) == 0);
    bufs[0] = pagepool_alloc_page(pool);
    CHECK(pagepool_buf_dma_addr(bufs[0]) == 0x100000000 + 4096ull * pagepool_buf_page_index(bufs[0]));
    CHECK(pagepool_buf_dma_addr_in(bufs[0], both[1]) == (uint64_t)(uintptr_t)pagepool_buf_data(bufs[0]));
    struct pagepool_shared *shared;
    uint64_t addr = pagepool_buf_dma_addr(bufs[0]);
    CHECK(pagepool_buf_share(bufs[0], &shared) == 0 && pagepool_shared_dma_addr(shared) == addr);
    CHECK(pagepool_shared_put(shared) == 0 && pagepool_shared_dma_addr(shared) == UINT64_MAX);
    bufs[0] = pagepool_alloc_page(pool);
    int before = checked.syncs;
    CHECK(pagepool_buf_sync_for_cpu(bufs[0], 0, 64) == 0 && pagepool_buf_put(bufs[0]) == 0 &&
        checked.syncs == before + 2);
    /* Growth calls map inside an allocation, and that returns a buffer and tries to destroy the pool. */
    checked.give_back = pagepool_alloc_page(pool);
    checked.pool = pool;
    CHECK(pagepool_alloc_bulk(pool, bufs, 1500) == 1500 && checked.maps == 2 && checked.pool == NULL);
    CHECK(pagepool_buf_into_raw(bufs[7], &raw) == 0);
    CHECK((bufs[7] = pagepool_from_raw(pool, raw.addr + 100)) != NULL &&
        pagepool_buf_dma_addr(bufs[7]) == raw.addr);
    CHECK(pagepool_arena_device_gone(arena, both[0]) == 0 && checked.unmaps == 2);
    CHECK(pagepool_arena_device_gone(arena, both[0]) == -ENODEV);
    CHECK(pagepool_buf_dma_addr(bufs[7]) == UINT64_MAX && pagepool_buf_put_bulk(bufs, 1500) == 0);
    CHECK(pagepool_domain_put(both[0]) == 0 && pagepool_domain_put(both[1]) == 0 && checked.released == 0);
    CHECK(pagepool_destroy(pool) == 0 && checked.released == 1 && checked.unmaps == 2);

    ops.map = refuse;
    CHECK(pagepool_domain_create(&ops, &refusing) == 0);
    params.domains = &refusing;
    params.n_domains = 1;
    CHECK(pagepool_create(&params, &pool) == -EIO && strstr(pagepool_last_error(), "iommu0 did not map"));
    CHECK(pagepool_domain_put(refusing) == 0 && checked.released == 2);
    ops.unmap = NULL;
    CHECK(pagepool_domain_create(&ops, &refusing) == -EINVAL);
    CHECK(pagepool_arena_put(arena) == 0);
}

static void whole_pages_as_addresses(struct pagepool *pool)
{
    struct pagepool_arena *arena = arena_of(1 << 20);
    struct pagepool *plain = pool_over(arena);
    struct pagepool_buffer_locations places_of_plain = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    uint64_t addrs[300];
    size_t n = pagepool_alloc_addr_bulk(pool, addrs, 300);
    CHECK(n >= 254 && n < 300 && strstr(pagepool_last_error(), "no page is left"));
    CHECK(pagepool_put_addr(pool, addrs[7] + 100) == 0 && pagepool_put_addr(pool, addrs[7]) == -ESTALE);
    CHECK(pagepool_alloc_addr_bulk(pool, &addrs[7], 1) == 1 && pagepool_put_addr_bulk(pool, addrs, n) == 0);
    CHECK(pagepool_put_addr_bulk(pool, addrs, n) == -ESTALE && pagepool_alloc_addr_bulk(pool, NULL, 1) == 0);
    CHECK(pagepool_alloc_addr_bulk(pool, addrs, n) == n && pagepool_put_addr(pool, addrs[0]) == 0);
    /* the first is refused, and all others are home */
    CHECK(pagepool_put_addr_bulk(pool, addrs, n) == -ESTALE);
    CHECK(pagepool_alloc_addr_bulk(pool, addrs, n) == n && pagepool_put_addr_bulk(pool, addrs, n) == 0);
    CHECK(pagepool_alloc_addr_bulk(plain, addrs, 1) == 0 && strstr(pagepool_last_error(), "not bound"));
    CHECK(pagepool_bind(plain) == 0 && pagepool_alloc_addr_bulk(plain, addrs, 1) == 0);
    CHECK(strstr(pagepool_last_error(), "no domain") &&
        pagepool_read_buffer_locations(plain, &places_of_plain) == 0);
    CHECK(places_of_plain.out == 0 && pagepool_destroy(plain) == 0 && pagepool_arena_put(arena) == 0);
}

static void frags_as_addresses(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_arena *arena = arena_of(1 << 20);
    struct pagepool_domain *umem;
    struct pagepool *pool;
    struct pagepool_raw raw[3];
    CHECK(pagepool_domain_offset("umem0", &umem) == 0);
    params.arena = arena;
    params.domains = &umem;
    params.n_domains = 1;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0 && pagepool_domain_put(umem) == 0);
    for (int round = 0; round < 10000; round++) {
        uint64_t addrs[2];
        for (int i = 0; i < 3; i++)
            CHECK(pagepool_buf_into_raw(pagepool_alloc_frag(pool, 1000), &raw[i]) == 0);
        struct pagepool_buf *back = pagepool_from_raw(pool, raw[1].addr + 999);
        CHECK(pagepool_buf_is_frag(back) == 1 && pagepool_buf_len(back) == 1024 &&
            pagepool_buf_put(back) == 0);
        addrs[0] = raw[0].addr;
        addrs[1] = raw[2].addr;
        CHECK(pagepool_put_addr_bulk(pool, addrs, 2) == 0);
    }
    CHECK(pagepool_inflight(pool) <= 64 && pagepool_frag_waste(pool) >= 0);
    whole_pages_as_addresses(pool);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_arena_pages_out(arena) == 0 &&
        pagepool_arena_put(arena) == 0);
}

static uint32_t odd_pages_elsewhere(uint32_t page, void *arg)
{
    ++*(int *)arg;
    return page % 2;
}

static void nodes(void)
{
    struct pagepool_arena_params params = {.size = sizeof(params), .max_bytes = 4 << 20};
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    struct pagepool_arena *arena;
    struct pagepool_buf *bufs[32];
    int asked = 0;
    params.nodes = 2;
    params.node_of_page = odd_pages_elsewhere;
    params.arg = &asked;
    CHECK(pagepool_arena_create(&params, &arena) == 0 && asked == 1024);
    struct pagepool *pool = pool_over(arena);
    CHECK(pagepool_bind(pool) == 0 && pagepool_alloc_bulk(pool, bufs, 32) == 32);
    for (int i = 0; i < 32; i++)
        CHECK(pagepool_buf_page_index(bufs[i]) % 2 == 0);
    CHECK(pagepool_buf_put_ring_bulk(bufs, 32) == 0);
    CHECK(pagepool_update_nid(pool, 2) == -EINVAL && pagepool_update_nid(pool, 1) == 0 &&
        pagepool_nid_changed(pool, 1) == 0);
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    CHECK(pagepool_buf_page_index(buf) % 2 == 1);
    CHECK(pagepool_read_stats(pool, &stats) == 0 && stats.alloc_waive == 1);
    CHECK(pagepool_update_nid(pool, -1) == 0 && pagepool_arena_set_current_node(arena, 1) == 0);
    CHECK(pagepool_buf_put(buf) == 0 && pagepool_destroy(pool) == 0 && pagepool_arena_put(arena) == 0);
}

static void the_callers_memory(void)
{
    struct pagepool_arena_params params = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_arena *arena;
    char text[200];
    params.backing = PAGEPOOL_BACKING_CALLER;
    params.max_bytes = 1 << 20;
    params.memory = aligned_alloc(4096, 1 << 20);
    CHECK(pagepool_arena_create(&params, &arena) == 0 && pagepool_arena_base(arena) == params.memory);
    struct pagepool *pool = pool_over(arena);
    struct pagepool_buf *bufs[300];
    CHECK(pagepool_bind(pool) == 0 && pagepool_alloc_bulk(pool, bufs, 300) == 256);
    CHECK(strstr(pagepool_last_error(), "no page is left"));
    memset(pagepool_buf_data(bufs[255]), 1, 4096);
    CHECK(pagepool_buf_put_bulk(bufs, 256) == 0 && pagepool_destroy(pool) == 0);
    CHECK(pagepool_arena_describe(arena, text, sizeof(text)) > 0 && strstr(text, "1 MiB"));
    CHECK(pagepool_arena_put(arena) == 0);
    free(params.memory);

    params.backing = PAGEPOOL_BACKING_DEVICE;
    params.memory = NULL;
    CHECK(pagepool_arena_create(&params, &arena) == 0 && pagepool_arena_base(arena) == NULL);
    pool = pool_over(arena);
    CHECK(pagepool_bind(pool) == 0);
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    CHECK(buf != NULL && pagepool_buf_data(buf) == NULL && pagepool_buf_len(buf) == 4096 &&
        pagepool_buf_put(buf) == 0);
    CHECK(pagepool_arena_memfd(arena) == -EOPNOTSUPP && pagepool_arena_trim(arena) == -EOPNOTSUPP);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_arena_put(arena) == 0);

    params.backing = PAGEPOOL_BACKING_MEMFD;
    CHECK(pagepool_arena_create(&params, &arena) == 0 && pagepool_arena_memfd(arena) > 2);
    CHECK(pagepool_arena_put(arena) == 0);
}

static void *ask_to_shrink(void *pool)
{
    CHECK(pagepool_ask_to_shrink(pool, 100) == 0 && pagepool_ask_to_shrink(pool, 10) == 0 &&
        pagepool_ask_to_shrink(pool, SIZE_MAX) == 0);
    return NULL;
}

static void idle_pages_go_back(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_arena *arena = params.arena = arena_of(16 << 20);
    struct pagepool *pool;
    struct pagepool_buf *bufs[3000];
    pthread_t thread;
    params.wakeup = 1;
    params.ring_size = 4096;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    CHECK(pagepool_alloc_bulk(pool, bufs, 3000) == 3000 && pagepool_buf_put_bulk(bufs, 3000) == 0);
    int64_t all = pagepool_arena_pages_out(arena);
    CHECK(all >= 3000 && pagepool_arena_trim(arena) < 8 << 20);
    CHECK(pagepool_shrink(pool, 1000) == all - 1000 && pagepool_inflight(pool) == 1000);
    CHECK(pthread_create(&thread, NULL, ask_to_shrink, pool) == 0 && pthread_join(thread, NULL) == 0);
    struct pollfd woken = {pagepool_wake_fd(pool), POLLIN, 0};
    CHECK(poll(&woken, 1, 60000) == 1 && pagepool_inflight(pool) == 1000);
    CHECK(pagepool_acknowledge_wake(pool) == 0 && pagepool_inflight(pool) == 10);
    CHECK(pagepool_ask_to_shrink(pool, 0) == 0 && pagepool_poll_deferred(pool) == 0 &&
        pagepool_arena_pages_out(arena) == 0);
    CHECK(pagepool_arena_trim(arena) > 0 && pagepool_shrink(pool, 0) == 0);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_arena_put(arena) == 0);
}

static void *put_later(void *buf)
{
    CHECK(poll(NULL, 0, 20) == 0 && pagepool_buf_put(buf) == 0);
    return NULL;
}

static void the_end_is_watched(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_arena *arena = params.arena = arena_of(16 << 20);
    struct pagepool_shutdown *shutdown;
    struct pagepool *pool;
    pthread_t thread;
    char text[4000];
    params.tagging = 1;
    params.name = "rx7";
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    int tag = pagepool_tag(pool, "the slow reader");
    CHECK(tag >= 0 && pagepool_tag(pool, "the slow reader") == tag &&
        pagepool_buf_set_tag(pool, buf, tag) == 0);
    CHECK(pagepool_buf_set_tag(pool, buf, 77) == -EINVAL);
    CHECK(pagepool_dump(text, sizeof(text)) > 0 && strstr(text, "rx7 id ") && strstr(text, " bound ") &&
        strstr(text, "out 1)"));
    CHECK(pagepool_dump(NULL, 0) == (int64_t)strlen(text));
    CHECK(pagepool_destroy_watched(pool, &shutdown) == 0);
    CHECK(pagepool_dump(text, sizeof(text)) > 0 && strstr(text, " destroyed "));
    CHECK(pagepool_shutdown_wait(shutdown, 1000) == -ETIMEDOUT);
    CHECK(pagepool_shutdown_report(shutdown, text, sizeof(text)) == 1);
    CHECK(strstr(text, "stalled pool shutdown: 1 buffer held for ") &&
        strstr(text, "held by the slow reader"));
    CHECK(pthread_create(&thread, NULL, put_later, buf) == 0);
    CHECK(pagepool_shutdown_wait(shutdown, UINT64_MAX) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pagepool_shutdown_report(shutdown, NULL, 0) == 0 && pagepool_shutdown_put(shutdown) == 0);
    CHECK(pagepool_dump(text, sizeof(text)) == 0 && pagepool_arena_put(arena) == 0);
}

/* Who holds what: by the owner's tag, and by that of another thread. */
static void *takes_over(void *buf)
{
    struct pagepool *pool = ((struct pagepool **)buf)[1];
    CHECK(pagepool_buf_set_tag(pool, ((struct pagepool_buf **)buf)[0], 1) == 0);
    return NULL;
}

/* The pages under a tag, in the report of a pool that ends with them. */
static int pages_under(struct pagepool *pool, const char *tag)
{
    char text[8000], line[100];
    struct pagepool_shutdown *shutdown;
    CHECK(pagepool_destroy_watched(pool, &shutdown) == 0);
    CHECK(pagepool_shutdown_report(shutdown, text, sizeof(text)) > 0 && pagepool_shutdown_put(shutdown) == 0);
    for (int pages = 9; pages > 0; pages--) {
        snprintf(line, sizeof(line), "%d page%s held by %s", pages, pages == 1 ? "" : "s", tag);
        if (strstr(text, line))
            return pages;
    }
    return 0;
}

static void packets_and_readers_are_named(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_arena *arena = params.arena = arena_of(16 << 20);
    struct pagepool_skb_cache *cache;
    struct pagepool_shared *shared;
    struct pagepool_skb *skb;
    struct pagepool *pool;
    params.holders = PAGEPOOL_HOLDERS_AGES;
    CHECK(pagepool_skb_cache_create(8, &cache) == 0);
    for (int as_skb = 0; as_skb < 2; as_skb++) {
        CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
        int tag = pagepool_tag(pool, "stack");
        if (as_skb) {
            CHECK(pagepool_skb_from_buf(cache, pagepool_alloc_page(pool), 0, 64, &skb) == 0);
            CHECK(pagepool_skb_add_buf(skb, pagepool_alloc_page(pool), 0, 64) == 0);
            CHECK(pagepool_skb_set_tag(pool, skb, 9) == -EINVAL && pagepool_skb_set_tag(pool, NULL, tag) < 0);
            CHECK(pagepool_skb_set_tag(pool, skb, tag) == 0 && pages_under(pool, "stack") == 2);
            CHECK(pagepool_skb_put(skb) == 0);
        } else {
            CHECK(pagepool_buf_share(pagepool_alloc_page(pool), &shared) == 0);
            CHECK(pagepool_shared_set_tag(pool, shared, 9) == -EINVAL);
            CHECK(pagepool_shared_set_tag(pool, NULL, tag) == -EINVAL);
            CHECK(pagepool_shared_set_tag(pool, shared, tag) == 0 && pages_under(pool, "stack") == 1);
            CHECK(pagepool_shared_put(shared) == 0);
        }
    }
    CHECK(pagepool_skb_cache_put(cache) == 0 && pagepool_arena_put(arena) == 0);
}

static void holders_are_named(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_arena *arena = params.arena = arena_of(16 << 20);
    struct pagepool_shutdown *shutdown;
    struct pagepool_buf *all[64];
    struct pagepool *pool;
    char text[8000];
    params.holders = PAGEPOOL_HOLDERS_STACKS + 1;
    CHECK(pagepool_create(&params, &pool) == -EINVAL && strstr(pagepool_last_error(), "holders is 4"));
    params.holders = PAGEPOOL_HOLDERS_SITES;
    params.one_stack_in = 10;
    CHECK(pagepool_create(&params, &pool) == -EINVAL && strstr(pagepool_last_error(), "one_stack_in is 10"));
    params.holders = PAGEPOOL_HOLDERS_STACKS;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    CHECK(pagepool_tag(pool, "rx") == 0 && pagepool_tag(pool, "stack") == 1);
    CHECK(pagepool_set_tag(pool, 2) == -EINVAL && pagepool_set_tag(pool, 0) == 0);
    for (int round = 0; round < 3; round++) {
        for (int at = 0; at < 64; at++)
            CHECK((all[at] = pagepool_alloc_page(pool)) && pagepool_buf_data(all[at]));
        for (int at = 2; at < 64; at++)
            CHECK(pagepool_buf_put(all[at]) == 0);
        if (round < 2)
            CHECK(pagepool_buf_put(all[0]) == 0 && pagepool_buf_put(all[1]) == 0);
    }
    void *given[2] = {all[1], pool};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, takes_over, given) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pagepool_set_tag(pool, -1) == 0 && pagepool_destroy_watched(pool, &shutdown) == 0);
    CHECK(pagepool_set_tag(pool, 0) == -ESTALE);
    CHECK(pagepool_shutdown_report(shutdown, text, sizeof(text)) == 2);
    CHECK(strstr(text, "1 page held by rx, thread ") && strstr(text, "1 page held by stack, thread "));
    CHECK(strstr(text, ", allocated at ") && strstr(text, " held by rx for "));
    CHECK(pagepool_buf_put(all[0]) == 0 && pagepool_buf_put(all[1]) == 0);
    CHECK(pagepool_shutdown_wait(shutdown, UINT64_MAX) == 0 && pagepool_shutdown_put(shutdown) == 0);
    CHECK(pagepool_arena_put(arena) == 0);
}

/* Addresses that are out when their pool is destroyed come home through the handle that watches its end. */
static void addresses_come_home_late(void)
{
    struct checked checked = {0, 0, 0, 0, NULL, NULL};
    struct pagepool_domain_ops ops = {sizeof(ops), "iommu0", &checked, map, unmap, sync, sync, release, 0, 0};
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_arena *arena = params.arena = arena_of(16 << 20);
    struct pagepool_shutdown *shutdown, *none;
    struct pagepool_domain *domain;
    struct pagepool_raw page, frag, other, stranger;
    struct pagepool *pool, *second;
    CHECK(pagepool_domain_create(&ops, &domain) == 0);
    params.domains = &domain;
    params.n_domains = 1;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    CHECK(pagepool_create(&params, &second) == 0 && pagepool_bind(second) == 0 &&
        pagepool_domain_put(domain) == 0);
    CHECK(pagepool_buf_into_raw(pagepool_alloc_page(second), &stranger) == 0);
    CHECK(pagepool_buf_into_raw(pagepool_alloc_page(pool), &page) == 0);
    CHECK(pagepool_buf_into_raw(pagepool_alloc_frag(pool, 200), &frag) == 0);
    CHECK(pagepool_buf_into_raw(pagepool_alloc_frag(pool, 200), &other) == 0);
    CHECK(pagepool_destroy_watched(pool, &shutdown) == 0 &&
        pagepool_shutdown_wait(shutdown, 0) == -ETIMEDOUT);
    CHECK(pagepool_put_addr(pool, page.addr) == -ESTALE && pagepool_from_raw(pool, page.addr) == NULL);
    CHECK(pagepool_shutdown_put_addr(NULL, page.addr) == -EINVAL);
    CHECK(pagepool_shutdown_put_addr((struct pagepool_shutdown *)pool, page.addr) == -EINVAL);
    CHECK(pagepool_shutdown_put_addr(shutdown, 0) == -EINVAL &&
        pagepool_shutdown_put_addr(shutdown, UINT64_MAX) == -EINVAL);
    CHECK(pagepool_shutdown_put_addr(shutdown, stranger.addr) == -EINVAL); /* another pool's */
    CHECK(pagepool_shutdown_put_addr(shutdown, page.addr + 4095) == 0);    /* anywhere in the buffer */
    CHECK(pagepool_shutdown_put_addr(shutdown, page.addr) == -EINVAL);     /* its page has left the pool */
    CHECK(pagepool_shutdown_put_addr(shutdown, frag.addr) == 0);
    CHECK(pagepool_shutdown_put_addr(shutdown, frag.addr) == -ESTALE); /* another fragment keeps the page */
    CHECK(pagepool_shutdown_report(shutdown, NULL, 0) == 1);
    CHECK(pagepool_shutdown_put_addr(shutdown, other.addr) == 0 && pagepool_shutdown_wait(shutdown, 0) == 0);
    CHECK(pagepool_shutdown_put_addr(shutdown, other.addr) == -EINVAL); /* the pool is freed */
    CHECK(pagepool_put_addr(second, stranger.addr) == 0 && pagepool_destroy_watched(second, &none) == 0);
    CHECK(pagepool_shutdown_put_addr(none, stranger.addr) == -EINVAL && pagepool_shutdown_put(none) == 0);
    CHECK(checked.released == 0 && pagepool_shutdown_put(shutdown) == 0 && checked.released == 1 &&
        checked.unmaps == 1);
    CHECK(pagepool_shutdown_put_addr(shutdown, page.addr) == -ESTALE &&
        strstr(pagepool_last_error(), "it was released"));
    CHECK(pagepool_arena_pages_out(arena) == 0 && pagepool_arena_put(arena) == 0);
}

static void a_dry_owner_is_woken(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_arena *arena = params.arena = arena_of(64 << 10);
    struct pagepool_buf *bufs[16];
    struct pagepool *pool;
    pthread_t thread;
    params.wakeup = 1;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    CHECK(pagepool_alloc_bulk(pool, bufs, 16) == 16 && pagepool_alloc_page(pool) == NULL);
    CHECK(pagepool_low_water_mark(pool) == 0);
    struct pollfd fd = {pagepool_wake_fd(pool), POLLIN, 0};
    CHECK(poll(&fd, 1, 0) == 0 && pthread_create(&thread, NULL, put_later, bufs[0]) == 0);
    CHECK(poll(&fd, 1, 60000) == 1 && pagepool_acknowledge_wake(pool) == 0 && poll(&fd, 1, 0) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && (bufs[0] = pagepool_alloc_page(pool)) != NULL);
    CHECK(pagepool_buf_put_bulk(bufs, 16) == 0 && pagepool_destroy(pool) == 0 &&
        pagepool_arena_put(arena) == 0);
}

/* Cuts three packets of 100 bytes off a buffer and returns them; gives what is left. */
static void *cut_three_off(void *buf)
{
    struct pagepool_buf *packet, *rest = buf;
    for (int i = 0; i < 3; i++) {
        CHECK(pagepool_buf_split(rest, 100, &packet, &rest) == 0 && pagepool_buf_len(packet) == 100);
        memset(pagepool_buf_data(packet), i, 100);
        CHECK(pagepool_buf_put(packet) == 0);
    }
    return rest;
}

static uint64_t out_of(struct pagepool *pool)
{
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    CHECK(pagepool_read_buffer_locations(pool, &places) == 0);
    return places.out;
}

static void buffers_are_split(void)
{
    struct pagepool_arena *arena = arena_of(64 << 12);
    struct pagepool *pool = pool_over(arena);
    struct pagepool_shutdown *shutdown;
    struct pagepool_buf *page, *header = NULL, *payload = NULL;
    pthread_t thread;
    void *left;
    CHECK(pagepool_bind(pool) == 0 && (page = pagepool_alloc_page(pool)) != NULL);
    unsigned char *data = pagepool_buf_data(page);
    CHECK(pagepool_buf_split(page, 4096, &header, &payload) == -EINVAL &&
        strstr(pagepool_last_error(), "cannot be split at 4096"));
    CHECK(pagepool_buf_split(page, 0, &header, &payload) == -EINVAL);
    CHECK(pagepool_buf_split(page, 54, &header, NULL) == -EINVAL &&
        pagepool_buf_split(page, 54, &header, &header) == -EINVAL);
    CHECK(header == NULL && payload == NULL && pagepool_buf_is_frag(page) == 0);
    CHECK(pagepool_buf_split(page, 54, &header, &payload) == 0 && pagepool_buf_put(page) == -ESTALE);
    CHECK(pagepool_buf_data(header) == data && pagepool_buf_len(header) == 54);
    CHECK(pagepool_buf_data(payload) == data + 54 && pagepool_buf_len(payload) == 4042 &&
        pagepool_buf_offset(payload) == 54 && pagepool_buf_is_frag(payload) == 1);
    memset(data, 1, 54);
    memset(data + 54, 2, 4042);
    CHECK(pagepool_buf_put(header) == 0 && pagepool_buf_put(header) == -ESTALE && out_of(pool) == 1);
    CHECK(pagepool_buf_put(payload) == 0 && out_of(pool) == 0);
    /* Elsewhere; and back here, where a part is cut again. More parts than a chunk of the table has. */
    for (int i = 0; i < 1500; i++) {
        CHECK((page = pagepool_alloc_page(pool)) != NULL);
        if (i % 100 == 0)
            CHECK(pthread_create(&thread, NULL, cut_three_off, page) == 0 &&
                pthread_join(thread, &left) == 0);
        else
            left = cut_three_off(page);
        CHECK(pagepool_buf_len(left) == 3796 && pagepool_buf_put(cut_three_off(left)) == 0);
    }
    struct pagepool_buf *all[65];
    CHECK(pagepool_alloc_bulk(pool, all, 65) == 64 && out_of(pool) == 64); /* all are returned */
    page = all[63];
    CHECK(pagepool_buf_put_bulk(all, 63) == 0);
    /* After the end of the pool. */
    CHECK(pagepool_destroy_watched(pool, &shutdown) == 0 && pagepool_arena_put(arena) == 0);
    CHECK(pagepool_buf_put(cut_three_off(cut_three_off(page))) == 0);
    CHECK(pagepool_shutdown_wait(shutdown, 0) == 0 && pagepool_shutdown_put(shutdown) == 0);
}

static void *take_back(void *shared)
{
    struct pagepool_buf *buf = NULL;
    CHECK(pagepool_shared_try_unique(shared, &buf) == 0);
    return buf;
}

static void shared_buffers_are_taken_back(void)
{
    struct pagepool_arena *arena = arena_of(1 << 20);
    struct pagepool *pool = pool_over(arena);
    struct pagepool_shared *shared, *other;
    struct pagepool_buf *buf = NULL, *frags[2];
    pthread_t thread;
    void *taken;
    CHECK(pagepool_bind(pool) == 0 && (buf = pagepool_alloc_page(pool)) != NULL);
    void *data = pagepool_buf_data(buf);
    CHECK(pagepool_buf_share(buf, &shared) == 0 && pagepool_shared_clone(shared, &other) == 0);
    CHECK(pagepool_shared_try_unique(shared, &buf) == -EBUSY && pagepool_shared_data(shared) == data);
    CHECK(pagepool_shared_put(other) == 0 && pagepool_shared_try_unique(shared, NULL) == -EINVAL);
    CHECK(pagepool_shared_try_unique(shared, &buf) == 0 && pagepool_shared_put(shared) == -ESTALE);
    CHECK(pagepool_shared_try_unique(shared, &buf) == -ESTALE && pagepool_buf_data(buf) == data);
    memset(data, 7, 4096);
    CHECK(pagepool_buf_is_frag(buf) == 0 && pagepool_buf_put(buf) == 0 && out_of(pool) == 0);
    /* Fragments of one page, whose readers are counted together. */
    for (int i = 0; i < 2; i++)
        CHECK((frags[i] = pagepool_alloc_frag(pool, 2048)) != NULL);
    CHECK(pagepool_buf_share(frags[0], &shared) == 0 && pagepool_buf_share(frags[1], &other) == 0);
    CHECK(pagepool_shared_try_unique(other, &buf) == -EBUSY && pagepool_shared_put(other) == 0);
    CHECK(pthread_create(&thread, NULL, take_back, shared) == 0 && pthread_join(thread, &taken) == 0);
    CHECK(pagepool_buf_is_frag(taken) == 1 && pagepool_buf_len(taken) == 2048);
    /* After the end of the pool. */
    CHECK(pagepool_buf_share(taken, &shared) == 0 && pagepool_destroy(pool) == 0);
    CHECK((taken = take_back(shared)) != NULL && pagepool_buf_put(taken) == 0);
    CHECK(pagepool_arena_put(arena) == 0);
}

static void *bind_and_end(void *pool)
{
    CHECK(pagepool_bind(pool) == 0);
    return pagepool_alloc_page(pool);
}

/* A thread that ends gives its pools up; slots and tokens of many pools are used again and do not fit old
 * handles. */
static void owners_and_pools_come_and_go(void)
{
    struct pagepool_arena *arena = arena_of(16 << 20);
    struct pagepool *pool = pool_over(arena), *first = pool;
    pthread_t thread;
    void *buf;
    CHECK(pthread_create(&thread, NULL, bind_and_end, pool) == 0 && pthread_join(thread, &buf) == 0);
    CHECK(pagepool_bind(pool) == 0 && pagepool_buf_put(buf) == 0 && pagepool_destroy(pool) == 0);
    for (int i = 0; i < 10000; i++) {
        pool = pool_over(arena);
        CHECK(pool != first && pagepool_bind(first) == -ESTALE && pagepool_bind(pool) == 0);
        struct pagepool_buf *page = pagepool_alloc_page(pool), *frag = pagepool_alloc_frag(pool, 64);
        CHECK(page != NULL && frag != NULL && page != buf && pagepool_buf_put(buf) == -ESTALE);
        CHECK(pagepool_destroy(pool) == 0);
        CHECK(pagepool_buf_put(page) == 0 && pagepool_buf_put(frag) == 0 &&
            pagepool_buf_put(page) == -ESTALE);
    }
    CHECK(pagepool_arena_pages_out(arena) == 0 && pagepool_arena_put(arena) == 0);
}

int main(void)
{
    CHECK(strlen(pagepool_version()) >= 5);
    domains();
    frags_as_addresses();
    nodes();
    the_callers_memory();
    idle_pages_go_back();
    the_end_is_watched();
    holders_are_named();
    packets_and_readers_are_named();
    addresses_come_home_late();
    a_dry_owner_is_woken();
    owners_and_pools_come_and_go();
    buffers_are_split();
    shared_buffers_are_taken_back();
    puts("ok");
    return 0;
}
