/*
 * A receive loop as in a kernel driver, over a simulated device. The driver fills a ring of descriptors with
 * pages, and polls it with a budget of 64 packets. It drops some packets at once and hands the others to a
 * worker thread, which returns them. At the end it returns the pages that the device never used.
 *
 *     cc -O2 receive-loop.c $(pkg-config --cflags --libs pagepool) -lpthread -o receive-loop
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pagepool.h>

#define RING 256
#define BUDGET 64
#define PACKETS 200000

struct descriptor {
    uint64_t addr;
    uint32_t len; /* of the packet; 0: the device has the buffer */
};

struct device {
    struct descriptor ring[RING];
    unsigned filled, polled; /* descriptors, counted by the driver */
    unsigned received;       /* descriptors, counted by the device */
};

/* The queue of buffers to the worker, under a lock. */
struct queue {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct pagepool_buf *bufs[1024];
    size_t n;
    int done;
};

static void must(int64_t done, const char *what)
{
    if (done < 0) {
        fprintf(stderr, "%s: %s\n", what, pagepool_last_error());
        exit(1);
    }
}

/* The device writes packets into its buffers, in order. */
static void device_receives(struct device *device, char *memory, unsigned packets)
{
    while (packets-- > 0 && device->received != device->filled) {
        struct descriptor *at = &device->ring[device->received % RING];
        uint32_t number = device->received++;
        memcpy(memory + at->addr, &number, sizeof(number));
        at->len = 60 + number % 1400;
    }
}

/* Gives every free descriptor the device address of a new page. Linux: page_pool_dev_alloc_pages. */
static void refill(struct device *device, struct pagepool *pool)
{
    struct pagepool_raw raw;
    while (device->filled - device->polled < RING) {
        struct pagepool_buf *buf = pagepool_alloc_page(pool);
        if (buf == NULL)
            return; /* no page left: the next poll tries again */
        must(pagepool_buf_into_raw(buf, &raw), "into_raw");
        device->ring[device->filled++ % RING] = (struct descriptor){raw.addr, 0};
    }
}

static unsigned poll(struct device *device, struct pagepool *pool, struct queue *queue)
{
    struct pagepool_buf *up[BUDGET];
    unsigned done = 0, n = 0;
    while (done < BUDGET && device->polled != device->received) {
        struct descriptor *at = &device->ring[device->polled++ % RING];
        struct pagepool_buf *buf = pagepool_from_raw(pool, at->addr);
        uint32_t number;
        if (buf == NULL)
            must(-1, "from_raw");
        must(pagepool_buf_sync_for_cpu(buf, 0, at->len), "sync");
        memcpy(&number, pagepool_buf_data(buf), sizeof(number));
        if (number != device->polled - 1)
            exit(2);
        if (number % 4 == 0)
            must(pagepool_buf_put(buf), "put"); /* dropped: the page goes into the cache */
        else
            up[n++] = buf;
        done++;
    }
    pthread_mutex_lock(&queue->lock);
    while (n > 0 && queue->n < 1024)
        queue->bufs[queue->n++] = up[--n];
    pthread_cond_signal(&queue->more);
    pthread_mutex_unlock(&queue->lock);
    if (n > 0)
        must(pagepool_buf_put_bulk(up, n), "put_bulk"); /* the worker is too slow: dropped */
    return done;
}

/* Stands for a network stack: returns all queued packets in one call. */
static void *worker(void *arg)
{
    struct queue *queue = arg;
    struct pagepool_buf *bufs[1024];
    size_t n;
    do {
        pthread_mutex_lock(&queue->lock);
        while (queue->n == 0 && !queue->done)
            pthread_cond_wait(&queue->more, &queue->lock);
        n = queue->n;
        memcpy(bufs, queue->bufs, n * sizeof(*bufs));
        queue->n = 0;
        pthread_mutex_unlock(&queue->lock);
        must(pagepool_buf_put_bulk(bufs, n), "put_bulk");
    } while (n > 0);
    return NULL;
}

int main(void)
{
    struct pagepool_arena_params arena_params = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct queue queue = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}, 0, 0};
    struct device device;
    struct pagepool_arena *arena;
    struct pagepool_domain *umem;
    struct pagepool_shutdown *shutdown;
    struct pagepool *pool;
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    pthread_t thread;
    unsigned packets = 0;

    memset(&device, 0, sizeof(device));
    arena_params.max_bytes = 8 << 20;
    arena_params.commit_all = 1; /* the device registers all memory once */
    must(pagepool_arena_create(&arena_params, &arena), "arena");
    must(pagepool_domain_offset("umem0", &umem), "domain"); /* addresses are offsets, as in AF_XDP */
    params.arena = arena;
    params.name = "rx0";
    params.domains = &umem;
    params.n_domains = 1;
    must(pagepool_create(&params, &pool), "pool");
    must(pagepool_domain_put(umem), "domain");
    must(pagepool_bind(pool), "bind"); /* this thread polls */
    if (pthread_create(&thread, NULL, worker, &queue) != 0)
        return 1;

    while (packets < PACKETS) {
        refill(&device, pool);
        device_receives(&device, pagepool_arena_base(arena), 100);
        packets += poll(&device, pool, &queue);
    }
    pthread_mutex_lock(&queue.lock);
    queue.done = 1;
    pthread_cond_signal(&queue.more);
    pthread_mutex_unlock(&queue.lock);
    pthread_join(thread, NULL);

    for (; device.polled != device.filled; device.polled++) /* pages that the device still has */
        must(pagepool_put_addr(pool, device.ring[device.polled % RING].addr), "put_addr");
    must(pagepool_read_stats(pool, &stats), "stats");
    printf("%u packets; fast %llu, refills %llu, slow %llu, cached %llu, from the worker %llu\n", packets,
           (unsigned long long)stats.alloc_fast, (unsigned long long)stats.alloc_refill,
           (unsigned long long)stats.alloc_slow, (unsigned long long)stats.recycle_cached,
           (unsigned long long)stats.recycle_ring);
    must(pagepool_destroy_watched(pool, &shutdown), "destroy");
    must(pagepool_shutdown_wait(shutdown, 1000000000), "a buffer was lost");
    must(pagepool_shutdown_put(shutdown), "shutdown");
    must(pagepool_arena_put(arena), "arena");
    return 0;
}
