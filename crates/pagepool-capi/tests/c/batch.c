/* Batches: what they take, give and count, on the owner's thread and on others. */
#include <pthread.h>
#include <string.h>

#include "check.h"

#define MOST 64

static struct pagepool_batch *new_batch(void)
{
    struct pagepool_batch *batch = NULL;
    CHECK(pagepool_batch_create(&batch) == 0 && batch != NULL && pagepool_batch_len(batch) == 0);
    return batch;
}

static uint64_t out_of(struct pagepool *pool)
{
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    CHECK(pagepool_read_buffer_locations(pool, &places) == 0);
    return places.out;
}

/* -errno of a call that gives no status. */
static int failed(void)
{
    int errno_then = -pagepool_last_errno();
    CHECK(errno_then != 0 && pagepool_last_error()[0] != '\0');
    pagepool_clear_error();
    return errno_then;
}

static void fill_and_put(struct pagepool *pool)
{
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    struct pagepool_batch *batch = new_batch();
    void *packets[MOST + 1] = {NULL};
    pagepool_clear_error();
    CHECK(pagepool_batch_alloc(batch, pool, 32) == 32 && pagepool_batch_alloc(batch, pool, 0) == 0);
    CHECK(pagepool_batch_len(batch) == 32 && out_of(pool) == 32);
    CHECK(pagepool_batch_packets(batch, packets, 8) == 8 && packets[8] == NULL);
    CHECK(pagepool_batch_packets(batch, packets, MOST) == 32 && packets[32] == NULL);
    CHECK(pagepool_last_errno() == 0);
    for (int i = 0; i < 32; i++) {
        memset(packets[i], i, 4096);
        for (int other = 0; other < i; other++)
            CHECK(packets[other] != packets[i]);
    }
    CHECK(pagepool_batch_alloc(batch, pool, MOST) == 32 && failed() == -ENOBUFS);
    CHECK(pagepool_batch_alloc(batch, pool, SIZE_MAX) == 0 && failed() == -ENOBUFS);
    CHECK(pagepool_batch_packets(batch, packets, MOST + 1) == MOST && packets[MOST] == NULL);
    CHECK(((unsigned char *)packets[31])[4095] == 31);
    CHECK(pagepool_batch_put(batch) == 0 && pagepool_batch_len(batch) == 0 && out_of(pool) == 0);
    CHECK(pagepool_batch_put(batch) == 0 && pagepool_batch_packets(batch, packets, MOST) == 0);
    CHECK(pagepool_last_errno() == 0);
    CHECK(pagepool_read_stats(pool, &stats) == 0 && stats.recycle_cached == MOST);
    CHECK(pagepool_batch_packets(batch, NULL, 1) == 0 && failed() == -EINVAL);
    CHECK(pagepool_batch_alloc(batch, pool, 5) == 5);
    CHECK(pagepool_batch_destroy(batch) == 0 && out_of(pool) == 0); /* the pages went home with it */
}

