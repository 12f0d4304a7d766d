/* For the benches of this library: exit after a failed call, and a pool of the calling thread. */
#ifndef BENCH_H
#define BENCH_H

#include <stdio.h>
#include <stdlib.h>

#include <pagepool.h>

static inline void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, pagepool_last_error());
    exit(1);
}

/* A pool over its own arena: max_bytes, in pages of page_size bytes. In both, 0 means the default. */
static inline struct pagepool *pool_of_this_thread(uint64_t max_bytes, size_t page_size,
    struct pagepool_params params)
{
    struct pagepool_arena_params arena_params = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool *pool;
    arena_params.max_bytes = max_bytes;
    arena_params.page_size = page_size;
    if (pagepool_arena_create(&arena_params, &params.arena) != 0)
        fail("pagepool_arena_create");
    if (pagepool_create(&params, &pool) != 0 || pagepool_bind(pool) != 0)
        fail("pagepool_create, pagepool_bind");
    pagepool_arena_put(params.arena); /* the pool keeps it */
    return pool;
}

#endif
