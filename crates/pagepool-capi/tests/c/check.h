/* What the C tests share: a check that says where it failed. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>

#include <pagepool.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, pagepool_last_error()); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline struct pagepool_arena *arena_of(uint64_t bytes)
{
    struct pagepool_arena_params params = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_arena *arena = NULL;
    params.max_bytes = bytes;
    CHECK(pagepool_arena_create(&params, &arena) == 0);
    return arena;
}

static inline struct pagepool *pool_over(struct pagepool_arena *arena)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool *pool = NULL;
    params.arena = arena;
    params.name = "rx0";
    CHECK(pagepool_create(&params, &pool) == 0);
    return pool;
}

/* For as long as the process runs: huge pages are the whole machine's, and a test of crates/pagepool counts
 * them, which takes this lock alone. */
static inline void may_take_huge_pages(void)
{
    int file = open("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", O_RDONLY | O_CLOEXEC);
    CHECK(file < 0 || flock(file, LOCK_SH) == 0);
}

#endif
