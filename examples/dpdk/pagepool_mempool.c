/*
 * The mempool driver "pagepool" runs unmodified DPDK programs over pools.
 *
 *     dpdk-testpmd -d ./librte_mempool_pagepool.so ... -- --mbuf-pool-ops-name=pagepool
 *
 * What   An object is a page of a pool: DPDK's header first, then the element. pool_objects.h manages a pool.
 *        DPDK provides the memory in areas, each of which becomes a pool.
 * Why    One pool per area, not one per lcore: DPDK promises that any lcore can get any object of a mempool.
 * Cost   See docs/notes/0011-dpdk-mempool.md.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_mempool.h>
#include <rte_spinlock.h>

#include "pool_objects.h"

RTE_LOG_REGISTER(pagepool_logtype, mempool.pagepool, NOTICE);
#define DRIVER_LOG(level, ...) rte_log(RTE_LOG_##level, pagepool_logtype, "PAGEPOOL: " __VA_ARGS__)

/* Whether this is the primary process, and a mempool uses this driver. */
static int primary;

/* A mempool's pool_data, in this process's memory: a secondary process must not follow the pointer. */
struct driver {
    uint32_t n_chunks, n_pages;
    uint32_t order, shift;    /* log2 of a page's base pages, log2 of its bytes */
    uint32_t header;          /* bytes from the start of a page to the object */
    uint32_t spread;          /* objects begin 0 to spread - 1 cache lines later; a power of two */
    uint32_t last;            /* index of the chunk that served the last get; any thread writes it */
    struct objects only;      /* the chunk, if there is one and no spread; otherwise without a pool */
    uint64_t refused;         /* puts of an object that was in the mempool already, or is another's */
    struct objects *chunks;   /* sorted by address */
    char name[RTE_MEMPOOL_NAMESIZE];
    TAILQ_ENTRY(driver) next;
};

static TAILQ_HEAD(, driver) all = TAILQ_HEAD_INITIALIZER(all);
static rte_spinlock_t all_lock = RTE_SPINLOCK_INITIALIZER;

/* ---- Get and put ---- */

/* The offset that spread adds to an object. It differs between pages, because equal offsets share few sets of
 * a CPU's caches. */
static uintptr_t shift_in_page(const struct driver *driver, uintptr_t page)
{
    return (page & (driver->spread - 1)) * RTE_CACHE_LINE_SIZE;
}

/* The chunk that contains an object, or NULL. */
static struct objects *chunk_of(const struct driver *driver, uintptr_t object)
{
    uint32_t low = 0, high = driver->n_chunks;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        struct objects *chunk = &driver->chunks[middle];
        if (object < chunk->base)
            high = middle;
        else if (((object - chunk->base) >> driver->shift) >= chunk->pages)
            low = middle + 1;
        else
            return chunk;
    }
    return NULL;
}

/* Gets up to n objects from one chunk. Returns their number. */
static unsigned int get_objects(struct driver *driver, struct objects *chunk, void **objects, unsigned int n)
{
    unsigned int had = objects_get(chunk, objects, n);
    if (likely(driver->spread == 1))
        return had;
    for (unsigned int i = 0; i < had; ++i) {
        uintptr_t page = ((uintptr_t)objects[i] - chunk->base) >> driver->shift;
        objects[i] = (char *)objects[i] + shift_in_page(driver, page);
    }
    return had;
}

static void count_refused(struct driver *driver)
{
    __atomic_fetch_add(&driver->refused, 1, __ATOMIC_RELAXED);
}

/* Puts objects into their pools, with one call for successive objects of a chunk. Refuses an object that is
 * in its pool already, or in no chunk, and puts all others. */
static __rte_noinline void put_objects(struct driver *driver, void *const *objects, unsigned int n)
{
    for (unsigned int i = 0, next; i < n; i = next) {
        struct objects *chunk = chunk_of(driver, (uintptr_t)objects[i]);
        for (next = i + 1; next < n && chunk_of(driver, (uintptr_t)objects[next]) == chunk; ++next)
            ;
        if (chunk == NULL || objects_put(chunk, &objects[i], next - i) < 0)
            count_refused(driver);
    }
}

