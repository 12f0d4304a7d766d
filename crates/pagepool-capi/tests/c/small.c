/* What a small pool costs beside its pages: the memory that becomes resident while it is made, bound, used
 * and ended. Tables that are as large as a pool may become cost nothing where it does not use them. */
#include "check.h"
#include "resident.h"

#define MOST_KIB 64

static void check_growth(const char *what, long before)
{
    long grown = anonymous_kib() - before;
    printf("%s: %ld KiB, at most %d\n", what, grown, MOST_KIB);
    CHECK(grown <= MOST_KIB);
}

static struct pagepool *made(struct pagepool_arena *arena)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool *pool;
    params.arena = arena;
    CHECK(pagepool_create(&params, &pool) == 0);
    CHECK(pagepool_bind(pool) == 0);
    for (int round = 0; round < 100; round++)
        CHECK(pagepool_buf_put(pagepool_alloc_page(pool)) == 0);
    return pool;
}

int main(void)
{
    struct pagepool_arena_params params = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_arena *arena;
    long before = anonymous_kib();
    if (before < 0 || (before = anonymous_kib()) < 0) {
        printf("SKIP: /proc/self/smaps_rollup requires Linux 4.14\n");
        return 0;
    }
    params.max_bytes = 1 << 20;
    params.backing = PAGEPOOL_BACKING_ANONYMOUS_4K;
    CHECK(pagepool_arena_create(&params, &arena) == 0);
    before = anonymous_kib();
    struct pagepool *first = made(arena);
    check_growth("the first pool", before);
    before = anonymous_kib();
    struct pagepool *second = made(arena);
    check_growth("the second pool", before);
    before = anonymous_kib();
    CHECK(pagepool_destroy(second) == 0);
    CHECK(pagepool_destroy(first) == 0);
    check_growth("their ends", before);
    before = anonymous_kib();
    for (int round = 0; round < 20; round++)
        CHECK(pagepool_destroy(made(arena)) == 0);
    check_growth("twenty more, one after another", before);
    CHECK(pagepool_arena_put(arena) == 0);
    return 0;
}
