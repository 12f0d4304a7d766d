/*
 * lwIP receives into buffers of a pool. Copy this into an interface driver for lwIP.
 *
 * pbuf_memory_take() returns memory for one frame. Once it holds a frame, pbuf_alloced_custom() makes it a
 * custom pbuf. After the pbuf's last use, lwIP calls the pbuf's free function, which returns the buffer on
 * the freeing thread. lwIP's own structure lies outside the buffer, in an array indexed by page number. Only
 * the thread that opens the memory may take it.
 */
#include <lwip/pbuf.h>

#include <pagepool.h>

enum { PAGES = 4096 }; /* most frames that lwIP holds at a time */

struct pbuf_memory {
    struct pbuf_custom custom; /* first: lwIP passes its address to the free function */
    struct pagepool_buf *buf;
};

static struct pbuf_memory by_page[PAGES];
static struct pagepool_arena *arena;
static struct pagepool *pool;

static int pbuf_memory_open(void)
{
    struct pagepool_arena_params arena_params = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    arena_params.max_bytes = (uint64_t)PAGES * 4096;
    int done = pagepool_arena_create(&arena_params, &arena);
    if (done < 0)
        return done;
    params.arena = arena;
    params.name = "lwip";
    done = pagepool_create(&params, &pool);
    return done < 0 ? done : pagepool_bind(pool);
}

static void pbuf_memory_put(struct pbuf *pbuf)
{
    pagepool_buf_put(((struct pbuf_memory *)pbuf)->buf); /* a second free of the same pbuf is refused */
}

/* Takes memory for a frame and stores its address in `*data`; NULL if no page is left. */
static struct pbuf_memory *pbuf_memory_take(void **data)
{
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    if (buf == NULL)
        return NULL;
    struct pbuf_memory *taken = &by_page[pagepool_buf_page_index(buf)];
    taken->buf = buf;
    *data = pagepool_buf_data(buf);
    return taken;
}

/* Destroys the pool, once lwIP holds no pbuf. Returns how many buffers are missing. */
static int64_t pbuf_memory_close(void)
{
    struct pagepool_buffer_locations at = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    int done = pagepool_read_buffer_locations(pool, &at);
    pagepool_destroy(pool);
    pagepool_arena_put(arena);
    return done < 0 ? done : (int64_t)at.out;
}