static struct driver *driver_of(const struct rte_mempool *mp)
{
    return likely(primary) ? mp->pool_data : NULL;
}

/* Gets all n objects or none; the first `had` are there already. */
static __rte_noinline int get_rest(struct driver *driver, void **objects, unsigned int n, unsigned int had)
{
    if (driver == NULL)
        return -ENOTSUP;
    if (driver->only.pool != NULL) {
        put_objects(driver, objects, had);
        return -ENOBUFS;
    }
    uint32_t at = __atomic_load_n(&driver->last, __ATOMIC_RELAXED);
    for (uint32_t tried = 0; tried < driver->n_chunks; ++tried) {
        had += get_objects(driver, &driver->chunks[at], objects + had, n - had);
        if (likely(had == n))
            return 0;
        at = at + 1 < driver->n_chunks ? at + 1 : 0;
        __atomic_store_n(&driver->last, at, __ATOMIC_RELAXED);
    }
    put_objects(driver, objects, had);
    return -ENOBUFS;
}

/* Gets all n objects or none. */
static int pagepool_ops_dequeue(struct rte_mempool *mp, void **objects, unsigned int n)
{
    struct driver *driver = driver_of(mp);
    unsigned int had = 0;
    if (likely(driver != NULL && driver->only.pool != NULL)) {
        had = objects_get(&driver->only, objects, n);
        if (likely(had == n))
            return 0;
    }
    return get_rest(driver, objects, n, had);
}

static int pagepool_ops_enqueue(struct rte_mempool *mp, void *const *objects, unsigned int n)
{
    struct driver *driver = driver_of(mp);
    if (unlikely(driver == NULL))
        return -ENOTSUP;
    if (unlikely(driver->only.pool == NULL))
        put_objects(driver, objects, n);
    else if (unlikely(objects_put(&driver->only, objects, n) < 0))
        count_refused(driver);
    return 0;
}

/* ---- Counts ---- */

/* The number of objects that are not in the pools. It is exact only while no lcore gets or puts. */
static unsigned int pages_out(struct driver *driver)
{
    unsigned int out = 0;
    for (uint32_t at = 0; at < driver->n_chunks; ++at) {
        struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
        if (pagepool_read_buffer_locations(driver->chunks[at].pool, &places) == 0)
            out += (unsigned int)places.out;
    }
    return out;
}

static unsigned int pagepool_ops_get_count(const struct rte_mempool *mp)
{
    struct driver *driver = driver_of(mp);
    return driver == NULL ? 0 : driver->n_pages - pages_out(driver);
}

/* Logs where the objects are, and counts of the pools. `cached` objects are in DPDK's caches. */
static void report(struct driver *driver, const char *when, unsigned int cached)
{
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    uint64_t gets = 0, puts = 0;
    for (uint32_t at = 0; at < driver->n_chunks; ++at) {
        if (pagepool_read_stats(driver->chunks[at].pool, &stats) < 0)
            continue;
        gets += stats.alloc_fast + stats.alloc_slow + stats.alloc_slow_high_order + stats.alloc_refill;
        puts += stats.recycle_cached + stats.recycle_ring + stats.recycle_ring_full;
    }
    unsigned int out = pages_out(driver);
    DRIVER_LOG(INFO,
        "%s: mempool %s: %u objects in pages of %u bytes, %u in the pool, %u cached, %u missing; %" PRIu64
        " gets, %" PRIu64 " puts, %" PRIu64 " refused\n",
        when, driver->name, driver->n_pages, 1U << driver->shift,
        driver->n_pages - out, cached, out - cached, gets, puts, driver->refused);
    if (driver->refused != 0)
        DRIVER_LOG(ERR,
            "mempool %s: refused %" PRIu64 " puts of objects already in it, or of another mempool\n",
            driver->name, driver->refused);
}