static void handles_in_and_out(struct pagepool *pool, struct pagepool *other)
{
    struct pagepool_batch *batch = new_batch();
    struct pagepool_buf *bufs[3], *page, *parts[2];
    void *packets[4];
    CHECK(pagepool_batch_alloc(batch, pool, 3) == 3 && pagepool_batch_packets(batch, packets, 3) == 3);
    for (int i = 2; i >= 0; i--) {
        bufs[i] = pagepool_batch_pop(batch); /* the last one first */
        CHECK(bufs[i] != NULL && pagepool_buf_packet(bufs[i]) == packets[i]);
    }
    CHECK(pagepool_batch_pop(batch) == NULL && failed() == -ENOENT);
    CHECK(out_of(pool) == 3 && pagepool_buf_put(bufs[1]) == 0 && pagepool_buf_put(bufs[1]) == -ESTALE);
    CHECK(pagepool_batch_push(batch, bufs[0]) == 0 && pagepool_batch_push(batch, bufs[0]) == -ESTALE);
    CHECK(pagepool_buf_put(bufs[0]) == -ESTALE && pagepool_buf_data(bufs[0]) == NULL); /* its life is over */
    CHECK(pagepool_batch_len(batch) == 1 && out_of(pool) == 2);

    /* What a batch does not take stays the caller's. */
    page = pagepool_alloc_page(other);
    CHECK(pagepool_batch_push(batch, page) == -EINVAL && strstr(pagepool_last_error(), "another pool"));
    CHECK(pagepool_batch_alloc(batch, other, 1) == 0 && failed() == -EINVAL);
    CHECK(pagepool_buf_put(page) == 0);
    CHECK(pagepool_buf_split(bufs[2], 2048, &parts[0], &parts[1]) == 0);
    CHECK(pagepool_batch_push(batch, parts[1]) == -EINVAL && strstr(pagepool_last_error(), "whole pages"));
    CHECK(pagepool_buf_put(parts[0]) == 0 && pagepool_buf_put(parts[1]) == 0);
    CHECK(pagepool_batch_alloc(batch, pool, MOST - 1) == MOST - 1);
    page = pagepool_alloc_page(pool);
    CHECK(pagepool_batch_push(batch, page) == -ENOBUFS && pagepool_buf_put(page) == 0);

    /* An empty one takes pages of any pool. */
    CHECK(pagepool_batch_put(batch) == 0 && pagepool_batch_alloc(batch, other, 2) == 2);
    page = pagepool_batch_pop(batch);
    CHECK(pagepool_batch_put(batch) == 0 && pagepool_batch_push(batch, page) == 0);
    CHECK(pagepool_batch_destroy(batch) == 0 && out_of(pool) == 0 && out_of(other) == 0);
}

/* Headroom and colour: the addresses of a batch are those of its buffers. */
static void packets_begin_behind_headroom(struct pagepool_arena *arena)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_batch *batch = new_batch();
    struct pagepool *pool;
    void *packets[8];
    params.arena = arena;
    params.headroom = 256;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    CHECK(pagepool_batch_alloc(batch, pool, 8) == 8 && pagepool_batch_packets(batch, packets, 8) == 8);
    for (int i = 7; i >= 0; i--) {
        struct pagepool_buf *buf = pagepool_batch_pop(batch);
        CHECK((char *)packets[i] >= (char *)pagepool_buf_data(buf) + 256);
        CHECK(packets[i] == pagepool_buf_packet(buf) && pagepool_buf_put(buf) == 0);
    }
    CHECK(pagepool_batch_destroy(batch) == 0 && pagepool_destroy(pool) == 0);
}

static void the_arena_is_exhausted(void)
{
    struct pagepool_arena *arena = arena_of(16 << 12);
    struct pagepool *pool = pool_over(arena);
    struct pagepool_batch *batch = new_batch();
    CHECK(pagepool_bind(pool) == 0);
    CHECK(pagepool_batch_alloc(batch, pool, 32) == 16 && failed() == -ENOMEM);
    CHECK(pagepool_batch_alloc(batch, pool, 32) == 0 && failed() == -ENOMEM);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_arena_pages_out(arena) == 16);
    CHECK(pagepool_batch_len(batch) == 16 && pagepool_batch_alloc(batch, pool, 1) == 0);
    CHECK(failed() == -ESTALE);
    struct pagepool_buf *late = pagepool_batch_pop(batch); /* of a pool that ended */
    CHECK(late != NULL && pagepool_batch_push(batch, late) == 0 && pagepool_buf_put(late) == -ESTALE);
    CHECK(pagepool_batch_put(batch) == 0 && pagepool_arena_pages_out(arena) == 0);
    CHECK(pagepool_batch_destroy(batch) == 0 && pagepool_arena_put(arena) == 0);
}

/* A batch goes to another thread full and comes back empty. */
static struct pagepool *the_pool;

static void *put_elsewhere(void *batch)
{
    struct pagepool_buf *buf = pagepool_batch_pop(batch);
    CHECK(pagepool_batch_alloc(batch, the_pool, 1) == 0 && failed() == -EPERM);
    CHECK(buf != NULL && pagepool_batch_push(batch, buf) == 0);
    CHECK(pagepool_batch_len(batch) == 32 && pagepool_batch_put(batch) == 0);
    return NULL;
}

