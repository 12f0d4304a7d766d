/*
 * pagepool: a user-space page pool for packet buffers. Generated; see docs/c-api.md for the whole picture.
 *
 * Handles are tokens, not addresses: one that is NULL, stale, of another kind or made up is refused with -EINVAL or -ESTALE,
 * in every build, and nothing is touched. Functions give 0 or a negative errno unless they say otherwise; after a refusal
 * pagepool_last_error gives a sentence. Nothing throws or unwinds.
 *
 * A pool has one owner, the thread that called pagepool_bind: it allocates. Any thread may return a buffer. Two threads that
 * return one buffer at the same time: one is told 0, the other -ESTALE. Signal handlers must not call the library.
 */

#ifndef PAGEPOOL_H
#define PAGEPOOL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

/**
 * Any node.
 */
#define PAGEPOOL_NODE_ANY -1

/**
 * The node of the thread that makes an arena grow.
 */
#define PAGEPOOL_NODE_LOCAL -2

/**
 * The default: anonymous memory for which the kernel may use transparent huge pages.
 */
#define PAGEPOOL_BACKING_DEFAULT 0

/**
 * Anonymous memory in pages of 4 KiB.
 */
#define PAGEPOOL_BACKING_ANONYMOUS_4K 1

/**
 * Anonymous memory for which the kernel may use transparent huge pages.
 */
#define PAGEPOOL_BACKING_TRANSPARENT_HUGE 2

/**
 * hugetlb pages of 2 MiB.
 */
#define PAGEPOOL_BACKING_HUGE_2M 3

/**
 * hugetlb pages of 1 GiB.
 */
#define PAGEPOOL_BACKING_HUGE_1G 4

/**
 * A memfd, which a peer process can map.
 */
#define PAGEPOOL_BACKING_MEMFD 5

/**
 * A memfd of hugetlb pages of 2 MiB.
 */
#define PAGEPOOL_BACKING_MEMFD_HUGE 6

/**
 * Memory that the caller has: `memory` and `max_bytes`.
 */
#define PAGEPOOL_BACKING_CALLER 7

/**
 * Memory of a device, that the CPU cannot read: numbers and device addresses only.
 */
#define PAGEPOOL_BACKING_DEVICE 8

/**
 * It stays, and the round ends: right where users finish in the order in which buffers were queued.
 */
#define PAGEPOOL_ON_BUSY_KEEP 0

/**
 * It stays, and the round looks past it: right where one buffer may be in use for long.
 */
#define PAGEPOOL_ON_BUSY_SKIP 1

/**
 * It leaves the queue, one a round, and its page leaves the pool; its memory goes back once the user is done.
 */
#define PAGEPOOL_ON_BUSY_RELEASE 2

/**
 * No thread has a lane home.
 */
#define PAGEPOOL_NO_LANES UINT32_MAX

/**
 * A source of pages, shared by pools: made by pagepool_arena_create.
 */
struct pagepool_arena;

/**
 * A page of a pool, or a fragment of one: allocated by the owner, returned by any thread, once.
 */
struct pagepool_buf;

/**
 * Somebody who uses buffers and only says whether one is in use still: made by pagepool_deferred_user_create.
 */
struct pagepool_deferred_user;

/**
 * An address space that a device sees: made by pagepool_domain_create and its kin.
 */
struct pagepool_domain;

/**
 * A reference to a page's memory: made by pagepool_buf_page_ref.
 */
struct pagepool_page_ref;

/**
 * A pool: made by pagepool_create, over with pagepool_destroy.
 */
struct pagepool;

/**
 * One reader's share of a buffer: made by pagepool_buf_share.
 */
struct pagepool_shared;

/**
 * The end of a pool, watched: made by pagepool_destroy_watched.
 */
struct pagepool_shutdown;

/**
 * Where packets for stacks have their descriptions: made by pagepool_skb_cache_create.
 */
struct pagepool_skb_cache;

/**
 * A packet for stacks: made by pagepool_skb_from_buf and pagepool_skb_alloc, over with pagepool_skb_put.
 */
struct pagepool_skb;

/**
 * What an arena shall be. Begin with PAGEPOOL_ARENA_PARAMS_INIT, or with zeroes and `size`.
 */
struct pagepool_arena_params {
    /**
     * sizeof(struct pagepool_arena_params), so that the struct can grow.
     */
    size_t size;
    /**
     * Size up to which it grows, a multiple of 4096 (of the huge page for hugetlb kinds); 0: 64 MiB. For the caller's
     * memory, its length.
     */
    uint64_t max_bytes;
    /**
     * The kind of memory, a PAGEPOOL_BACKING_ value; 0: transparent huge pages.
     */
    uint32_t backing;
    /**
     * The node that all of it comes from; PAGEPOOL_NODE_ANY (-1): wherever the process's policy puts it;
     * PAGEPOOL_NODE_LOCAL (-2): that of the thread that makes it grow. Without effect on pretended nodes.
     */
    int node;
    /**
     * Nodes to pretend, for tests, 1 to 255; 0: those of the machine.
     */
    uint32_t nodes;
    /**
     * 1: an error where there are no huge pages. 0: smaller ones, and the description says so.
     */
    uint32_t huge_or_fail;
    /**
     * On which pretended node a page lies. NULL: the arena lies in as many equal stretches. Called when memory is
     * committed, on whichever thread; it must not call the library. A page of order k exists where all its base pages are
     * on one node.
     */
    uint32_t (*node_of_page)(uint32_t page_index, void *arg);
    /**
     * Its second argument.
     */
    void *arg;
    /**
     * Name in descriptions, and of the memfd; copied. NULL: "arena".
     */
    const char *name;
    /**
     * PAGEPOOL_BACKING_CALLER: the memory, a multiple of 4096; the caller's to free after the arena and its pools.
     */
    void *memory;
    /**
     * 1: take the memory of a region when it is committed, not when it is touched.
     */
    uint32_t prefault;
    /**
     * 1: lock the memory.
     */
    uint32_t mlock;
    /**
     * 1: commit everything now and keep it, for domains that need the arena as it is (an AF_XDP UMEM).
     */
    uint32_t commit_all;
    /**
     * 1: a child of fork has the memory too.
     */
    uint32_t inherit_on_fork;
};

/**
 * A buffer as a device sees it. Plain numbers.
 */
struct pagepool_raw {
    /**
     * Address of the first byte in the pool's first domain.
     */
    uint64_t addr;
    /**
     * Bytes from there on that belong to the buffer.
     */
    uint32_t len;
    /**
     * 0.
     */
    uint32_t reserved;
};

/**
 * Somebody who uses buffers without owning them, and says on request whether one is in use still: a kernel that sends from
 * them, a count kept elsewhere. Callbacks are called inside allocations and polls of the pool's owner, and by whoever asks
 * after the pool once it is destroyed, on any thread. They may use the library, but not unbind or destroy the pool; they
 * must not throw or longjmp, and should take a bounded time. Each gets `arg` first.
 */
struct pagepool_deferred_user_ops {
    /**
     * sizeof(struct pagepool_deferred_user_ops).
     */
    size_t size;
    /**
     * The callbacks' first argument.
     */
    void *arg;
    /**
     * Not 0 while the buffer that was queued with this cookie is in use. Once this says 0 the buffer goes home, so all that
     * was done with the bytes must be over. Required.
     */
    int (*in_use)(void *arg, uint64_t cookie);
    /**
     * Called once before each round of questions, for a user that must look first, at a socket's error queue say. May be NULL.
     */
    void (*refresh)(void *arg);
    /**
     * Called once when nothing waits for the user any more and its handle is put, so that `arg` may be freed. May be NULL.
     */
    void (*release)(void *arg);
};

/**
 * A stretch of an arena, to be mapped as one.
 */
struct pagepool_region {
    /**
     * First byte, counted from the start of the arena.
     */
    uint64_t offset;
    /**
     * Length in bytes, a multiple of 4096.
     */
    uint64_t len;
    /**
     * The CPU's address of the first byte; NULL for memory that the CPU cannot read.
     */
    void *cpu_addr;
    /**
     * Identifies the arena among all of this process.
     */
    uint64_t arena_id;
};

/**
 * A caller's domain. Callbacks are called from any thread, inside any call that makes an arena grow, makes or destroys a
 * pool, or returns a buffer; they may return buffers, and must not throw or longjmp. `map` runs under a lock of the arena: it
 * must not make or destroy pools over that arena, let go of it, or ask for addresses in another domain, for that would wait
 * for itself. Each gets `arg` first.
 */
