/* An arena with pages of 2 KiB: sizes and addresses of its buffers, and the memory that one takes. */
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>

#include "check.h"
#include "resident.h"

#define BUFS 16384
#define MOST_BYTES 2120

static struct pagepool_arena *half_arena(uint64_t page_size)
{
    struct pagepool_arena_params params = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_arena *arena;
    params.max_bytes = (uint64_t)BUFS * 2048;
    params.backing = PAGEPOOL_BACKING_ANONYMOUS_4K;
    params.page_size = page_size;
    return pagepool_arena_create(&params, &arena) == 0 ? arena : NULL;
}

static struct pagepool *pool_of(struct pagepool_arena *arena, uint32_t order)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool *pool;
    params.arena = arena;
    params.order = order;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    return pool;
}

int main(void)
{
    static struct pagepool_buf *bufs[BUFS];
    const char *refused = "page_size is 1024, but must be 2048 or 4096";
    CHECK(half_arena(1024) == NULL && strstr(pagepool_last_error(), refused) != NULL);
    long before = anonymous_kib();
    if (before < 0 || (before = anonymous_kib()) < 0) {
        printf("SKIP: /proc/self/smaps_rollup requires Linux 4.14\n");
        return 0;
    }
    CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    struct pagepool_arena *arena = half_arena(2048);
    struct pagepool *pool = pool_of(arena, 0);
    char *base = pagepool_base(pool, NULL);
    for (size_t at = 0; at < BUFS; ++at) {
        CHECK((bufs[at] = pagepool_alloc_page(pool)) != NULL && pagepool_buf_len(bufs[at]) == 2048);
        char *data = pagepool_buf_data(bufs[at]);
        CHECK(data == base + (size_t)pagepool_buf_page_index(bufs[at]) * 2048);
        memset(data, (int)at, 2048);
    }
    CHECK(pagepool_alloc_page(pool) == NULL);
    long bytes = (anonymous_kib() - before) * 1024 / BUFS;
    printf("%ld bytes per buffer of 2048, at most %d\n", bytes, MOST_BYTES);
    CHECK(bytes <= MOST_BYTES);
    for (size_t at = 0; at < BUFS; ++at) {
        const unsigned char *data = pagepool_buf_data(bufs[at]);
        CHECK(data[0] == (unsigned char)at && data[2047] == (unsigned char)at);
    }
    CHECK(pagepool_buf_put_bulk(bufs, BUFS) == 0 && pagepool_destroy(pool) == 0);
    struct pagepool *pairs = pool_of(arena, 1);
    struct pagepool_buf *pair = pagepool_alloc_page(pairs);
    CHECK(pagepool_buf_len(pair) == 4096 && pagepool_buf_page_index(pair) % 2 == 0);
    CHECK(pagepool_buf_put(pair) == 0 && pagepool_destroy(pairs) == 0 && pagepool_arena_put(arena) == 0);
    return 0;
}