/* ---- Creation and end ---- */

/* Counts the missing objects before rte_mempool_free() gets every object and calls the driver. */
static void before_free(enum rte_mempool_event event, struct rte_mempool *mp, void *arg __rte_unused)
{
    if (event != RTE_MEMPOOL_EVENT_DESTROY)
        return;
    struct driver *driver;
    rte_spinlock_lock(&all_lock);
    TAILQ_FOREACH(driver, &all, next)
        if (driver == mp->pool_data)
            break;
    rte_spinlock_unlock(&all_lock);
    if (driver == NULL)
        return;
    unsigned int cached = 0;
    if (mp->cache_size != 0)
        for (unsigned int lcore = 0; lcore < RTE_MAX_LCORE; ++lcore)
            cached += mp->local_cache[lcore].len;
    report(driver, "freed", cached);
}

/*
 * Makes the object as large as its page, which is at least the requested size. Some drivers, such as
 * net_af_xdp for its UMEM, require objects without gaps between them. DPDK's padding between objects would
 * break that, and so does PAGEPOOL_SPREAD, which suits only other drivers: it makes every object smaller by
 * the largest shift.
 */
static int fit_to_page(struct rte_mempool *mp, struct driver *driver)
{
    struct rte_mempool_objsz size;
    uint32_t flags = mp->flags | RTE_MEMPOOL_F_NO_SPREAD;
    uint32_t total = rte_mempool_calc_obj_size(mp->elt_size, flags, &size);
    for (driver->order = 0; driver->order <= 10 && ((uint32_t)4096 << driver->order) < total; ++driver->order)
        ;
    if (driver->order > 10) {
        DRIVER_LOG(ERR, "mempool %s: an object of %u bytes exceeds the largest page, %u bytes\n", mp->name,
            total, 4096U << 10);
        return -EINVAL;
    }
    uint32_t left = ((uint32_t)4096 << driver->order) - total;
    const char *spread = getenv("PAGEPOOL_SPREAD");
    driver->spread = 1;
    if (spread != NULL && strcmp(spread, "1") == 0)
        driver->spread = RTE_MIN(16U, rte_align32prevpow2(left / RTE_CACHE_LINE_SIZE + 1));
    rte_mempool_calc_obj_size(size.elt_size + left - (driver->spread - 1) * RTE_CACHE_LINE_SIZE, flags,
        &size);
    mp->flags = flags;
    mp->elt_size = size.elt_size;
    mp->trailer_size = size.trailer_size;
    driver->shift = 12 + driver->order;
    driver->header = size.header_size;
    return 0;
}

static int pagepool_ops_alloc(struct rte_mempool *mp)
{
    struct driver *driver = calloc(1, sizeof(*driver));
    if (driver == NULL)
        return -ENOMEM;
    int done = fit_to_page(mp, driver);
    if (done < 0) {
        free(driver);
        return done;
    }
    primary = rte_eal_process_type() == RTE_PROC_PRIMARY;
    memcpy(driver->name, mp->name, sizeof(driver->name));
    mp->pool_data = driver;
    rte_mempool_event_callback_register(before_free, NULL); /* fails if it is registered already */
    rte_spinlock_lock(&all_lock);
    TAILQ_INSERT_TAIL(&all, driver, next);
    rte_spinlock_unlock(&all_lock);
    return 0;
}

static void free_chunks(struct driver *driver)
{
    for (uint32_t at = 0; at < driver->n_chunks; ++at)
        objects_close(&driver->chunks[at]);
    free(driver->chunks);
    driver->chunks = NULL;
    driver->only = (struct objects){0};
    driver->n_chunks = driver->n_pages = driver->last = 0;
}

