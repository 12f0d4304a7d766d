/*
 * A UMEM's frames come from a pool. Copy this into a program with libxdp's sockets.
 *
 * A frame is a page. Its address is its offset in the UMEM. frames_take() returns addresses for a fill ring.
 * frames_return() accepts addresses from a completion ring or of dropped packets, anywhere in a frame. Only
 * the thread that opens the frames may take them; any thread may return them. Functions return 0 or a
 * negative errno, which pagepool_last_error() explains, unless stated otherwise.
 */
#include <pagepool.h>

enum { FRAME_BYTES = 4096 };

struct frames {
    void *memory; /* of the UMEM */
    uint64_t bytes;
    struct pagepool_arena *arena;
    struct pagepool *pool;
};

static int frames_open(struct frames *frames, uint64_t count)
{
    struct pagepool_arena_params arena = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_params pool = PAGEPOOL_PARAMS_INIT;
    struct pagepool_domain *offsets = NULL;
    arena.max_bytes = frames->bytes = count * FRAME_BYTES;
    arena.commit_all = 1; /* the kernel registers a UMEM whole */
    int done = pagepool_arena_create(&arena, &frames->arena);
    if (done == 0)
        done = pagepool_domain_offset("umem", &offsets); /* a device address is an offset in the arena */
    if (done < 0)
        return done;
    frames->memory = pagepool_arena_base(frames->arena);
    pool.arena = frames->arena;
    pool.name = "umem";
    pool.domains = &offsets;
    pool.n_domains = 1;
    pool.cache_size = 1024; /* room for returns without a lock */
    done = pagepool_create(&pool, &frames->pool);
    pagepool_domain_put(offsets);
    return done < 0 ? done : pagepool_bind(frames->pool);
}

/* Takes up to n frames. Returns their number. */
static size_t frames_take(struct frames *frames, uint64_t *addrs, size_t n)
{
    return pagepool_alloc_addr_bulk(frames->pool, addrs, n);
}

static int frames_return(struct frames *frames, const uint64_t *addrs, size_t n)
{
    return pagepool_put_addr_bulk(frames->pool, addrs, n);
}

/* Destroys the pool, once the sockets are closed. First tries to return every address; the pool accepts only
 * those that the kernel had. Returns their number. */
static int64_t frames_close(struct frames *frames)
{
    int64_t in_kernel = 0;
    for (uint64_t addr = 0; addr < frames->bytes; addr += FRAME_BYTES)
        in_kernel += pagepool_put_addr(frames->pool, addr) == 0;
    const int done = pagepool_destroy(frames->pool);
    pagepool_arena_put(frames->arena);
    return done < 0 ? done : in_kernel;
}