struct pagepool_domain_ops {
    /**
     * sizeof(struct pagepool_domain_ops).
     */
    size_t size;
    /**
     * Name in errors; copied.
     */
    const char *name;
    /**
     * The callbacks' first argument.
     */
    void *arg;
    /**
     * Maps a region and stores its device address; gives 0, or a negative errno to refuse. Required.
     */
    int (*map)(void *arg, const struct pagepool_region *region, uint64_t *addr);
    /**
     * Undoes map, once. Required.
     */
    void (*unmap)(void *arg, const struct pagepool_region *region, uint64_t addr);
    /**
     * Hands bytes to the device; required unless `coherent`.
     */
    void (*sync_for_device)(void *arg, uint64_t addr, size_t len);
    /**
     * Hands bytes to the CPU; required unless `coherent`.
     */
    void (*sync_for_cpu)(void *arg, uint64_t addr, size_t len);
    /**
     * Called once when nothing uses the domain any more, so that `arg` may be freed. May be NULL.
     */
    void (*release)(void *arg);
    /**
     * 1: device and CPU see one memory; no syncs.
     */
    uint32_t coherent;
    /**
     * 1: the arena must stay as it is while it is mapped here, as an AF_XDP UMEM.
     */
    uint32_t fixes_arena;
};

/**
 * What a pool shall be. Begin with PAGEPOOL_PARAMS_INIT, or with zeroes and `size`. 0 stands for the default, except
 * where 0 is a value of its own (`nid`, `colour`).
 */
struct pagepool_params {
    /**
     * sizeof(struct pagepool_params), so that the struct can grow.
     */
    size_t size;
    /**
     * Where the pages come from. Required.
     */
    struct pagepool_arena *arena;
    /**
     * Names the pool in reports and errors; copied. NULL: "pool".
     */
    const char *name;
    /**
     * log2 of 4096-byte pages per page, 0 to 10.
     */
    uint32_t order;
    /**
     * Slots in the locked ring; 0: 1024. More than 16384 is clamped to that. Linux: pool_size.
     */
    uint32_t ring_size;
    /**
     * Pages in the owner's cache, 1 to 1024; 0: twice `refill`.
     */
    uint32_t cache_size;
    /**
     * Pages that one refill brings at most, 1 to 256 and the cache; 0: Linux's 64, 16 or 4, by order.
     */
    uint32_t refill;
    /**
     * The node that pages should be on; -1: that of the thread that refills, asked each time.
     */
    int nid;
    /**
     * Fragments begin at multiples of this, a power of two from 8 to 4096; 0: 64.
     */
    uint32_t frag_align;
    /**
     * 1: packets begin up to 15 cache lines later from page to page, in what a page leaves over. 0: they do not.
     */
    uint32_t colour;
    /**
     * Threads that may have a lane home at once, 1 to 64; 0: 16. PAGEPOOL_NO_LANES: every return elsewhere takes the ring.
     */
    uint32_t max_lanes;
    /**
     * Slots in a lane, a power of two from 2 to 16384; 0: 1024.
     */
    uint32_t lane_size;
    /**
     * Bytes kept free before the packet in a whole page. Linux: offset.
     */
    uint32_t headroom;
    /**
     * Most bytes of packet in a whole page, and most that are synced for the device; 0: all that is left.
     */
    uint32_t max_len;
    /**
     * Bytes kept free after the packet in a whole page.
     */
    uint32_t tailroom;
    /**
     * Address spaces that every page is mapped in, `n_domains` of them; the first is the one of dma_addr. The pool keeps
     * them: the handles may be put at once.
     */
    struct pagepool_domain *const *domains;
    /**
     * How many.
     */
    size_t n_domains;
    /**
     * 1: sync pages for the device when they join and come home, in domains that are not coherent. Linux:
     * PP_FLAG_DMA_SYNC_DEV.
     */
    uint32_t sync_for_device;
    /**
     * Fewer pages than this left to have: the owner counts as starved. 0: never, but for a failed allocation.
     */
    uint32_t low_water;
    /**
     * 1: make the descriptor that pagepool_wake_fd gives.
     */
    uint32_t wakeup;
    /**
     * 1: record who holds buffers (pagepool_buf_set_tag), for the report of a destroyed pool.
     */
    uint32_t tagging;
    /**
     * 1: reserve pages without naming a node. For measuring what that costs.
     */
    uint32_t node_blind;
    /**
     * Buffers that may wait for users who only say whether they are in use still (pagepool_defer), up to 65536; 0: none.
     */
    uint32_t defer_capacity;
    /**
     * What a refill does about a buffer that has waited longest and is in use still: PAGEPOOL_ON_BUSY_KEEP, _SKIP, _RELEASE.
     */
    uint32_t on_busy;
    /**
     * With PAGEPOOL_ON_BUSY_SKIP: buffers in use that one round looks past, 1 to 64.
     */
    uint32_t skip_ahead;
};

/**
 * Where a pool's pages are. The sum is pagepool_inflight when the pool is at rest.
 */
struct pagepool_buffer_locations {
    /**
     * Pages that joined and have not left.
     */
    int64_t total;
    /**
     * In the owner's cache.
     */
    uint64_t cache;
    /**
     * In lanes, on their way home.
     */
    uint64_t lanes;
    /**
     * In the ring.
     */
    uint64_t ring;
    /**
     * The page that fragments are being cut from.
     */
    uint64_t frag;
    /**
     * With the program, and waiting (pagepool_defer).
     */
    uint64_t out;
};

/**
 * The tables of the inline functions.
 */
struct pagepool_inline_ {
    const void *views;
    const void *directory;
    uint64_t view_mask;
};

/**
 * What a pool has done so far, under Linux's names (struct page_pool_alloc_stats, page_pool_recycle_stats).
 */
struct pagepool_stats {
    /**
     * Pages handed out from the cache, and fragment pages that are cut again in place.
     */
    uint64_t alloc_fast;
    /**
     * Pages returned into the cache on the owner's thread, and fragment pages that are cut again in place.
     */
    uint64_t recycle_cached;
    /**
     * Slow-path allocations that the provider served; each brings up to `refill` pages.
     */
    uint64_t alloc_slow;
    /**
     * Pages of order above 0 that the provider gave.
     */
    uint64_t alloc_slow_high_order;
    /**
     * Refills that found no page: cache, lanes and ring were empty, and no deferred page was done.
     */
    uint64_t alloc_empty;
    /**
     * Refills that found at least one page in lanes, ring or deferred queue; one per refill.
     */
    uint64_t alloc_refill;
    /**
     * Pages released because they lie on the wrong memory node. At most one per look at lanes and ring; an
     * allocation looks once, or twice in a pool with `wakeup`.
     */
    uint64_t alloc_waive;
    /**
     * Allocations that failed. Linux has no such counter.
     */
    uint64_t alloc_failed;
    /**
     * Pages that found the cache full. Each is counted again, under `recycle_ring` or `recycle_ring_full`.
     */
    uint64_t recycle_cache_full;
    /**
     * Pages returned into the ring or a lane.
     */
    uint64_t recycle_ring;
    /**
     * Pages that found ring and lane full and left the pool. One per page; for bulk returns Linux counts
     * calls.
     */
    uint64_t recycle_ring_full;
    /**
     * Pages that left the pool on return, because somebody has a reference to them or they are from the
     * emergency reserve.
     */
    uint64_t recycle_released_refcnt;
    /**
     * Pages that joined the pool.
     */
    uint64_t hold;
    /**
     * Pages that left the pool.
     */
    uint64_t release;
};

/**
 * What a pool's deferred queue has done so far.
 */
