/*
 * A UMEM's frames in an array of free addresses, as in libxdp's examples, for comparison with pool_frames.h.
 * One thread; no checks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME_BYTES = 4096 };

struct frames {
    void *memory; /* of the UMEM */
    uint64_t bytes;
    uint64_t *free;
    size_t n_free;
};

static int frames_open(struct frames *frames, uint64_t count)
{
    frames->bytes = count * FRAME_BYTES;
    frames->memory = aligned_alloc(FRAME_BYTES, frames->bytes);
    frames->free = malloc(count * sizeof(*frames->free));
    if (frames->memory == NULL || frames->free == NULL)
        return -ENOMEM;
    for (frames->n_free = 0; frames->n_free < count; frames->n_free++)
        frames->free[frames->n_free] = frames->n_free * FRAME_BYTES;
    return 0;
}

static size_t frames_take(struct frames *frames, uint64_t *addrs, size_t n)
{
    n = n < frames->n_free ? n : frames->n_free;
    frames->n_free -= n;
    memcpy(addrs, &frames->free[frames->n_free], n * sizeof(*addrs));
    return n;
}

static int frames_return(struct frames *frames, const uint64_t *addrs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        frames->free[frames->n_free++] = addrs[i] & ~(uint64_t)(FRAME_BYTES - 1);
    return 0;
}

static int64_t frames_close(struct frames *frames)
{
    const int64_t in_kernel = (int64_t)(frames->bytes / FRAME_BYTES - frames->n_free);
    free(frames->free);
    free(frames->memory);
    return in_kernel;
}
