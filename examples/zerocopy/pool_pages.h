/*
 * A sender with MSG_ZEROCOPY takes its pages from a pool. Copy this, with sends.h.
 *
 * The kernel reads a page after the send has returned. Until the kernel is done, the page waits in the pool's
 * deferred queue, with the cookie of its last send. When the pool needs pages, it calls `sends_refresh` and
 * then `sends_in_use`. Only the thread that opens the pages may take and return them.
 */
#include <pagepool.h>

#include "sends.h"

struct pages {
    struct pagepool_arena *arena;
    struct pagepool *pool;
    struct pagepool_deferred_user *user;
};

struct page {
    struct pagepool_buf *buf;
    char *data;
};

static int pages_open(struct pages *pages, struct sends *sends, size_t count)
{
    struct pagepool_arena_params arena = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_params pool = PAGEPOOL_PARAMS_INIT;
    const struct pagepool_deferred_user_ops ops = {.size = sizeof(ops), .arg = sends,
        .in_use = sends_in_use, .refresh = sends_refresh};
    arena.max_bytes = count * 4096;
    int done = pagepool_arena_create(&arena, &pages->arena);
    if (done < 0)
        return done;
    pool.arena = pages->arena;
    pool.name = "tx";
    pool.defer_capacity = (uint32_t)count; /* room for every page */
    done = pagepool_create(&pool, &pages->pool);
    if (done == 0)
        done = pagepool_bind(pages->pool);
    return done < 0 ? done : pagepool_deferred_user_create(pages->pool, &ops, &pages->user);
}

/* Takes a page. Its data is NULL while the kernel reads all pages. */
static struct page pages_take(struct pages *pages)
{
    struct pagepool_buf *buf = pagepool_alloc_page(pages->pool);
    return (struct page){buf, buf != NULL ? pagepool_buf_data(buf) : NULL};
}

/* Returns a page. The pool reuses it once the kernel is done with all sends up to the cookie. */
static int pages_return(struct pages *pages, struct page page, uint64_t cookie)
{
    if (cookie == 0)
        return pagepool_buf_put(page.buf);
    return pagepool_defer(pages->pool, pages->user, page.buf, cookie);
}

/* Waits until the kernel is done with all pages, at most 10 seconds. Returns how many are still out. */
static int64_t pages_close(struct pages *pages)
{
    struct pagepool_shutdown *shutdown;
    pagepool_deferred_user_put(pages->user);
    int done = pagepool_destroy_watched(pages->pool, &shutdown);
    if (done < 0)
        return done;
    done = pagepool_shutdown_wait(shutdown, 10000000000);
    const int64_t out = done < 0 ? pagepool_arena_pages_out(pages->arena) : 0;
    pagepool_shutdown_put(shutdown);
    pagepool_arena_put(pages->arena);
    return out;
}