static void pagepool_ops_free(struct rte_mempool *mp)
{
    struct driver *driver = driver_of(mp);
    if (driver == NULL)
        return;
    rte_spinlock_lock(&all_lock);
    TAILQ_REMOVE(&all, driver, next);
    rte_spinlock_unlock(&all_lock);
    free_chunks(driver);
    free(driver);
    mp->pool_data = NULL;
}

/* ---- Memory ---- */

static ssize_t pagepool_ops_calc_mem_size(const struct rte_mempool *mp, uint32_t n, uint32_t page_shift,
    size_t *min_chunk, size_t *align)
{
    const struct driver *driver = mp->pool_data;
    size_t page = (size_t)1 << driver->shift;
    *align = 4096;
    *min_chunk = RTE_MAX(page, (size_t)1 << page_shift);
    return (ssize_t)(n * page);
}

/* Adds a chunk to the others, sorted by address. */
static int add_chunk(struct driver *driver, const struct objects *chunk)
{
    struct objects *chunks = realloc(driver->chunks, (driver->n_chunks + 1) * sizeof(*chunks));
    if (chunks == NULL)
        return -ENOMEM;
    driver->chunks = chunks;
    uint32_t at = driver->n_chunks;
    for (; at > 0 && chunks[at - 1].base > chunk->base; --at)
        chunks[at] = chunks[at - 1];
    chunks[at] = *chunk;
    ++driver->n_chunks;
    driver->n_pages += chunk->pages;
    driver->only = driver->n_chunks == 1 && driver->spread == 1 ? *chunk : (struct objects){0};
    return 0;
}

/* Adds an area of memory. Returns the number of its objects, which all start in the pool. */
static int pagepool_ops_populate(struct rte_mempool *mp, unsigned int max, void *memory, rte_iova_t iova,
    size_t len, rte_mempool_populate_obj_cb_t *add_object, void *arg)
{
    struct driver *driver = driver_of(mp);
    uintptr_t base = RTE_ALIGN_CEIL((uintptr_t)memory, 4096);
    size_t skipped = base - (uintptr_t)memory;
    if (driver == NULL)
        return -ENOTSUP;
    size_t pages = len < skipped ? 0 : (len - skipped) >> driver->shift;
    struct objects chunk = {.base = base, .order = driver->order};
    chunk.pages = (uint32_t)RTE_MIN((size_t)max, pages);
    if (chunk.pages == 0)
        return 0;
    if (mp->populated_size == 0)
        free_chunks(driver); /* left by a failed attempt; their memory is gone */
    int done = objects_open(&chunk, driver->name, driver->header);
    if (done == 0)
        done = add_chunk(driver, &chunk); /* DPDK populates a mempool before it is used */
    if (done < 0) {
        DRIVER_LOG(ERR, "mempool %s: cannot create a pool over %u pages: %s\n", mp->name, chunk.pages,
            done == -ENOMEM ? "out of memory" : pagepool_last_error());
        objects_close(&chunk);
        return done;
    }
    for (uint32_t page = 0; page < chunk.pages; ++page) {
        size_t at = ((size_t)page << driver->shift) + driver->header + shift_in_page(driver, page);
        add_object(mp, arg, (void *)(base + at), iova == RTE_BAD_IOVA ? RTE_BAD_IOVA : iova + skipped + at);
    }
    return (int)chunk.pages;
}

static const struct rte_mempool_ops pagepool_ops = {
    .name = "pagepool",
    .alloc = pagepool_ops_alloc,
    .free = pagepool_ops_free,
    .enqueue = pagepool_ops_enqueue,
    .dequeue = pagepool_ops_dequeue,
    .get_count = pagepool_ops_get_count,
    .calc_mem_size = pagepool_ops_calc_mem_size,
    .populate = pagepool_ops_populate,
};

RTE_MEMPOOL_REGISTER_OPS(pagepool_ops);

/* Reports the mempools that still exist at exit. DPDK's caches may be gone by now. */
RTE_FINI(pagepool_at_exit)
{
    struct driver *driver;
    TAILQ_FOREACH(driver, &all, next)
        report(driver, "at exit", 0);
}
