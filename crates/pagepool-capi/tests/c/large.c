/* What a pool costs over an arena of 64 GiB, of which one region is committed and little used: the memory
 * that becomes resident, and how often the kernel gives it a page that it reads or writes. Tables have an
 * entry for each of its 16,777,216 pages; they were 131 MB, 32,000 pages, when their zeroes were written. */
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "check.h"
#include "resident.h"

#define ARENA ((uint64_t)64 << 30)
#define MOST_KIB 1024
#define MOST_FAULTS 1000

static long faults(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt + usage.ru_majflt;
}

/* A pool of which 64 pages were out. */
static struct pagepool *used(struct pagepool_arena *arena)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_buf *bufs[64];
    struct pagepool *pool;
    params.arena = arena;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    CHECK(pagepool_alloc_bulk(pool, bufs, 64) == 64);
    CHECK(pagepool_buf_put_bulk(bufs, 64) == 0);
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
    /* So that each page of a table that is touched counts. */
    CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    long began = faults();
    params.max_bytes = ARENA;
    params.backing = PAGEPOOL_BACKING_ANONYMOUS_4K;
    CHECK(pagepool_arena_create(&params, &arena) == 0);
    struct pagepool *first = used(arena), *second = used(arena);
    long kib = anonymous_kib() - before, touched = faults() - began;
    printf("arena of 64 GiB, two pools: %ld KiB, %ld faults; at most %d, %d\n", kib, touched, MOST_KIB,
        MOST_FAULTS);
    CHECK(kib <= MOST_KIB && touched <= MOST_FAULTS);
    began = faults();
    CHECK(pagepool_destroy(first) == 0 && pagepool_destroy(second) == 0 && pagepool_arena_put(arena) == 0);
    touched = faults() - began;
    printf("their end: %ld faults, at most %d\n", touched, MOST_FAULTS);
    CHECK(touched <= MOST_FAULTS);
    return 0;
}
