/*
 * The memory of lwIP's custom pbufs comes from malloc, for comparison with pool_pbuf.h.
 */
#include <stdlib.h>

#include <lwip/pbuf.h>

enum { MAX_BYTES = 1514 }; /* of a frame */

struct pbuf_memory {
    struct pbuf_custom custom; /* first: lwIP passes its address to the free function; the frame follows */
    void *end;
};

static int64_t out;

static int pbuf_memory_open(void)
{
    return 0;
}

static void pbuf_memory_put(struct pbuf *pbuf)
{
    free(pbuf);
    out--;
}

static struct pbuf_memory *pbuf_memory_take(void **data)
{
    struct pbuf_memory *taken = malloc(sizeof(*taken) + MAX_BYTES);
    if (taken == NULL)
        return NULL;
    *data = taken + 1;
    out++;
    return taken;
}

static int64_t pbuf_memory_close(void)
{
    return out;
}
