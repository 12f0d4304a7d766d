/*
 * The objects of a mempool are the pages of a pool: to copy into a DPDK mempool driver.
 *
 * The caller has the memory, a stretch of pages, and says where in each page its object begins. Any thread
 * gets and puts objects: the pool has no owner (`no_owner`), so each call takes its lock, serves all its
 * objects by their addresses, and lets go. objects_put() refuses an object that is in the pool already, or
 * that is none of its objects, and puts all others. All return 0 or a negative errno, which
 * pagepool_last_error() explains, unless they say otherwise.
 */
#include <stdint.h>

#include <pagepool.h>

_Static_assert(sizeof(void *) == sizeof(uint64_t), "pointers to objects are the addresses of the pool");

struct objects {
    uintptr_t base;
    uint32_t pages, order; /* how many pages, and log2 of the 4096 bytes in each */
    struct pagepool_arena *arena;
    struct pagepool *pool;
};

/* The device address of a page is that of its object: `header` bytes behind its start. So DPDK's array of
 * objects is what the pool writes and reads. */
static int map_objects(void *header, const struct pagepool_region *region, uint64_t *addr)
{
    *addr = (uintptr_t)region->cpu_addr + (uintptr_t)header;
    return 0;
}

static void unmap_objects(void *header, const struct pagepool_region *region, uint64_t addr)
{
    (void)header, (void)region, (void)addr;
}

/* Makes a pool over the memory, which `base`, `pages` and `order` tell. If it fails, objects_close() frees
 * what there is. */
static int objects_open(struct objects *objects, const char *name, uint32_t header)
{
    struct pagepool_arena_params arena = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_params pool = PAGEPOOL_PARAMS_INIT;
    struct pagepool_domain_ops ops = {.size = sizeof(ops), .name = name, .coherent = 1};
    struct pagepool_domain *addresses;
    ops.arg = (void *)(uintptr_t)header;
    ops.map = map_objects;
    ops.unmap = unmap_objects;
    arena.backing = PAGEPOOL_BACKING_CALLER;
    arena.memory = (void *)objects->base;
    arena.max_bytes = (uint64_t)objects->pages << (12 + objects->order);
    arena.name = pool.name = name;
    int done = pagepool_arena_create(&arena, &objects->arena);
    if (done == 0)
        done = pagepool_domain_create(&ops, &addresses);
    if (done < 0)
        return done;
    pool.arena = objects->arena;
    pool.domains = &addresses;
    pool.n_domains = 1;
    pool.no_owner = 1;
    pool.order = objects->order;
    pool.cache_size = 1024; /* two of DPDK's largest caches */
    pool.refill = 256;
    pool.colour = PAGEPOOL_NO_COLOUR;
    pool.max_lanes = PAGEPOOL_NO_LANES; /* every return is by address */
    done = pagepool_create(&pool, &objects->pool);
    pagepool_domain_put(addresses);
    return done;
}

/* Gets up to n objects. Returns their number. */
static inline unsigned int objects_get(const struct objects *objects, void **to, unsigned int n)
{
    return (unsigned int)pagepool_alloc_addr_bulk(objects->pool, (uint64_t *)to, n);
}

static inline int objects_put(const struct objects *objects, void *const *from, unsigned int n)
{
    return pagepool_put_addr_bulk(objects->pool, (const uint64_t *)from, n);
}

/* Ends the pool. Objects that are out are taken back: each page is tried, and refused if it is in. The memory
 * may be gone already: the pool's records lie elsewhere. */
static void objects_close(struct objects *objects)
{
    const uint64_t bytes = (uint64_t)4096 << objects->order;
    for (uint64_t page = 1; objects->pool != NULL && page <= objects->pages; ++page)
        pagepool_put_addr(objects->pool, objects->base + page * bytes - 1);
    if (objects->pool != NULL)
        pagepool_destroy(objects->pool);
    if (objects->arena != NULL)
        pagepool_arena_put(objects->arena);
}