static void on_another_thread(struct pagepool *pool)
{
    struct pagepool_stats before = PAGEPOOL_STATS_INIT, after = PAGEPOOL_STATS_INIT;
    struct pagepool_batch *batch = new_batch();
    the_pool = pool;
    CHECK(pagepool_read_stats(pool, &before) == 0);
    for (int round = 0; round < 3; round++) {
        pthread_t thread;
        CHECK(pagepool_batch_alloc(batch, pool, 32) == 32);
        CHECK(pthread_create(&thread, NULL, put_elsewhere, batch) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(pagepool_batch_len(batch) == 0 && out_of(pool) == 0);
    }
    CHECK(pagepool_read_stats(pool, &after) == 0 && after.recycle_ring - before.recycle_ring == 3 * 32);
    /* Without an owner, and with another one. */
    CHECK(pagepool_batch_alloc(batch, pool, 32) == 32 && pagepool_unbind(pool) == 0);
    CHECK(pagepool_batch_alloc(batch, pool, 1) == 0 && failed() == -EPERM);
    CHECK(pagepool_batch_put(batch) == 0 && pagepool_bind(pool) == 0 && out_of(pool) == 0);
    CHECK(pagepool_batch_destroy(batch) == 0);
}

/* A callback of the pool's own call about a batch is refused that batch, and may use others. */
static struct pagepool_batch *in_callback, *free_in_callback;
static int callbacks;

static int map(void *arg, const struct pagepool_region *region, uint64_t *addr)
{
    (void)arg, (void)region;
    *addr = 1 << 30;
    return 0;
}

static void unmap(void *arg, const struct pagepool_region *region, uint64_t addr)
{
    (void)arg, (void)region, (void)addr;
}

static void sync(void *arg, uint64_t addr, size_t len)
{
    (void)arg, (void)addr, (void)len;
    if (in_callback == NULL)
        return;
    callbacks++;
    CHECK(pagepool_batch_put(in_callback) == -EBUSY && pagepool_batch_destroy(in_callback) == -EBUSY);
    CHECK(pagepool_batch_pop(in_callback) == NULL && failed() == -EBUSY);
    CHECK(pagepool_batch_put(free_in_callback) == 0);
}

static void callbacks_are_refused(void)
{
    struct pagepool_arena *arena = arena_of(4 << 20); /* of one region */
    struct pagepool_domain_ops ops = {sizeof(ops), "iommu0", NULL, map, unmap, sync, sync, NULL, 0, 0};
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_domain *domain;
    struct pagepool *pool;
    CHECK(pagepool_domain_create(&ops, &domain) == 0);
    params.arena = arena;
    params.domains = &domain;
    params.n_domains = 1;
    params.sync_for_device = 1;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    free_in_callback = new_batch();
    struct pagepool_batch *batch = new_batch();
    CHECK(pagepool_batch_alloc(batch, pool, 4) == 4);
    in_callback = batch;
    CHECK(pagepool_batch_put(batch) == 0 && callbacks == 4 && out_of(pool) == 0);
    in_callback = NULL;
    CHECK(pagepool_batch_destroy(batch) == 0 && pagepool_batch_destroy(free_in_callback) == 0);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_domain_put(domain) == 0 && pagepool_arena_put(arena) == 0);
}

/* All that there may be, each used again. */
static void many(struct pagepool *pool)
{
    static struct pagepool_batch *batches[4097];
    for (int round = 0; round < 2; round++) {
        int n = 0;
        while (n < 4097 && pagepool_batch_create(&batches[n]) == 0)
            n++;
        CHECK(n == 4096 && failed() == -EBUSY);
        for (int i = 0; i < n; i++) {
            CHECK(pagepool_batch_alloc(batches[i], pool, 1) == 1);
            CHECK(pagepool_batch_destroy(batches[i]) == 0 && pagepool_batch_put(batches[i]) == -ESTALE);
        }
        CHECK(out_of(pool) == 0);
    }
}

int main(void)
{
    struct pagepool_arena *arena = arena_of(64 << 20);
    struct pagepool *pool = pool_over(arena), *other = pool_over(arena);
    CHECK(pagepool_bind(pool) == 0 && pagepool_bind(other) == 0);
    fill_and_put(pool);
    handles_in_and_out(pool, other);
    packets_begin_behind_headroom(arena);
    the_arena_is_exhausted();
    on_another_thread(pool);
    callbacks_are_refused();
    many(pool);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_destroy(other) == 0);
    CHECK(pagepool_arena_pages_out(arena) == 0 && pagepool_arena_put(arena) == 0);
    puts("ok");
    return 0;
}