struct pagepool_deferred_stats {
    /**
     * Buffers in the queue now, and released ones that are still in use.
     */
    uint64_t pending;
    /**
     * Buffers put into the deferred queue.
     */
    uint64_t queued;
    /**
     * Buffers that returned to the pool because their user was done.
     */
    uint64_t reused;
    /**
     * Rounds of polling that ended at a buffer in use and left it in the queue.
     */
    uint64_t kept;
    /**
     * Buffers in use that a round passed over, to look at those behind.
     */
    uint64_t skipped;
    /**
     * Buffers that left the queue while in use. Their page leaves the pool; its memory stays until the user
     * is done.
     */
    uint64_t released;
    /**
     * Released buffers whose user is done, so that their memory went back to the provider.
     */
    uint64_t freed_late;
    /**
     * Buffers refused because the queue was full.
     */
    uint64_t full;
    /**
     * Rounds of polling with a buffer in the queue.
     */
    uint64_t polls;
    /**
     * Buffers still in use when the last observer of the pool's end went away. Their memory is never used
     * again.
     */
    uint64_t leaked;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes an arena: reserves the addresses, and commits the first region, or all with `commit_all`.
 *
 * Thread: any. Ownership: `*arena` is the caller's, to be destroyed once; the params stay the caller's, and what
 * `memory` and `arg` point to must live as long as the arena and its pools. Errors: -EINVAL names the field, its value and
 * its range; else the errno of the system call that failed, and the sentence says the remedy; `*arena` is then unchanged.
 * Cost: a few system calls; with `prefault` or `mlock`, the time to clear the memory.
 */
int pagepool_arena_create(const struct pagepool_arena_params *params,
                          struct pagepool_arena **arena);

/**
 * Lets go of an arena. Its memory goes back to the system when its last pool is freed, now if there is none.
 *
 * Thread: any. Ownership: the handle is over. Errors: -EINVAL, -ESTALE. Cost: with the last pool gone, system calls.
 */
int pagepool_arena_put(struct pagepool_arena *arena);

/**
 * Says in one line what the arena is and what of the wishes was not to be had, cut to `len` bytes and ended with a zero
 * byte. Gives the full length.
 *
 * Thread: any. Errors: -EINVAL, -ESTALE. Cost: formats.
 */
int64_t pagepool_arena_describe(struct pagepool_arena *arena,
                                char *text,
                                size_t len);

/**
 * Base pages of 4096 bytes that pools have.
 *
 * Thread: any. Errors: -EINVAL, -ESTALE. Cost: a lock.
 */
int64_t pagepool_arena_pages_out(struct pagepool_arena *arena);

/**
 * Gives regions of which no page is out and that no domain maps back to the system; says how many bytes.
 *
 * Thread: any. Errors: -EOPNOTSUPP for device memory; -EINVAL, -ESTALE. Cost: system calls.
 */
int64_t pagepool_arena_trim(struct pagepool_arena *arena);

/**
 * The descriptor of a memfd arena, for a peer process: offsets in the file are offsets in the arena.
 *
 * Thread: any. Ownership: the descriptor is the arena's; duplicate it to keep it. Errors: -EOPNOTSUPP for an arena without
 * one; -EINVAL, -ESTALE. Cost: a lock.
 */
int pagepool_arena_memfd(struct pagepool_arena *arena);

/**
 * On pretended nodes: every thread runs on this one from now on. It is 0 to begin with.
 *
 * Thread: any. Errors: -EINVAL, -ESTALE. Cost: a lock.
 */
int pagepool_arena_set_current_node(struct pagepool_arena *arena, int nid);

/**
 * Address of the arena's first byte; page i begins 4096 * i behind it. NULL for device memory and bad handles.
 *
 * Thread: any. Cost: a lock.
 */
void *pagepool_arena_base(struct pagepool_arena *arena);

/**
 * The device is gone: unmaps every region of the arena from its domain now, whoever still uses it. Buffers that are out stay
 * valid for the CPU, have no address there any more, and are not unmapped a second time when they come home.
 *
 * Thread: any. Errors: -ENODEV where the arena was not mapped there; -EINVAL, -ESTALE. Cost: a lock, and the domain's unmap.
 */
int pagepool_arena_device_gone(struct pagepool_arena *arena,
                               struct pagepool_domain *domain);

/**
 * Returns a buffer to its pool: into the cache on the owner's thread, else through this thread's lane or the ring.
 * Linux: page_pool_put_full_page, the locality found by itself.
 *
 * Thread: any. Ownership: the handle is over. Errors: -ESTALE for a buffer that was returned before, -EINVAL for what never
 * was one; nothing is touched then. Cost: on the owner's thread some fifteen instructions and, while no other thread ever
 * returned a buffer of this pool, no atomic operation (then one); elsewhere one compare-and-swap and a store.
 */
int pagepool_buf_put(struct pagepool_buf *buf);

/**
 * Returns a buffer through the locked ring, whatever the thread. Linux: page_pool_put_full_page outside softirq.
 *
 * Thread: any. Ownership and errors: as pagepool_buf_put. Cost: a lock.
 */
int pagepool_buf_put_ring(struct pagepool_buf *buf);

/**
 * Returns a buffer that was written in its first `dirty` packet bytes at most, so that no more is synced for the device.
 * Linux: page_pool_put_page with a dma_sync_size.
 *
 * Thread, ownership, errors, cost: as pagepool_buf_put, and the sync.
 */
int pagepool_buf_put_sync(struct pagepool_buf *buf,
                          size_t dirty);

/**
 * Returns a buffer of this pool into its cache. Linux: page_pool_recycle_direct.
 *
 * Thread: the owner's. Ownership: the handle is over, unless it is refused. Errors: -EPERM from another thread; -EINVAL for
 * another pool's buffer; else as pagepool_buf_put. Cost: as that.
 */
int pagepool_recycle_direct(struct pagepool *pool,
                            struct pagepool_buf *buf);

/**
 * Start of the page or fragment; NULL for memory that the CPU cannot read, or a bad handle. Linux: page_address.
 *
 * Thread: whoever has the buffer. Ownership: the bytes are the caller's until the buffer is returned. Cost: a lookup.
 */
void *pagepool_buf_data(struct pagepool_buf *buf);

/**
 * True size in bytes: the page's, or the fragment's with what was given to it at the end of its page; 0 for a bad handle.
 * Linux: truesize.
 *
 * Thread: whoever has the buffer. Cost: a lookup.
 */
size_t pagepool_buf_len(struct pagepool_buf *buf);

/**
 * Offset of the fragment in its page, 0 for a whole page; SIZE_MAX for a bad handle.
 *
 * Thread: whoever has the buffer. Cost: a lookup.
 */
size_t pagepool_buf_offset(struct pagepool_buf *buf);

/**
 * Device address of the first byte, in the pool's first domain; UINT64_MAX in a pool without domains, when the device has
 * gone, or for a bad handle. Linux: page_pool_get_dma_addr plus the offset.
 *
 * Thread: whoever has the buffer. Cost: a lookup.
 */
uint64_t pagepool_buf_dma_addr(struct pagepool_buf *buf);

/**
 * Number of the page in its arena, counted in 4096 bytes; of the first one for a page of a higher order, of the page for
 * a fragment. UINT32_MAX for a bad handle.
 *
 * Thread: whoever has the buffer. Cost: a lookup.
 */
uint32_t pagepool_buf_page_index(struct pagepool_buf *buf);

/**
 * 1 for a fragment of a page, 0 for a whole one, else -EINVAL or -ESTALE.
 *
 * Thread: whoever has the buffer. Cost: a lookup.
 */
int pagepool_buf_is_frag(struct pagepool_buf *buf);

/**
 * Where the packet begins: after the headroom and the page's colour; the start of a fragment. NULL as for pagepool_buf_data.
 *
 * Thread: whoever has the buffer. Cost: a lookup.
 */
void *pagepool_buf_packet(struct pagepool_buf *buf);

/**
 * Most bytes of packet there: `max_len` of a whole page, all of a fragment; 0 for a bad handle.
 *
 * Thread: whoever has the buffer. Cost: a lookup.
 */
size_t pagepool_buf_packet_capacity(struct pagepool_buf *buf);

/**
 * Hands `len` bytes from `offset` in the buffer to the CPU, in every domain that is not coherent.
 * Linux: page_pool_dma_sync_for_cpu.
 *
 * Thread: whoever has the buffer. Errors: -EINVAL, -ESTALE. Cost: nothing in coherent domains, else the domains'.
 */
int pagepool_buf_sync_for_cpu(struct pagepool_buf *buf,
                              size_t offset,
                              size_t len);

/**
 * Hands `len` bytes from `offset` in the buffer to the device, before it is transmitted.
 *
 * Thread: whoever has the buffer. Errors: -EINVAL, -ESTALE. Cost: as above.
 */
int pagepool_buf_sync_for_device(struct pagepool_buf *buf, size_t offset, size_t len);

/**
 * Returns `n` buffers, of any pools. Linux: page_pool_put_netmem_bulk, without its limit.
 *
 * Thread: any. Ownership: every handle is over; the array stays the caller's, unchanged. Errors: that of the first handle
 * that was refused; all others are returned all the same. -EINVAL for a NULL array. Cost: per buffer as pagepool_buf_put
 * without the call; elsewhere than on the owner's thread the checks are made once per pool.
 */
int pagepool_buf_put_bulk(struct pagepool_buf **bufs,
                          size_t n);

/**
 * As pagepool_buf_put_bulk, through the locked ring of each pool, whatever the thread.
 *
 * Thread, ownership, errors: as that. Cost: a lock per pool and 64 buffers.
 */
int pagepool_buf_put_ring_bulk(struct pagepool_buf **bufs, size_t n);

/**
 * Keeps a page's memory as it is after its buffer went home, until the reference is put: for DMA that nobody can call off. A
 * page that comes home while it is held leaves its pool (`recycle_released_refcnt`). Linux: a page reference beside the
 * pool's.
 *
 * Thread: whoever has the buffer. Ownership: `*page_ref` is the caller's, to be put once; the buffer stays as it is. Errors:
 * -EINVAL, -ESTALE, -ENOMEM. Cost: a lock and two atomic operations.
 */
int pagepool_buf_page_ref(struct pagepool_buf *buf,
                          struct pagepool_page_ref **page_ref);

/**
 * Puts a page reference.
 *
 * Thread: any. Ownership: the handle is over. Errors: -ESTALE for one that was put before, -EINVAL. Cost: a lock and an
 * atomic operation; the last reference to a page that left its pool gives the memory back.
 */
int pagepool_page_ref_put(struct pagepool_page_ref *page_ref);

/**
 * Number of the page that is held; UINT32_MAX for a bad handle.
 *
 * Thread: any. Cost: a lock.
 */
uint32_t pagepool_page_ref_page_index(struct pagepool_page_ref *page_ref);

/**
 * Address of the first byte of the page that is held; NULL for memory that the CPU cannot read, or a bad handle.
 *
 * Thread: any. Cost: a lock.
 */
void *pagepool_page_ref_data(struct pagepool_page_ref *page_ref);

/**
 * Parts with a buffer for its device address, to be put on a descriptor ring; pagepool_from_raw or pagepool_put_addr brings
 * it back.
 *
 * Thread: whoever has the buffer. Ownership: the handle is over, unless it is refused. Errors: -EOPNOTSUPP in a pool without
 * domains, and for a fragment that shares a cache line with another (`frag_align` below 64); -EINVAL, -ESTALE. Cost: a lookup
 * and one or two atomic operations.
 */
int pagepool_buf_into_raw(struct pagepool_buf *buf,
                          struct pagepool_raw *raw);

/**
 * Up to `n` whole pages as device addresses into `addrs`, for a fill ring; says how many were had. As pagepool_alloc_bulk and
 * then pagepool_buf_into_raw, without the handles between.
 *
 * Thread: the owner's. Ownership: the first so many addresses are the caller's, to be brought back by pagepool_from_raw or
 * pagepool_put_addr; the others of `addrs` are unchanged. Errors: 0, or fewer than `n`: no page (-ENOMEM), a pool without
 * domains (-EOPNOTSUPP), another thread (-EPERM), a bad handle; pagepool_last_error says which. Cost: per page as
 * pagepool_alloc_page without the call, and one atomic operation.
 */
size_t pagepool_alloc_addr_bulk(struct pagepool *pool,
                                uint64_t *addrs,
                                size_t n);

/**
 * Makes an address that came back from a descriptor ring a buffer again. It may lie anywhere in the buffer, as devices give
 * it with headroom added. A fragment comes back with its size rounded up to whole cache lines.
 *
 * Thread: any. Ownership: the buffer is the caller's. Errors: NULL for an address that is not the pool's (-EINVAL), or not
 * out in raw form: it came back before (-ESTALE); nothing is changed then. Cost: a lookup and one atomic operation; elsewhere than on
 * the owner's thread a lock too.
 */
struct pagepool_buf *pagepool_from_raw(struct pagepool *pool,
                                       uint64_t addr);

/**
 * Returns a buffer by its device address. Linux: page_pool_free_va, by the device's address.
 *
 * Thread: any; direct on the owner's. Ownership: the address is over. Errors: -EINVAL for an address that is not the
 * pool's, -ESTALE for one that is not out in raw form (it came back before); nothing is changed then. Cost: a
 * lookup and two atomic operations; elsewhere than on the owner's thread a lock too, for nothing else keeps the pool.
 */
int pagepool_put_addr(struct pagepool *pool,
                      uint64_t addr);

/**
 * As pagepool_put_addr, for `n` addresses.
 *
 * Thread: any. Errors: that of the first address that was refused; all others are returned all the same. Cost: per address
 * as that.
 */
int pagepool_put_addr_bulk(struct pagepool *pool,
                           const uint64_t *addrs,
                           size_t n);

/**
 * Makes a buffer shared: it may be read through as many handles as wanted, and goes home with the last one.
 * Linux: page_pool_ref_page.
 *
 * Thread: whoever has the buffer. Ownership: the buffer's handle is over; `*shared` is the caller's, to be put once. Errors:
 * -EINVAL, -ESTALE. Cost: a lock and an atomic operation.
 */
int pagepool_buf_share(struct pagepool_buf *buf,
                       struct pagepool_shared **shared);

/**
 * One more reader.
 *
 * Thread: any. Ownership: `*clone` is the caller's, to be put once. Errors: -EINVAL, -ESTALE, -ENOMEM. Cost: two locks and
 * an atomic operation.
 */
int pagepool_shared_clone(struct pagepool_shared *shared,
                          struct pagepool_shared **clone);

/**
 * One reader less; the last one returns the buffer. Linux: page_pool_put_full_page of a page with references.
 *
 * Thread: any. Ownership: the handle is over. Errors: -ESTALE for one that was put before, -EINVAL. Cost: a lock and an
 * atomic operation; the last one as pagepool_buf_put.
 */
int pagepool_shared_put(struct pagepool_shared *shared);

/**
 * Start of the page or fragment, to be read only; NULL for memory that the CPU cannot read, or a bad handle.
 *
 * Thread: whoever has the handle. Ownership: the bytes are there until the handle is put. Cost: a lock.
 */
const void *pagepool_shared_data(struct pagepool_shared *shared);

/**
 * True size in bytes; 0 for a bad handle.
 *
 * Thread: whoever has the handle. Cost: a lock.
 */
size_t pagepool_shared_len(struct pagepool_shared *shared);

/**
 * Device address of the first byte in the pool's first domain; UINT64_MAX as for pagepool_buf_dma_addr.
 *
 * Thread: whoever has the handle. Cost: a lock.
 */
uint64_t pagepool_shared_dma_addr(struct pagepool_shared *shared);

/**
 * As pagepool_buf_page_ref, for a shared buffer.
 *
 * Thread: whoever has the handle. Ownership, errors, cost: as that.
 */
int pagepool_shared_page_ref(struct pagepool_shared *shared, struct pagepool_page_ref **page_ref);

/**
 * Makes a user known to a pool that has a waiting queue (`defer_capacity`).
 *
 * Thread: the owner's. Ownership: `*user` is the caller's, to be put once. Errors: -EOPNOTSUPP in a pool without a queue; -EINVAL
 * names what is missing; -EPERM, -ESTALE; `release` is not called then. Cost: allocates.
 */
int pagepool_deferred_user_create(struct pagepool *pool,
                                  const struct pagepool_deferred_user_ops *ops,
                                  struct pagepool_deferred_user **user);

/**
 * Lets go of a user. What waits for it is asked after until it is done; then `release` is called, at the pool's next poll.
 *
 * Thread: any. Ownership: the handle is over. Errors: -EINVAL, -ESTALE. Cost: a lock.
 */
int pagepool_deferred_user_put(struct pagepool_deferred_user *user);

/**
 * Parts with a buffer that its user reads still: it waits in its pool, first in, first out, until the user denies the cookie,
 * which is asked by refills that find the cache empty, and by pagepool_poll_deferred. In a pool that was destroyed it is asked by
 * pagepool_shutdown_wait and pagepool_shutdown_report, and after a plain pagepool_destroy whenever a pool is made or destroyed.
 *
 * Thread: the owner's. Ownership: the handle is over, unless it is refused. Errors: -ENOBUFS when `defer_capacity` buffers wait;
 * -EINVAL for another pool's buffer or user; -EPERM, -ESTALE. Cost: a lookup, two locks that are held for moments; no
 * allocation.
 */
int pagepool_defer(struct pagepool *pool,
                   struct pagepool_deferred_user *user,
                   struct pagepool_buf *buf,
                   uint64_t cookie);

/**
 * Asks after the buffers that wait, as many as there are, by the pool's `on_busy`; gives how many went home.
 *
 * Thread: the owner's. Errors: -EPERM, -EINVAL, -ESTALE. Cost: per user and per buffer asked after a callback.
 */
int64_t pagepool_poll_deferred(struct pagepool *pool);

/**
 * Reads the counters of a pool's deferred queue into `*stats`, of which `size` is the sizeof; all 0 in a pool without one.
 *
 * Thread: any. Errors: -EINVAL, -ESTALE. Cost: a lock; nothing to the owner.
 */
int pagepool_deferred_stats(struct pagepool *pool,
                            struct pagepool_deferred_stats *stats,
                            size_t size);

/**
 * Makes a domain of a caller's callbacks: an IOMMU, a device's own translation, a test that checks.
 *
 * Thread: any. Ownership: `*domain` is the caller's, to be put once; pools that use it keep it. Errors: -EINVAL names what is
 * missing. Cost: allocates.
 */
int pagepool_domain_create(const struct pagepool_domain_ops *ops,
                           struct pagepool_domain **domain);

/**
 * Makes the domain in which a device address is the CPU's address.
 *
 * Thread, ownership: as pagepool_domain_create. Errors: -EINVAL. Cost: allocates.
 */
int pagepool_domain_identity(const char *name, struct pagepool_domain **domain);

/**
 * Makes the domain in which a device address is the offset in the arena, as in an AF_XDP UMEM. It fixes the arena: commit
 * all of it first.
 *
 * Thread, ownership: as pagepool_domain_create. Errors: -EINVAL. Cost: allocates.
 */
int pagepool_domain_offset(const char *name,
                           struct pagepool_domain **domain);

/**
 * Lets go of a domain. Pools that use it keep it; its `release` is called when the last of them is freed.
 *
 * Thread: any. Ownership: the handle is over. Errors: -EINVAL, -ESTALE. Cost: a lock.
 */
int pagepool_domain_put(struct pagepool_domain *domain);

/**
 * The buffer's device address in that domain, if its arena is mapped there: whether that device may use the buffer without a
 * new mapping, and where. UINT64_MAX if it may not, or for a bad handle.
 *
 * Thread: whoever has the buffer. Cost: two lookups; a lock for a domain that is not the pool's.
 */
uint64_t pagepool_buf_dma_addr_in(struct pagepool_buf *buf,
                                  struct pagepool_domain *domain);

/**
 * Makes a pool over an arena's memory and maps that in the pool's domains. The pool is bound to no thread yet.
 * Linux: page_pool_create.
 *
 * Thread: any. Ownership: `*pool` is the caller's, to be destroyed once; the pool keeps the arena and the domains.
 * Errors: -EINVAL names the parameter, its value and its range; -EIO the domain that did not map; -ENOMEM, -EMFILE what
 * the system refused; `*pool` is then unchanged. Cost: allocates; a few microseconds.
 */
int pagepool_create(const struct pagepool_params *params,
                    struct pagepool **pool);

/**
 * Ends the pool; never waits. What is in its cache and rings goes back to the arena now, buffers that are out when they
 * come home, and the last one frees the pool on whichever thread it is returned. To watch that: pagepool_destroy_watched.
 * A buffer that is out as a raw address has no handle to come home by once the pool's is over: where there may be one, end
 * the pool with pagepool_destroy_watched, and bring it to pagepool_shutdown_put_addr. After this call its page stays out, so
 * that a device that still writes there damages nothing, and pool and arena are kept for it until the process ends.
 * Linux: page_pool_destroy.
 *
 * Thread: the owner's while the pool is bound, any otherwise. Ownership: the handle is over; buffers that are out stay
 * valid. Errors: -EPERM from another thread than the owner's; -EBUSY from a callback that the pool's own call made;
 * -EINVAL, -ESTALE. Cost: takes locks; in proportion to the pages in the pool.
 */
int pagepool_destroy(struct pagepool *pool);

/**
 * Makes the calling thread the owner: the one that allocates, and whose returns go into the cache. A pool that is bound
 * to this thread already stays so. A thread that ends unbinds its pools. Linux: page_pool_enable_direct_recycling.
 *
 * Thread: any. Errors: -EPERM while it is bound to another thread, or in a thread that is ending; -EINVAL, -ESTALE.
 * Cost: takes a lock.
 */
int pagepool_bind(struct pagepool *pool);

/**
 * Gives the pool up, to be bound by another thread. Buffers that this thread returns afterwards go the way of other
 * threads. Linux: page_pool_disable_direct_recycling.
 *
 * Thread: the owner's. Errors: -EPERM from any other; -EBUSY from a callback; -EINVAL, -ESTALE. Cost: takes a lock.
 */
int pagepool_unbind(struct pagepool *pool);

/**
 * A whole page; its bytes are what the last packet left. Linux: page_pool_dev_alloc_pages.
 *
 * Thread: the owner's. Ownership: the buffer is the caller's until it is returned. Errors: NULL when there is no page
 * (`alloc_failed` counts it), from another thread (-EPERM), or for a bad handle; pagepool_last_error says which. Cost: from
 * the cache, some ten instructions and no atomic operation; a refill of up to 64 pages otherwise.
 */
struct pagepool_buf *pagepool_alloc_page(struct pagepool *pool);

/**
 * A fragment of `size` bytes of a page that is shared with other fragments. It begins at a multiple of `frag_align`.
 * Linux: page_pool_dev_alloc_frag.
 *
 * Thread: the owner's. Ownership: as a page's; the page comes home when its last fragment has. Errors: NULL for a size of 0
 * or beyond the page (-EINVAL), when there is no page (-ENOMEM), from another thread (-EPERM), or for a bad handle.
 * Cost: some forty instructions and no atomic operation.
 */
struct pagepool_buf *pagepool_alloc_frag(struct pagepool *pool,
                                         size_t size);

/**
 * A whole page if two of `*size` do not fit one, else a fragment; `*size` becomes the true size. Where no other fragment of that
 * size would fit behind it, the rest of the page belongs to it. Linux: page_pool_dev_alloc.
 *
 * Thread: the owner's. Ownership: as above. Errors: NULL as for pagepool_alloc_frag, and for a NULL `size`; `*size` is then
 * unchanged. Cost: as above.
 */
struct pagepool_buf *pagepool_alloc(struct pagepool *pool,
                                    size_t *size);

/**
 * Up to `n` whole pages into `bufs`; says how many were had. Linux: a loop over page_pool_dev_alloc_pages.
 *
 * Thread: the owner's. Ownership: the first so many are the caller's; the others of `bufs` are unchanged. Errors: 0, or
 * fewer than `n`, as for pagepool_alloc_page. Cost: as that, without the call.
 */
size_t pagepool_alloc_bulk(struct pagepool *pool,
                           struct pagepool_buf **bufs,
                           size_t n);

/**
 * Writes a line per pool of this process that was made through this library: name, id, state, where its pages are, its
 * counters. Destroyed pools are listed until their last buffer is home. Cut to `len` bytes and ended with a zero byte;
 * gives the full length. `text` may be NULL.
 *
 * Thread: any. Errors: none. Cost: locks and formats, pool by pool; nothing to their owners.
 */
int64_t pagepool_dump(char *text,
                      size_t len);

/**
 * Prefers another node from now on; -1 is that of this thread, each time. What is in the cache goes back to the arena.
 * Linux: page_pool_update_nid.
 *
 * Thread: the owner's. Errors: -EINVAL for a node that the arena does not know, and nothing changes; -EPERM, -ESTALE.
 * Cost: in proportion to the pages in the cache.
 */
int pagepool_update_nid(struct pagepool *pool,
                        int nid);

/**
 * pagepool_update_nid if the node is another one. Linux: page_pool_nid_changed.
 *
 * Thread, errors: as that. Cost: a compare where it is the same.
 */
int pagepool_nid_changed(struct pagepool *pool, int nid);

/**
 * As pagepool_destroy, and gives a handle to wait with, and to ask what is still out.
 *
 * Thread: the owner's while the pool is bound, any otherwise. Ownership: the pool's handle is over; `*shutdown` is the
 * caller's, to be put once; it keeps the pool's domains. Errors: as pagepool_destroy; the pool stays then. Cost: as that.
 */
int pagepool_destroy_watched(struct pagepool *pool,
                             struct pagepool_shutdown **shutdown);

/**
 * Waits until the last buffer is home and the pool is freed, at most `timeout_ns` nanoseconds. Sleeps, does not spin.
 *
 * Thread: any. Errors: -ETIMEDOUT, with the report as the sentence; -EINVAL, -ESTALE. Cost: a lock; a system call to sleep.
 */
int pagepool_shutdown_wait(struct pagepool_shutdown *shutdown,
                           uint64_t timeout_ns);

/**
 * How many pages are out. Writes a report into `text`, cut to `len` bytes and ended with a zero byte: "stalled pool
 * shutdown: N buffers held for S s", and which pages, with their tags. `text` may be NULL.
 *
 * Thread: any. Errors: -EINVAL, -ESTALE. Cost: walks the arena's records.
 */
int64_t pagepool_shutdown_report(struct pagepool_shutdown *shutdown,
                                 char *text,
                                 size_t len);

/**
 * Returns a buffer of the pool that is out as a raw address: pagepool_put_addr for a pool that was destroyed, also after it
 * was freed.
 *
 * Thread: any. Ownership: the address is over. Errors: -EINVAL for an address that is not the pool's, -ESTALE for one that is
 * not out in raw form. One that came back before is either, for its page has left the pool. Nothing is changed then. -EINVAL
 * and -ESTALE for a bad handle. Cost: a lock and some four atomic operations.
 */
int pagepool_shutdown_put_addr(struct pagepool_shutdown *shutdown,
                               uint64_t addr);

/**
 * Stops watching. The pool is freed by its last buffer, whoever watches.
 *
 * Thread: any. Ownership: the handle is over. Errors: -EINVAL, -ESTALE. Cost: a lock.
 */
int pagepool_shutdown_put(struct pagepool_shutdown *shutdown);

/**
 * Reads the pool's counters into `*stats`, of which `size` is the sizeof. They are set, not added to, and exact while the
 * pool is at rest. Linux: page_pool_get_stats.
 *
 * Thread: any. Errors: -EINVAL, -ESTALE. Cost: a lock; nothing to the owner.
 */
int pagepool_stats(struct pagepool *pool,
                   struct pagepool_stats *stats,
                   size_t size);

/**
 * Pages that joined the pool and have not left: hold - release, right across wrap-around. Linux: page_pool_inflight.
 *
 * Thread: any. Errors: -EINVAL, -ESTALE. Cost: a lock.
 */
int64_t pagepool_inflight(struct pagepool *pool);

/**
 * Bytes that cutting pages up cost: what was left over at their ends, and what alignment took.
 *
 * Thread: any. Errors: -EINVAL, -ESTALE. Cost: a lock.
 */
int64_t pagepool_frag_waste(struct pagepool *pool);

/**
 * Says where the pool's pages are.
 *
 * Thread: any. Errors: -EINVAL, -ESTALE. Cost: a lock.
 */
int pagepool_buffer_locations(struct pagepool *pool, struct pagepool_buffer_locations *places);

/**
 * Makes a tag of a pool that was made with `tagging`; gives its number, 0 or more. The same name gives the same number.
 *
 * Thread: the owner's. Errors: -EPERM from another; -EINVAL, -ESTALE. Cost: a lock.
 */
int pagepool_tag(struct pagepool *pool,
                 const char *name);

/**
 * Says who has a buffer now. Without effect in a pool made without `tagging`.
 *
 * Thread: whoever has the buffer. Errors: -EINVAL for a tag that is not of this pool, or a bad handle; -ESTALE. Cost: a lock.
 */
int pagepool_buf_set_tag(struct pagepool *pool,
                         struct pagepool_buf *buf,
                         int tag);

/**
 * The descriptor to poll together with the device's, in a pool made with `wakeup`: readable once a buffer came home after
 * the pool ran dry.
 *
 * Thread: the owner's. Ownership: the descriptor is the pool's. Errors: -EOPNOTSUPP in a pool without one; -EPERM, -EINVAL,
 * -ESTALE. Cost: a load.
 */
int pagepool_wake_fd(struct pagepool *pool);

/**
 * After waking: takes the signal back, so that the descriptor can be slept on again.
 *
 * Thread: the owner's. Errors: -EPERM, -EINVAL, -ESTALE. Cost: a system call.
 */
int pagepool_acknowledge_wake(struct pagepool *pool);

/**
 * The fewest pages that were left to have, cache and arena together, whenever the arena was asked.
 *
 * Thread: the owner's. Errors: -EPERM, -EINVAL, -ESTALE. Cost: a load.
 */
int64_t pagepool_low_water_mark(struct pagepool *pool);

/**
 * Makes room for the descriptions of so many packets, 1 to 16777216; clones of a packet share one. 1100 bytes each, and as
 * much memory is committed as is used. Linux: skbuff_cache.
 *
 * Thread: any. Ownership: `*cache` is the caller's, to be destroyed once. Errors: -EINVAL, -ENOMEM. Cost: allocates.
 */
int pagepool_skb_cache_create(size_t packets,
                              struct pagepool_skb_cache **cache);

/**
 * Lets go of a cache. Packets that are out stay valid; the last of them frees it.
 *
 * Thread: any. Ownership: the handle is over. Errors: -EINVAL, -ESTALE. Cost: a lock.
 */
int pagepool_skb_cache_put(struct pagepool_skb_cache *cache);

/**
 * The packet of `len` bytes at `offset` in a buffer, without a copy: the buffer is its head, what lies before the bytes is
 * headroom. A buffer that the CPU cannot read becomes its first fragment. Linux: build_skb.
 *
 * Thread: whoever has the buffer. Ownership: the buffer's handle is over, unless it is refused; `*skb` is the caller's, to be
 * freed once. Errors: -EINVAL for bytes that the buffer has not, or that lie in its tailroom; -ENOBUFS when the cache is
 * exhausted; -EINVAL, -ESTALE for a bad handle. Cost: three locks that are held for moments, and one compare-and-swap.
 */
int pagepool_skb_from_buf(struct pagepool_skb_cache *cache,
                          struct pagepool_buf *buf,
                          size_t offset,
                          size_t len,
                          struct pagepool_skb **skb);

/**
 * An empty packet: room for `len` bytes in its head, and `headroom` before them, in ordinary memory. Linux: alloc_skb and
 * skb_reserve.
 *
 * Thread: any. Ownership: `*skb` is the caller's, to be freed once. Errors: -ENOBUFS when the cache is exhausted; -ENOMEM;
 * -EINVAL, -ESTALE. Cost: as pagepool_skb_from_buf; allocates where headroom and `len` are more than 512 bytes.
 */
int pagepool_skb_alloc(struct pagepool_skb_cache *cache,
                       size_t headroom,
                       size_t len,
                       struct pagepool_skb **skb);

/**
 * Another packet with the same data; its ends are its own. What they share goes home with the last of them. While there are
 * clones nobody writes the bytes. Linux: skb_clone.
 *
 * Thread: whoever has the packet. Ownership: `*clone` is the caller's, to be freed once. Errors: -EINVAL, -ESTALE, -EBUSY, -ENOMEM.
 * Cost: two locks that are held for moments, and one atomic operation.
 */
int pagepool_skb_clone(struct pagepool_skb *skb,
                       struct pagepool_skb **clone);

/**
 * Ends a packet. If it is the last of its clones, every buffer goes home as by pagepool_buf_put, and callbacks of lent
 * memory are called. Linux: kfree_skb.
 *
 * Thread: any. Ownership: the handle is over. Errors: -ESTALE for one that was freed before; -EBUSY while another call has it;
 * -EINVAL. Cost: two locks that are held for moments, and what each buffer costs.
 */
int pagepool_skb_put(struct pagepool_skb *skb);

/**
 * Bytes of the packet; 0 for a bad handle. Linux: skb->len.
 *
 * Thread: whoever has the packet. Cost: a lock of the packet's own.
 */
size_t pagepool_skb_len(struct pagepool_skb *skb);

/**
 * Bytes in its head; 0 for a bad handle. Linux: skb_headlen.
 *
 * Thread and cost: as above.
 */
size_t pagepool_skb_head_len(struct pagepool_skb *skb);

/**
 * Bytes before the head's data; 0 for a bad handle. Linux: skb_headroom.
 *
 * Thread and cost: as above.
 */
size_t pagepool_skb_headroom(struct pagepool_skb *skb);

/**
 * Bytes behind the head's data that the packet may grow into; 0 when it has fragments, or for a bad handle.
 * Linux: skb_tailroom.
 *
 * Thread and cost: as above.
 */
size_t pagepool_skb_tailroom(struct pagepool_skb *skb);

/**
 * Bytes of memory that the packet keeps from other uses; 0 for a bad handle. Linux: skb->truesize.
 *
 * Thread: whoever has the packet. Cost: a lock of the packet's own, and a look at every fragment.
 */
size_t pagepool_skb_truesize(struct pagepool_skb *skb);

/**
 * How many fragments it has; 0 for a bad handle.
 *
 * Thread: whoever has the packet. Cost: a lock of the packet's own.
 */
size_t pagepool_skb_nr_frags(struct pagepool_skb *skb);

/**
 * 1 if another packet shares its data, 0 if not, else -EINVAL, -ESTALE or -EBUSY. Linux: skb_cloned.
 *
 * Thread and cost: as above.
 */
int pagepool_skb_is_cloned(struct pagepool_skb *skb);

/**
 * The head's data: pagepool_skb_head_len bytes, to be written only while the packet is not cloned. NULL for a bad handle.
 * Linux: skb->data.
 *
 * Thread: whoever has the packet. Ownership: the address holds until the head is changed or the packet freed. Cost: as above.
 */
void *pagepool_skb_data(struct pagepool_skb *skb);

/**
 * Where the packet's bytes lie, in order: the head, if it has bytes, and every fragment. Writes the first `n` of them into
 * `iov`, as sendmsg wants them, to be read only; gives how many there are, at most 18. `iov` may be NULL where `n` is 0.
 * Linux: skb_to_sgvec.
 *
 * Thread: whoever has the packet. Ownership: addresses hold until the packet is changed or freed. Errors: -EOPNOTSUPP for memory
 * that the CPU cannot read; -EINVAL, -ESTALE, -EBUSY. Cost: a lock of the packet's own.
 */
int64_t pagepool_skb_iovec(struct pagepool_skb *skb,
                           struct iovec *iov,
                           size_t n);

/**
 * Where a device finds the bytes of one segment, in that domain: segment 0 is the head, the others are fragments from 1 on.
 * UINT64_MAX for memory that is not mapped there, a segment that there is not, or a bad handle.
 *
 * Thread: whoever has the packet. Cost: two locks, and a lookup.
 */
uint64_t pagepool_skb_dma_addr(struct pagepool_skb *skb,
                               size_t segment,
                               struct pagepool_domain *domain);

/**
 * Copies `len` bytes from `offset` in the packet, wherever they lie. Linux: skb_copy_bits.
 *
 * Thread: whoever has the packet. Errors: -EINVAL where it has not so many; -EOPNOTSUPP for memory that the CPU cannot read;
 * -EINVAL, -ESTALE, -EBUSY. Cost: a lock of the packet's own, and the copy.
 */
int pagepool_skb_copy_bits(struct pagepool_skb *skb,
                           size_t offset,
                           void *to,
                           size_t len);

/**
 * Appends `len` bytes at `offset` in a buffer, as a fragment: a packet has up to 17. Linux: skb_add_rx_frag.
 *
 * Thread: whoever has both. Ownership: the buffer's handle is over, unless it is refused. Errors: -EINVAL for bytes that it has
 * not; -ENOSPC beyond 17; -EBUSY while a clone shares the data; -EINVAL, -ESTALE. Cost: a lock of the packet's own.
 */
int pagepool_skb_add_buf(struct pagepool_skb *skb,
                         struct pagepool_buf *buf,
                         size_t offset,
                         size_t len);

/**
 * As pagepool_skb_add_buf, of a buffer with other readers: the packet becomes one more of them.
 *
 * Thread: whoever has both. Ownership: the shared handle stays the caller's. Errors: as that. Cost: two locks, one atomic
 * operation.
 */
int pagepool_skb_add_shared(struct pagepool_skb *skb,
                            struct pagepool_shared *shared,
                            size_t offset,
                            size_t len);

/**
 * Appends memory of the caller's, as a fragment that is only read. When the last packet has let go of it, `free` is called
 * with `arg` and the memory, once, inside whichever call that was. The callback may use the library, but for the packet that
 * the call is about, which is -EBUSY. `free` may be NULL for memory that stays for ever. Linux: ubuf_info.
 *
 * Thread: whoever has the packet. Ownership: the bytes must stay as they are until `free` is called, which may be on any
 * thread; refused, the memory stays the caller's and `free` is not called. Errors: as pagepool_skb_add_buf, and -EINVAL for
 * NULL. Cost: a lock of the packet's own; allocates a count.
 */
int pagepool_skb_add_memory(struct pagepool_skb *skb,
                            void *start,
                            size_t len,
                            void (*free)(void *arg, void *start, size_t len),
                            void *arg);

/**
 * Grows the packet by `len` bytes at its front, out of the headroom; `*at`, unless NULL, becomes their address, and what is
 * there is whatever was. Linux: skb_push.
 *
 * Thread: whoever has the packet. Errors: -ENOSPC without so much headroom (pagepool_skb_cow_head makes it); -EBUSY while a clone
 * shares the data; -EINVAL, -ESTALE. Cost: a lock of the packet's own.
 */
int pagepool_skb_push(struct pagepool_skb *skb,
                      size_t len,
                      void **at);

/**
 * The same at the end of its head, out of the tailroom; none is left once it has fragments. Linux: skb_put.
 *
 * Thread, errors, cost: as above.
 */
int pagepool_skb_append(struct pagepool_skb *skb, size_t len, void **at);

/**
 * Cuts `len` bytes off its front. Fragments that are used up go home at once. Linux: pskb_pull.
 *
 * Thread: whoever has the packet. Errors: -EINVAL where it has not so many; -ENOBUFS, -ENOMEM where a clone's fragments would
 * need a description of their own; -EINVAL, -ESTALE, -EBUSY. Cost: a lock of the packet's own.
 */
int pagepool_skb_pull(struct pagepool_skb *skb,
                      size_t len);

/**
 * Cuts its end off, so that `len` bytes stay. Does nothing where it has no more. Linux: pskb_trim.
 *
 * Thread, errors, cost: as above.
 */
int pagepool_skb_trim(struct pagepool_skb *skb, size_t len);

/**
 * Makes its first `len` bytes lie in the head, by a copy if need be. Linux: pskb_may_pull.
 *
 * Thread: whoever has the packet. Errors: -EINVAL where it has not so many; -EOPNOTSUPP for memory that the CPU cannot read;
 * -ENOBUFS, -ENOMEM; -EINVAL, -ESTALE, -EBUSY. Cost: a lock of the packet's own, and the copy of what was not there.
 */
int pagepool_skb_make_linear(struct pagepool_skb *skb,
                             size_t len);

/**
 * Gives a clone a head of its own, in ordinary memory, and a reference to every fragment, so that it may be written. Does
 * nothing to a packet that is not cloned. Linux: skb_unclone.
 *
 * Thread: whoever has the packet. Errors: -ENOBUFS, -ENOMEM; -EINVAL, -ESTALE, -EBUSY. Cost: a lock of the packet's own, and the
 * copy of the head.
 */
int pagepool_skb_unclone(struct pagepool_skb *skb);

/**
 * The same, and sees to so much headroom. Linux: skb_cow_head.
 *
 * Thread, errors, cost: as above.
 */
int pagepool_skb_cow_head(struct pagepool_skb *skb, size_t headroom);

/**
 * The library's version, as "0.1.0".
 *
 * Thread: any. Ownership: the text is the library's, for good. Cost: none.
 */
const char *pagepool_version(void);

/**
 * The sentence that explains the last refusal on this thread, or "" if there was none. It names the parameter, its
 * value and its range, or the system call and the remedy.
 *
 * Thread: any; each has its own. Ownership: the text is the library's; it is valid until the next call on this thread
 * that is refused. Errors: none. Cost: a load.
 */
const char *pagepool_last_error(void);

/**
 * For the header's own use, once per compiled file, before `main`: where the tables lie, or NULL where the header is of
 * another version than the library; then every call goes to the library.
 *
 * Thread: any. Cost: none.
 */
const struct pagepool_inline_ *pagepool_inline_tables(uint32_t layout);

/* ---- Where to begin ------------------------------------------------------------------------------------------- */

/** Parameters with every default: `struct pagepool_params params = PAGEPOOL_PARAMS_INIT; params.arena = arena;` */
#define PAGEPOOL_PARAMS_INIT pagepool_params_init_()
/** Parameters with every default. */
#define PAGEPOOL_ARENA_PARAMS_INIT pagepool_arena_params_init_()

#if defined(__GNUC__)
#define PAGEPOOL_UNUSED_ __attribute__((unused))
#else
#define PAGEPOOL_UNUSED_
#endif

PAGEPOOL_UNUSED_ static inline struct pagepool_params pagepool_params_init_(void)
{
    struct pagepool_params params;
    memset(&params, 0, sizeof(params));
    params.size = sizeof(params);
    params.nid = PAGEPOOL_NODE_ANY;
    params.colour = 1;
    return params;
}

PAGEPOOL_UNUSED_ static inline struct pagepool_arena_params pagepool_arena_params_init_(void)
{
    struct pagepool_arena_params params;
    memset(&params, 0, sizeof(params));
    params.size = sizeof(params);
    params.node = PAGEPOOL_NODE_ANY;
    return params;
}

/* ---- The fast paths, compiled into their users ------------------------------------------------------------------
 *
 * pagepool_alloc_page and pagepool_buf_put of the owner's thread, without a call: what the library would do, with the same
 * checks, and a call to the library wherever that is not the plain case. Nothing here is for users to name. The tables are
 * the library's and never go away; which layout they have is asked once, before main, and a library of another layout gets
 * every call. Define PAGEPOOL_NO_INLINE to have calls only.
 *
 * What they cost is above all loads, so they begin with one: each thread keeps the address of the pool that it used last.
 * That is a guess, and what it leads to is compared with the handle and the thread every time.
 */
#if !defined(PAGEPOOL_NO_INLINE) && defined(__GNUC__) && defined(__linux__) && \
    (defined(__x86_64__) || defined(__aarch64__))

struct pagepool_cache_ {
    size_t count, limit, capacity;
    uint32_t pages[1];
};

struct pagepool_view_ {
    uint64_t token, owner, bias;
    uint64_t base, pages;
    uint64_t *words;
    struct pagepool_cache_ *cache;
    uint64_t page_size;
    uint64_t allocated, recycled, begun;
    uint64_t rest[21];
};

struct pagepool_row_ {
    struct pagepool_view_ *view;
    uint64_t rest[3];
};

/* One of each in a program or shared object, however many files include this. */
#define PAGEPOOL_ONCE_ __attribute__((weak, visibility("hidden")))
/* Without this a shared object would make a call to find the variable. Other C libraries may refuse to load such an object
 * at run time. */
#if defined(__GLIBC__)
#define PAGEPOOL_NEAR_ __attribute__((tls_model("initial-exec")))
#else
#define PAGEPOOL_NEAR_
#endif

/* A pool that nobody owns and that has no page: every comparison fails. */
PAGEPOOL_ONCE_ struct pagepool_view_ pagepool_no_view_2_;
/* The pool that this thread used last. Named after the layout, so that files of two versions do not share it. */
PAGEPOOL_ONCE_ PAGEPOOL_NEAR_ __thread struct pagepool_view_ *pagepool_here_2_ = &pagepool_no_view_2_;

/* The library's tables; NULL until it was asked, and where it has another layout. */
PAGEPOOL_UNUSED_ static const struct pagepool_inline_ *pagepool_tables_;

__attribute__((constructor)) PAGEPOOL_UNUSED_ static void pagepool_start_(void)
{
    pagepool_tables_ = pagepool_inline_tables(2);
}

#define PAGEPOOL_FAST_ __attribute__((unused, always_inline)) static inline
#define PAGEPOOL_SLOW_ __attribute__((unused, noinline)) static
#define PAGEPOOL_LIKELY_(what) __builtin_expect(!!(what), 1)

/* The calling thread, as the library names it. */
PAGEPOOL_FAST_ uint64_t pagepool_me_(void)
{
    uint64_t me;
#if defined(__x86_64__)
    __asm__ __volatile__("movq %%fs:0, %0" : "=r"(me));
#else
    __asm__ __volatile__("mrs %0, tpidr_el0" : "=r"(me));
#endif
    return me;
}

/* Not the plain case. If it is another pool of this thread's, that is the one it used last from now on. */
PAGEPOOL_SLOW_ struct pagepool_buf *pagepool_alloc_slow_(struct pagepool *pool)
{
    uint32_t token = (uint32_t)(uintptr_t)pool;
    if (pagepool_tables_ != NULL) {
        struct pagepool_view_ *view = (struct pagepool_view_ *)pagepool_tables_->views + (token >> 4 & pagepool_tables_->view_mask);
        if (view->owner == pagepool_me_())
            pagepool_here_2_ = view;
    }
    return pagepool_alloc_page(pool);
}

/* The same for a buffer, whose place says which pool it is of. */
PAGEPOOL_SLOW_ int pagepool_put_slow_(struct pagepool_buf *buf)
{
    uint32_t token = (uint32_t)(uintptr_t)buf;
    if (pagepool_tables_ != NULL) {
        struct pagepool_view_ *view = ((struct pagepool_row_ *)pagepool_tables_->directory)[token >> 16].view;
        if (view != NULL && view->owner == pagepool_me_())
            pagepool_here_2_ = view;
    }
    return pagepool_buf_put(buf);
}

PAGEPOOL_FAST_ struct pagepool_buf *pagepool_alloc_page_(struct pagepool *pool)
{
    struct pagepool_view_ *view = pagepool_here_2_;
    if (PAGEPOOL_LIKELY_(view->token == (uint64_t)(uintptr_t)pool && view->owner == pagepool_me_())) {
        struct pagepool_cache_ *cache = view->cache;
        size_t at = cache->count;
        if (PAGEPOOL_LIKELY_(at != 0)) {
            uint64_t *word = view->words + cache->pages[at - 1];
            uint64_t home = *word;
            if (PAGEPOOL_LIKELY_(home != 0)) {
                *word = home + ((uint64_t)1 << 32) + 1; /* the page is out, in its next life: see the library's Word */
                __atomic_store_n(&cache->count, at - 1, __ATOMIC_RELAXED);
                ++view->allocated;
                return (struct pagepool_buf *)(uintptr_t)(home + ((uint64_t)1 << 32) + 1);
            }
        }
    }
    return pagepool_alloc_slow_(pool);
}

/* For the biased owner, who says that it has begun: a page of its pool goes into the cache, if it is in that life. */
PAGEPOOL_FAST_ int pagepool_put_page_(struct pagepool_view_ *view, uint32_t page, uint64_t token)
{
    struct pagepool_cache_ *cache = view->cache;
    size_t at = cache->count;
    if (PAGEPOOL_LIKELY_(at < cache->limit && view->words[page] == token)) {
        view->words[page] = token + ((uint64_t)1 << 32) - 1;
        cache->pages[at] = page;
        __atomic_store_n(&cache->count, at + 1, __ATOMIC_RELAXED);
        return 1;
    }
    return 0;
}

PAGEPOOL_FAST_ int pagepool_buf_put_(struct pagepool_buf *buf)
{
    uint64_t token = (uint64_t)(uintptr_t)buf, me = pagepool_me_();
    struct pagepool_view_ *view = pagepool_here_2_;
    uint32_t far = (uint32_t)token - (uint32_t)view->base;
    uint32_t page = far >> 4 | far << 28; /* beyond every page where it is of another kind: see View::page_of */
    if (PAGEPOOL_LIKELY_(page < view->pages && view->bias == me)) {
        uint64_t counted = view->recycled;
        __atomic_store_n(&view->begun, counted + 1, __ATOMIC_RELAXED);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        if (PAGEPOOL_LIKELY_(__atomic_load_n(&view->bias, __ATOMIC_RELAXED) == me && pagepool_put_page_(view, page, token))) {
            __atomic_store_n(&view->recycled, counted + 1, __ATOMIC_RELEASE);
            return 0;
        }
        __atomic_store_n(&view->begun, counted, __ATOMIC_RELEASE);
    }
    return pagepool_put_slow_(buf);
}

#define pagepool_alloc_page(pool) pagepool_alloc_page_(pool)
#define pagepool_buf_put(buf) pagepool_buf_put_(buf)

#endif

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PAGEPOOL_H */
