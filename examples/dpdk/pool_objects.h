/*
 * A mempool's objects are the pages of a pool. Copy this into a DPDK mempool driver.
 *
 * The caller provides contiguous pages, and the offset of the object in each page. Any thread may get and put
 * objects: the pool has no owner (`no_owner`), so each call takes the pool's lock once, for all its objects.
 * Objects are identified by address. objects_put() refuses an object that is in the pool already or does not
 * belong to it, and puts all others. Functions return 0 or a negative errno, which pagepool_last_error()
 * explains, unless stated otherwise.
 */
#include <stdint.h>

#include <pagepool.h>

_Static_assert(sizeof(void *) == sizeof(uint64_t), "a pointer to an object is an address of the pool");

struct objects {
    uintptr_t base;
    uint32_t pages, order; /* number of pages, and log2 of the base pages (4096 bytes) in each */
    struct pagepool_arena *arena;
    struct pagepool *pool;
};

/* The device address of a page is the address of its object, `header` bytes after the page's start. So the
 * pool writes and reads DPDK's arrays of objects. */
static int map_objects(void *header, const struct pagepool_region *region, uint64_t *addr)
{
    *addr = (uintptr_t)region->cpu_addr + (uintptr_t)header;
    return 0;
}

static void unmap_objects(void *header, const struct pagepool_region *region, uint64_t addr)
{
    (void)header, (void)region, (void)addr;
}

/* Creates a pool over the memory that `base`, `pages` and `order` describe. After a failure, objects_close()
 * frees what was created. */
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

/* Destroys the pool. First returns the objects that are out: it tries every page, and the pool refuses the
 * others. The memory may be gone already: the pool's records lie elsewhere. */
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
