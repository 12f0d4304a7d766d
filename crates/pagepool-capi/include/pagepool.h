/*
 * pagepool: a user-space page pool for packet buffers. Generated; docs/c-api.md is the guide.
 *
 * A handle is a token, not an address. A bad handle is refused in every build, and nothing changes: -EINVAL
 * for NULL, another kind of handle, or a value that never was one; -ESTALE for a handle that was put before.
 * Functions give 0 or a negative errno unless their comment says otherwise. After an error
 * pagepool_last_error gives a sentence. Nothing throws or unwinds.
 *
 * A pool has one owner, the thread that called pagepool_bind. The owner allocates; any thread may return a
 * buffer. If two threads return the same buffer at the same time, one gets 0 and the other -ESTALE. Signal
 * handlers must not call the library.
 *
 * Functions that end in _put release a handle or a buffer. Each comment names, after what the function does:
 *   Thread     who may call it: "owner", "any", or the one thread that has the buffer
 *   Ownership  which handles and memory belong to whom afterwards
 *   Errors     when it fails
 *   Cost       what a call takes
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
 * Memory of the caller: `memory` and `max_bytes`.
 */
#define PAGEPOOL_BACKING_CALLER 7

/**
 * Memory of a device, which the CPU cannot read: page numbers and device addresses only.
 */
#define PAGEPOOL_BACKING_DEVICE 8

/**
 * The buffer stays and the poll ends: for users that finish in the order of the queue.
 */
#define PAGEPOOL_ON_BUSY_KEEP 0

/**
 * The buffer stays and the poll looks at those behind: for users that keep one buffer long.
 */
#define PAGEPOOL_ON_BUSY_SKIP 1

/**
 * The buffer leaves the queue, one per poll, and its page leaves the pool. The memory returns to the arena
 * once the user is done.
 */
#define PAGEPOOL_ON_BUSY_RELEASE 2

/**
 * No thread has a lane.
 */
#define PAGEPOOL_NO_LANES UINT32_MAX

/**
 * A source of pages that pools share: pagepool_arena_create makes it.
 */
struct pagepool_arena;

/**
 * A page of a pool, or a fragment of one. The owner allocates it, any thread returns it, once.
 */
struct pagepool_buf;

/**
 * A user of deferred buffers: pagepool_deferred_user_create makes it.
 */
struct pagepool_deferred_user;

/**
 * An address space of a device: pagepool_domain_create, _identity and _offset make it.
 */
struct pagepool_domain;

/**
 * A reference to a page's memory: pagepool_buf_page_ref takes it.
 */
struct pagepool_page_ref;

/**
 * A pool: pagepool_create makes it, pagepool_destroy ends it.
 */
struct pagepool;

/**
 * One reader's handle of a shared buffer: pagepool_buf_share makes it.
 */
struct pagepool_shared;

/**
 * The end of a pool: pagepool_destroy_watched makes it.
 */
struct pagepool_shutdown;

/**
 * A cache for the descriptions of packets: pagepool_skb_cache_create makes it.
 */
struct pagepool_skb_cache;

/**
 * A packet for stacks: pagepool_skb_from_buf and pagepool_skb_alloc make it.
 */
struct pagepool_skb;

/**
 * The parameters of an arena. Begin with PAGEPOOL_ARENA_PARAMS_INIT, or with zeroes and `size`.
 */
struct pagepool_arena_params {
    /**
     * sizeof(struct pagepool_arena_params), so that the struct can grow.
     */
    size_t size;
    /**
     * The size up to which the arena grows: a multiple of 4096, or of the huge page for hugetlb kinds; 0: 64
     * MiB. For PAGEPOOL_BACKING_CALLER the length of `memory`.
     */
    uint64_t max_bytes;
    /**
     * The kind of memory, a PAGEPOOL_BACKING_ value; 0: transparent huge pages.
     */
    uint32_t backing;
    /**
     * The memory node of the arena. PAGEPOOL_NODE_ANY (-1): the policy of the process decides.
     * PAGEPOOL_NODE_LOCAL (-2): the node of the thread that makes the arena grow. No effect on pretended
     * nodes.
     */
    int node;
    /**
     * Number of nodes to pretend, for tests, 1 to 255; 0: the nodes of the machine.
     */
    uint32_t nodes;
    /**
     * 1: fail if there are no huge pages. 0: use smaller pages; pagepool_arena_describe tells.
     */
    uint32_t huge_or_fail;
    /**
     * Gives the pretended node of a page; NULL: the arena is cut into equal parts. It is called on any
     * thread when memory is committed, and must not call the library. A page of order k exists where all its
     * base pages are on one node.
     */
    uint32_t (*node_of_page)(uint32_t page_index, void *arg);
    /**
     * The second argument of `node_of_page`.
     */
    void *arg;
    /**
     * Name in descriptions, and of the memfd; copied. NULL: "arena".
     */
    const char *name;
    /**
     * For PAGEPOOL_BACKING_CALLER: the memory, at a multiple of 4096. The caller frees it after the arena
     * and its pools.
     */
    void *memory;
    /**
     * 1: touch the memory of a region when it is committed.
     */
    uint32_t prefault;
    /**
     * 1: lock the memory.
     */
    uint32_t mlock;
    /**
     * 1: commit everything now and keep it, for domains that fix the arena (an AF_XDP UMEM).
     */
    uint32_t commit_all;
    /**
     * 1: the child of a fork has the memory too.
     */
    uint32_t inherit_on_fork;
};

/**
 * A buffer as a device sees it: plain numbers.
 */
struct pagepool_raw {
    /**
     * Address of the first byte in the pool's first domain.
     */
    uint64_t addr;
    /**
     * Bytes from there that belong to the buffer.
     */
    uint32_t len;
    /**
     * 0.
     */
    uint32_t reserved;
};

/**
 * A user of deferred buffers: it reads them without owning them, and answers whether it still does.
 * Examples: a kernel that sends from them, a reference count elsewhere. The callbacks are called in
 * allocations and polls of the pool's owner; after the pool was destroyed, on any thread that asks about it.
 * They may use the library, but must not unbind or destroy the pool, throw or longjmp. They should take a
 * bounded time. Each gets `arg` first.
 */
struct pagepool_deferred_user_ops {
    /**
     * sizeof(struct pagepool_deferred_user_ops).
     */
    size_t size;
    /**
     * The first argument of the callbacks.
     */
    void *arg;
    /**
     * Gives other than 0 while the buffer that was deferred with `cookie` is in use. After 0 the buffer
     * returns, so nobody may read its bytes any more. Required.
     */
    int (*in_use)(void *arg, uint64_t cookie);
    /**
     * Called once before each poll, for a user that reads a state first, such as a socket's error queue. May
     * be NULL.
     */
    void (*refresh)(void *arg);
    /**
     * Called once when the handle is put and no buffer is deferred for the user, so that `arg` may be freed.
     * May be NULL.
     */
    void (*release)(void *arg);
};

/**
 * A part of an arena that is mapped as one.
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
 * A domain of the caller's. The callbacks are called on any thread, in every call that makes an arena grow,
 * makes or destroys a pool, or returns a buffer. They may return buffers, and must not throw or longjmp.
 * `map` runs under a lock of the arena: it would deadlock if it made or destroyed a pool over that arena,
 * put the arena, or asked for an address in another domain. Each callback gets `arg` first.
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
     * The first argument of the callbacks.
     */
    void *arg;
    /**
     * Maps a region and stores its device address. Gives 0, or a negative errno to refuse. Required.
     */
    int (*map)(void *arg, const struct pagepool_region *region, uint64_t *addr);
    /**
     * Undoes `map`, once. Required.
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
     * 1: device and CPU see the same memory, and no syncs are needed.
     */
    uint32_t coherent;
    /**
     * 1: the arena must not grow or shrink while it is mapped here, as in an AF_XDP UMEM.
     */
    uint32_t fixes_arena;
};

/**
 * The parameters of a pool. Begin with PAGEPOOL_PARAMS_INIT, or with zeroes and `size`. 0 is the default,
 * except where 0 is a value of its own (`nid`, `colour`).
 */
struct pagepool_params {
    /**
     * sizeof(struct pagepool_params), so that the struct can grow.
     */
    size_t size;
    /**
     * The arena that the pages come from. Required.
     */
    struct pagepool_arena *arena;
    /**
     * Names the pool in reports and errors; copied. NULL: "pool".
     */
    const char *name;
    /**
     * Size of a page: log2 of its number of 4096-byte pages, 0 to 10.
     */
    uint32_t order;
    /**
     * Slots in the locked ring; 0: 1024. Values above 16384 count as 16384. Linux: pool_size.
     */
    uint32_t ring_size;
    /**
     * Pages in the owner's cache, 1 to 1024; 0: twice `refill`.
     */
    uint32_t cache_size;
    /**
     * Most pages that one refill brings: 1 to 256, not more than `cache_size`; 0: as Linux 64, 16 or 4, by
     * order.
     */
    uint32_t refill;
    /**
     * The memory node that pages should be on; -1: the node of the thread that refills, asked each time.
     */
    int nid;
    /**
     * Fragments begin at multiples of this, a power of two from 8 to 4096; 0: 64.
     */
    uint32_t frag_align;
    /**
     * 1: from page to page packets begin up to 15 cache lines later, within the space that a page has left.
     * 0: they do not.
     */
    uint32_t colour;
    /**
     * Threads that may have a lane at once, 1 to 64; 0: 16. With PAGEPOOL_NO_LANES other threads return
     * through the ring.
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
     * Largest packet in a whole page, in bytes; so many at most are synced for the device. 0: all that is
     * left.
     */
    uint32_t max_len;
    /**
     * Bytes kept free after the packet in a whole page.
     */
    uint32_t tailroom;
    /**
     * Address spaces in which every page is mapped, `n_domains` of them; pagepool_buf_dma_addr is about the
     * first. The pool keeps them, so the handles may be put at once.
     */
    struct pagepool_domain *const *domains;
    /**
     * Number of `domains`, 0 to 64.
     */
    size_t n_domains;
    /**
     * 1: sync pages for the device when they join the pool and when they return, in domains that are not
     * coherent. Linux: PP_FLAG_DMA_SYNC_DEV.
     */
    uint32_t sync_for_device;
    /**
     * The owner counts as starved when fewer pages than this are left. 0: only after a failed allocation.
     */
    uint32_t low_water;
    /**
     * 1: make the descriptor that pagepool_wake_fd gives.
     */
    uint32_t wakeup;
    /**
     * 1: record who has each buffer (pagepool_buf_set_tag), for the report of a destroyed pool.
     */
    uint32_t tagging;
    /**
     * 1: reserve pages without a node, to measure what the node costs.
     */
    uint32_t node_blind;
    /**
     * Buffers that can be in the deferred queue (pagepool_defer), up to 65536; 0: there is no queue.
     */
    uint32_t defer_capacity;
    /**
     * What a poll does with the oldest deferred buffer if it is in use: PAGEPOOL_ON_BUSY_KEEP, _SKIP or
     * _RELEASE.
     */
    uint32_t on_busy;
    /**
     * With PAGEPOOL_ON_BUSY_SKIP: buffers in use that a poll may pass over, 1 to 64.
     */
    uint32_t skip_ahead;
};

/**
 * Where the pages of a pool are. The places add up to pagepool_inflight when the pool is at rest.
 */
struct pagepool_buffer_locations {
    /**
     * Pages that joined the pool and have not left.
     */
    int64_t total;
    /**
     * In the owner's cache.
     */
    uint64_t cache;
    /**
     * In the lanes of threads that returned them.
     */
    uint64_t lanes;
    /**
     * In the ring.
     */
    uint64_t ring;
    /**
     * 1 while fragments are cut from a page.
     */
    uint64_t frag;
    /**
     * In use, and in the deferred queue (pagepool_defer).
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
 * What a pool has done so far. The names are Linux's (page_pool_alloc_stats, page_pool_recycle_stats).
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
 * Makes an arena: reserves its addresses and commits the first region, or all of it with `commit_all`.
 *
 * Thread: any.
 * Ownership: `*arena` is the caller's, to be put once. What `memory` and `arg` point to must live as long as
 *     the arena and its pools.
 * Errors: -EINVAL names the field, its value and its range. Otherwise the errno of the system call that
 *     failed, and the sentence names the remedy. `*arena` is then unchanged.
 * Cost: a few system calls; with `prefault` or `mlock`, the time to clear the memory.
 */
int pagepool_arena_create(const struct pagepool_arena_params *params, struct pagepool_arena **arena);

/**
 * Puts an arena. Its memory goes back to the system with its last pool, or now if it has none.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: system calls if no pool is left.
 */
int pagepool_arena_put(struct pagepool_arena *arena);

/**
 * Writes one line about the arena into `text`: what it is, and which of the requested features are missing.
 * The line is cut to `len` bytes and ends with a zero byte. Gives the full length.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: formats text.
 */
int64_t pagepool_arena_describe(struct pagepool_arena *arena, char *text, size_t len);

/**
 * Gives the number of base pages of 4096 bytes that pools have.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int64_t pagepool_arena_pages_out(struct pagepool_arena *arena);

/**
 * Returns memory to the system: the regions that have no page out and that no domain maps. Gives the number
 * of bytes.
 *
 * Thread: any.
 * Errors: -EOPNOTSUPP for device memory. -EINVAL, -ESTALE for a bad handle.
 * Cost: system calls.
 */
int64_t pagepool_arena_trim(struct pagepool_arena *arena);

/**
 * Gives the descriptor of a memfd arena, for a peer process. Offsets in the file are offsets in the arena.
 *
 * Thread: any.
 * Ownership: the descriptor is the arena's; duplicate it to keep it.
 * Errors: -EOPNOTSUPP for an arena without one. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_arena_memfd(struct pagepool_arena *arena);

/**
 * Sets the node on which all threads seem to run, in an arena with pretended nodes. Node 0 is the default.
 *
 * Thread: any.
 * Errors: -EINVAL for a node above 255. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_arena_set_current_node(struct pagepool_arena *arena, int nid);

/**
 * Gives the address of the arena's first byte. Page i begins 4096 * i bytes behind it. NULL for device
 * memory or a bad handle.
 *
 * Thread: any.
 * Cost: a lock.
 */
void *pagepool_arena_base(struct pagepool_arena *arena);

/**
 * Unmaps all of the arena from a domain whose device has gone, although pools still use it. Buffers that are
 * out stay valid for the CPU. They have no address in the domain any more and are not unmapped again when
 * they return.
 *
 * Thread: any.
 * Errors: -ENODEV if the arena is not mapped in the domain. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock, and the `unmap` of the domain.
 */
int pagepool_arena_device_gone(struct pagepool_arena *arena, struct pagepool_domain *domain);

/**
 * Returns a buffer to its pool: into the cache on the owner's thread, otherwise through the thread's lane or
 * the ring. Linux: page_pool_put_full_page.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -ESTALE for a buffer that was returned before, -EINVAL for a value that never was a buffer.
 *     Nothing changes then.
 * Cost: on the owner's thread about fifteen instructions, and no atomic operation until another thread first
 *     returns a buffer of the pool; one compare-and-swap after that. On other threads one compare-and-swap
 *     and one store.
 */
int pagepool_buf_put(struct pagepool_buf *buf);

/**
 * Returns a buffer through the locked ring, on every thread. Linux: page_pool_put_full_page outside softirq.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: as pagepool_buf_put.
 * Cost: a lock.
 */
int pagepool_buf_put_ring(struct pagepool_buf *buf);

/**
 * Returns a buffer of which only the first `dirty` packet bytes were written, and syncs no more than these
 * for the device. Linux: page_pool_put_page with a dma_sync_size.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: as pagepool_buf_put.
 * Cost: as pagepool_buf_put, and the sync.
 */
int pagepool_buf_put_sync(struct pagepool_buf *buf, size_t dirty);

/**
 * Returns a buffer into the cache of its pool, and checks that the caller owns that pool. Linux:
 * page_pool_recycle_direct.
 *
 * Thread: owner.
 * Ownership: the handle ends, unless the call fails.
 * Errors: -EPERM on another thread. -EINVAL for a buffer of another pool. Otherwise as pagepool_buf_put.
 * Cost: a lookup more than pagepool_buf_put.
 */
int pagepool_recycle_direct(struct pagepool *pool, struct pagepool_buf *buf);

/**
 * Gives the address of the page or fragment. NULL for memory that the CPU cannot read, or a bad handle.
 * Linux: page_address.
 *
 * Thread: the one that has the buffer.
 * Ownership: the bytes are the caller's until the buffer is returned.
 * Cost: a lookup.
 */
void *pagepool_buf_data(struct pagepool_buf *buf);

/**
 * Gives the size in bytes: of the page, or of the fragment with what it received at the end of its page. 0
 * for a bad handle. Linux: truesize.
 *
 * Thread: the one that has the buffer.
 * Cost: a lookup.
 */
size_t pagepool_buf_len(struct pagepool_buf *buf);

/**
 * Gives the offset of a fragment in its page; 0 for a whole page, SIZE_MAX for a bad handle.
 *
 * Thread: the one that has the buffer.
 * Cost: a lookup.
 */
size_t pagepool_buf_offset(struct pagepool_buf *buf);

/**
 * Gives the device address of the first byte in the pool's first domain. UINT64_MAX if the pool has no
 * domain, if the device has gone, or for a bad handle. Linux: page_pool_get_dma_addr plus the offset.
 *
 * Thread: the one that has the buffer.
 * Cost: a lookup.
 */
uint64_t pagepool_buf_dma_addr(struct pagepool_buf *buf);

/**
 * Gives the number of the page in its arena, in units of 4096 bytes. For a page of a higher order it is the
 * number of its first 4096 bytes, for a fragment that of its page. UINT32_MAX for a bad handle.
 *
 * Thread: the one that has the buffer.
 * Cost: a lookup.
 */
uint32_t pagepool_buf_page_index(struct pagepool_buf *buf);

/**
 * Gives 1 for a fragment of a page and 0 for a whole page.
 *
 * Thread: the one that has the buffer.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lookup.
 */
int pagepool_buf_is_frag(struct pagepool_buf *buf);

/**
 * Gives the address where the packet begins: behind the headroom and the colour of a page, at the start of a
 * fragment. NULL for memory that the CPU cannot read, or a bad handle.
 *
 * Thread: the one that has the buffer.
 * Cost: a lookup.
 */
void *pagepool_buf_packet(struct pagepool_buf *buf);

/**
 * Gives the largest packet that fits, in bytes: `max_len` for a whole page, the size of a fragment. 0 for a
 * bad handle.
 *
 * Thread: the one that has the buffer.
 * Cost: a lookup.
 */
size_t pagepool_buf_packet_capacity(struct pagepool_buf *buf);

/**
 * Hands `len` bytes from `offset` in the buffer to the CPU, in every domain that is not coherent. Linux:
 * page_pool_dma_sync_for_cpu.
 *
 * Thread: the one that has the buffer.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lookup, and the syncs of the domains.
 */
int pagepool_buf_sync_for_cpu(struct pagepool_buf *buf, size_t offset, size_t len);

/**
 * Hands `len` bytes from `offset` in the buffer to the device, in every domain that is not coherent. Call it
 * before the device transmits them. Linux: dma_sync_single_range_for_device.
 *
 * Thread: the one that has the buffer.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lookup, and the syncs of the domains.
 */
int pagepool_buf_sync_for_device(struct pagepool_buf *buf, size_t offset, size_t len);

/**
 * Returns `n` buffers of any pools. Linux: page_pool_put_netmem_bulk.
 *
 * Thread: any.
 * Ownership: every handle ends. The array stays the caller's and is unchanged.
 * Errors: that of the first handle that failed; all others are returned nevertheless. -EINVAL for a NULL
 *     array.
 * Cost: per buffer as pagepool_buf_put without the call. On other threads than the owner's the pool is
 *     checked once per run of 64 buffers.
 */
int pagepool_buf_put_bulk(struct pagepool_buf **bufs, size_t n);

/**
 * Returns `n` buffers through the locked rings of their pools, on every thread.
 *
 * Thread: any.
 * Ownership: every handle ends. The array stays the caller's and is unchanged.
 * Errors: as pagepool_buf_put_bulk.
 * Cost: a lock per pool and 64 buffers.
 */
int pagepool_buf_put_ring_bulk(struct pagepool_buf **bufs, size_t n);

/**
 * Takes a reference to the page of a buffer: its memory is not used again until the reference is put, even
 * if the buffer returns before. For DMA that nobody can stop. A page that returns meanwhile leaves its pool
 * (`recycle_released_refcnt`). Linux: get_page.
 *
 * Thread: the one that has the buffer.
 * Ownership: `*page_ref` is the caller's, to be put once; the buffer is unchanged.
 * Errors: -ENOMEM without memory for the table. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock and two atomic operations.
 */
int pagepool_buf_page_ref(struct pagepool_buf *buf, struct pagepool_page_ref **page_ref);

/**
 * Puts a reference to a page. The last one of a page that left its pool returns the memory to the arena.
 * Linux: put_page.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -ESTALE for a reference that was put before, -EINVAL for a value that never was one.
 * Cost: a lock and an atomic operation.
 */
int pagepool_page_ref_put(struct pagepool_page_ref *page_ref);

/**
 * Gives the number of the page in its arena; UINT32_MAX for a bad handle.
 *
 * Thread: any.
 * Cost: a lock.
 */
uint32_t pagepool_page_ref_page_index(struct pagepool_page_ref *page_ref);

/**
 * Gives the address of the page; NULL for memory that the CPU cannot read, or a bad handle.
 *
 * Thread: any.
 * Cost: a lock.
 */
void *pagepool_page_ref_data(struct pagepool_page_ref *page_ref);

/**
 * Turns a buffer into its device address, for a descriptor ring. pagepool_from_raw or pagepool_put_addr
 * turns the address back.
 *
 * Thread: the one that has the buffer.
 * Ownership: the handle ends, unless the call fails; the address is the caller's.
 * Errors: -EOPNOTSUPP in a pool without domains, and for a fragment that shares a cache line with another
 *     (`frag_align` below 64). -EINVAL, -ESTALE for a bad handle.
 * Cost: a lookup and one or two atomic operations.
 */
int pagepool_buf_into_raw(struct pagepool_buf *buf, struct pagepool_raw *raw);

/**
 * Allocates up to `n` whole pages as device addresses into `addrs`, for a fill ring. Gives their number. It
 * equals pagepool_alloc_bulk and pagepool_buf_into_raw without the handles between. Linux:
 * page_pool_alloc_pages for a fill ring.
 *
 * Thread: owner.
 * Ownership: these addresses are the caller's, for pagepool_from_raw or pagepool_put_addr. The others in
 *     `addrs` are unchanged.
 * Errors: fewer than `n`: no page (-ENOMEM), a pool without domains (-EOPNOTSUPP), another thread (-EPERM),
 *     a bad handle. pagepool_last_error says which.
 * Cost: per page as pagepool_alloc_page without the call, and one atomic operation.
 */
size_t pagepool_alloc_addr_bulk(struct pagepool *pool, uint64_t *addrs, size_t n);

/**
 * Turns an address that came back from a descriptor ring into a buffer again. The address may lie anywhere
 * in the buffer. A fragment comes back with its size rounded up to whole cache lines.
 *
 * Thread: any.
 * Ownership: the buffer is the caller's.
 * Errors: NULL for an address that is not the pool's (-EINVAL), or that is not out in raw form (-ESTALE: it
 *     came back before). Nothing changes then.
 * Cost: a lookup and one atomic operation; on other threads than the owner's also a lock.
 */
struct pagepool_buf *pagepool_from_raw(struct pagepool *pool, uint64_t addr);

/**
 * Returns a buffer by its device address. Linux: page_pool_free_va, which takes the address of the CPU.
 *
 * Thread: any; on the owner's the page goes into the cache.
 * Ownership: the address ends.
 * Errors: -EINVAL for an address that is not the pool's, -ESTALE for one that is not out in raw form (it
 *     came back before). Nothing changes then.
 * Cost: a lookup and two atomic operations; on other threads than the owner's also a lock, which keeps the
 *     pool.
 */
int pagepool_put_addr(struct pagepool *pool, uint64_t addr);

/**
 * Returns `n` buffers by their device addresses.
 *
 * Thread: any.
 * Ownership: every address ends.
 * Errors: that of the first address that failed; all others are returned nevertheless. -EINVAL for a NULL
 *     array.
 * Cost: per address as pagepool_put_addr.
 */
int pagepool_put_addr_bulk(struct pagepool *pool, const uint64_t *addrs, size_t n);

/**
 * Makes a buffer shared: many readers may have a handle, and the buffer returns with the last of them.
 * Linux: page_pool_ref_page.
 *
 * Thread: the one that has the buffer.
 * Ownership: the handle of the buffer ends; `*shared` is the caller's, to be put once.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock and one atomic operation.
 */
int pagepool_buf_share(struct pagepool_buf *buf, struct pagepool_shared **shared);

/**
 * Makes a handle for one more reader of a shared buffer. Linux: page_pool_ref_page.
 *
 * Thread: any.
 * Ownership: `*clone` is the caller's, to be put once.
 * Errors: -ENOMEM without memory for the table. -EINVAL, -ESTALE for a bad handle.
 * Cost: two locks and one atomic operation.
 */
int pagepool_shared_clone(struct pagepool_shared *shared, struct pagepool_shared **clone);

/**
 * Puts the handle of one reader; the last one returns the buffer. Linux: page_pool_unref_page.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -ESTALE for a handle that was put before, -EINVAL for a value that never was one.
 * Cost: a lock and one atomic operation; the last reader's as pagepool_buf_put.
 */
int pagepool_shared_put(struct pagepool_shared *shared);

/**
 * Gives the address of the page or fragment, to be read only. NULL for memory that the CPU cannot read, or a
 * bad handle.
 *
 * Thread: any that has a handle.
 * Ownership: the bytes stay until the handle is put.
 * Cost: a lock.
 */
const void *pagepool_shared_data(struct pagepool_shared *shared);

/**
 * Gives the size in bytes; 0 for a bad handle.
 *
 * Thread: any that has a handle.
 * Cost: a lock.
 */
size_t pagepool_shared_len(struct pagepool_shared *shared);

/**
 * Gives the device address of the first byte in the pool's first domain. UINT64_MAX if the pool has no
 * domain, if the device has gone, or for a bad handle.
 *
 * Thread: any that has a handle.
 * Cost: a lock.
 */
uint64_t pagepool_shared_dma_addr(struct pagepool_shared *shared);

/**
 * Takes a reference to the page of a shared buffer, as pagepool_buf_page_ref does.
 *
 * Thread: any that has a handle.
 * Ownership: `*page_ref` is the caller's, to be put once; the shared handle stays.
 * Errors: -ENOMEM without memory for the table. -EINVAL, -ESTALE for a bad handle.
 * Cost: two locks and an atomic operation.
 */
int pagepool_shared_page_ref(struct pagepool_shared *shared, struct pagepool_page_ref **page_ref);

/**
 * Registers a user of deferred buffers with a pool that has a deferred queue (`defer_capacity`).
 *
 * Thread: owner.
 * Ownership: `*user` is the caller's, to be put once.
 * Errors: -EOPNOTSUPP in a pool without a queue. -EINVAL names what is missing. -EPERM on another thread.
 *     -EINVAL, -ESTALE for a bad handle. `release` is not called then.
 * Cost: allocates.
 */
int pagepool_deferred_user_create(struct pagepool *pool,
                                  const struct pagepool_deferred_user_ops *ops,
                                  struct pagepool_deferred_user **user);

/**
 * Puts a user. Its buffers stay deferred until it is done with them; then `release` is called, at the next
 * poll.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_deferred_user_put(struct pagepool_deferred_user *user);

/**
 * Puts a buffer that its user still reads into the deferred queue of its pool, and does not block. The
 * buffer returns once `in_use` gives 0 for the cookie. Refills that find the cache empty ask, and so does
 * pagepool_poll_deferred. After pagepool_destroy_watched it is pagepool_shutdown_wait and
 * pagepool_shutdown_report that ask, after pagepool_destroy every call that makes or destroys a pool.
 *
 * Thread: owner.
 * Ownership: the handle ends, unless the call fails.
 * Errors: -ENOBUFS when `defer_capacity` buffers are deferred. -EINVAL for a buffer or a user of another
 *     pool. -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lookup and two short locks; no allocation.
 */
int pagepool_defer(struct pagepool *pool,
                   struct pagepool_deferred_user *user,
                   struct pagepool_buf *buf,
                   uint64_t cookie);

/**
 * Asks once about the buffers in the deferred queue, as the pool's `on_busy` says. Gives the number of those
 * that returned.
 *
 * Thread: owner.
 * Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: a callback per user, and one per buffer that is asked about.
 */
int64_t pagepool_poll_deferred(struct pagepool *pool);

/**
 * Reads the counters of a pool's deferred queue into `*stats`, `size` bytes: sizeof(*stats). All are 0 in a
 * pool without a queue.
 *
 * Thread: any.
 * Errors: -EINVAL for NULL or a size that no struct has. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock; nothing on the owner's thread.
 */
int pagepool_deferred_stats(struct pagepool *pool, struct pagepool_deferred_stats *stats, size_t size);

/**
 * Makes a domain of the caller's callbacks: an IOMMU, a device's own translation, a test that checks.
 *
 * Thread: any.
 * Ownership: `*domain` is the caller's, to be put once; pools that use it keep it.
 * Errors: -EINVAL names what is missing.
 * Cost: allocates.
 */
int pagepool_domain_create(const struct pagepool_domain_ops *ops, struct pagepool_domain **domain);

/**
 * Makes a domain in which a device address is the address of the CPU.
 *
 * Thread: any.
 * Ownership: `*domain` is the caller's, to be put once; pools that use it keep it.
 * Errors: -EINVAL for NULL.
 * Cost: allocates.
 */
int pagepool_domain_identity(const char *name, struct pagepool_domain **domain);

/**
 * Makes a domain in which a device address is the offset in the arena, as in an AF_XDP UMEM. It fixes the
 * arena, which must be committed before (`commit_all`).
 *
 * Thread: any.
 * Ownership: `*domain` is the caller's, to be put once; pools that use it keep it.
 * Errors: -EINVAL for NULL.
 * Cost: allocates.
 */
int pagepool_domain_offset(const char *name, struct pagepool_domain **domain);

/**
 * Puts a domain. Pools that use it keep it; its `release` is called when the last of them is freed.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_domain_put(struct pagepool_domain *domain);

/**
 * Gives the buffer's device address in a domain, if its arena is mapped there: the device may use the buffer
 * without a new mapping. UINT64_MAX if it is not, or for a bad handle.
 *
 * Thread: the one that has the buffer.
 * Cost: two lookups; a lock for a domain that is not the pool's.
 */
uint64_t pagepool_buf_dma_addr_in(struct pagepool_buf *buf, struct pagepool_domain *domain);

/**
 * Makes a pool over an arena's memory, and maps that memory in the pool's domains. No thread owns the pool
 * yet. Linux: page_pool_create.
 *
 * Thread: any.
 * Ownership: `*pool` is the caller's, to be destroyed once. The pool keeps the arena and the domains.
 * Errors: -EINVAL names the parameter, its value and its range. -EIO names the domain that did not map.
 *     -ENOMEM and -EMFILE name what the system refused. `*pool` is then unchanged.
 * Cost: allocates; a few microseconds.
 */
int pagepool_create(const struct pagepool_params *params, struct pagepool **pool);

/**
 * Ends a pool, and does not wait. Pages in its cache and rings go back to the arena now, buffers that are
 * out when they return; the last one frees the pool, on any thread. Use pagepool_destroy_watched to wait for
 * that, and if buffers are out as raw addresses, which pagepool_shutdown_put_addr then returns. After
 * pagepool_destroy nothing can return these. Their pages stay out, so that a device that still writes there
 * damages nothing, and pool and arena stay until the process ends. Linux: page_pool_destroy.
 *
 * Thread: owner; any while no thread owns the pool.
 * Ownership: the handle ends. Buffers that are out stay valid.
 * Errors: -EPERM on another thread. -EBUSY in a callback of the pool's own call. -EINVAL, -ESTALE for a bad
 *     handle.
 * Cost: locks; proportional to the pages in the pool.
 */
int pagepool_destroy(struct pagepool *pool);

/**
 * Makes the calling thread the owner: the thread that allocates, and whose returns go into the cache. A
 * thread that owns the pool already stays its owner. A thread that ends unbinds its pools. Linux:
 * page_pool_enable_direct_recycling.
 *
 * Thread: any.
 * Errors: -EPERM if another thread owns the pool, or if the calling thread is ending. -EINVAL, -ESTALE for a
 *     bad handle.
 * Cost: a lock.
 */
int pagepool_bind(struct pagepool *pool);

/**
 * Gives up a pool, so that another thread can bind it. Buffers that this thread returns later take the way
 * of other threads. Linux: page_pool_disable_direct_recycling.
 *
 * Thread: owner.
 * Errors: -EPERM on another thread. -EBUSY in a callback. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_unbind(struct pagepool *pool);

/**
 * Allocates a whole page. Its bytes are those of its last packet. Linux: page_pool_dev_alloc_pages.
 *
 * Thread: owner.
 * Ownership: the buffer is the caller's until it is returned.
 * Errors: NULL without a page (-ENOMEM, and `alloc_failed` counts it), on another thread (-EPERM), or for a
 *     bad handle.
 * Cost: from the cache about ten instructions and no atomic operation; otherwise a refill of up to 64 pages.
 */
struct pagepool_buf *pagepool_alloc_page(struct pagepool *pool);

/**
 * Allocates a fragment of `size` bytes of a page that other fragments share. It begins at a multiple of
 * `frag_align`. Linux: page_pool_dev_alloc_frag.
 *
 * Thread: owner.
 * Ownership: the fragment is the caller's until it is returned; its page returns with the last fragment.
 * Errors: NULL for a size of 0 or beyond the page (-EINVAL), without a page (-ENOMEM), on another thread
 *     (-EPERM), or for a bad handle.
 * Cost: about forty instructions and no atomic operation.
 */
struct pagepool_buf *pagepool_alloc_frag(struct pagepool *pool, size_t size);

/**
 * Allocates a whole page if two of `*size` do not fit into one, otherwise a fragment, and stores its true
 * size into `*size`. If no second fragment of that size fits behind it, the rest of the page belongs to it.
 * Linux: page_pool_dev_alloc.
 *
 * Thread: owner.
 * Ownership: the buffer is the caller's until it is returned.
 * Errors: NULL as for pagepool_alloc_frag, and for a NULL `size`. `*size` is then unchanged.
 * Cost: as pagepool_alloc_page or pagepool_alloc_frag.
 */
struct pagepool_buf *pagepool_alloc(struct pagepool *pool, size_t *size);

/**
 * Allocates up to `n` whole pages into `bufs`. Gives their number. Linux: page_pool_dev_alloc_pages in a
 * loop.
 *
 * Thread: owner.
 * Ownership: these buffers are the caller's. The others in `bufs` are unchanged.
 * Errors: fewer than `n`, for the reasons of pagepool_alloc_page.
 * Cost: per page as pagepool_alloc_page, without the call.
 */
size_t pagepool_alloc_bulk(struct pagepool *pool, struct pagepool_buf **bufs, size_t n);

/**
 * Writes a line per pool of this process that was made through this library: name, id, state, where its
 * pages are, its counters. A destroyed pool is listed until its last buffer returns. The text is cut to
 * `len` bytes and ends with a zero byte. Gives the full length. `text` may be NULL. Linux: the netlink dump
 * of page pools.
 *
 * Thread: any.
 * Errors: none.
 * Cost: locks and formats, pool by pool; nothing on the owners' threads.
 */
int64_t pagepool_dump(char *text, size_t len);

/**
 * Sets the node that the pool prefers; -1 is the node of the thread that refills, asked each time. Pages in
 * the cache go back to the arena. Linux: page_pool_update_nid.
 *
 * Thread: owner.
 * Errors: -EINVAL for a node that the arena does not have; nothing changes then. -EPERM on another thread.
 *     -EINVAL, -ESTALE for a bad handle.
 * Cost: proportional to the pages in the cache.
 */
int pagepool_update_nid(struct pagepool *pool, int nid);

/**
 * Calls pagepool_update_nid if the node differs from the pool's. Linux: page_pool_nid_changed.
 *
 * Thread: owner.
 * Errors: as pagepool_update_nid.
 * Cost: a comparison if the node is the same.
 */
int pagepool_nid_changed(struct pagepool *pool, int nid);

/**
 * Ends a pool as pagepool_destroy does, and gives a handle to wait for its last buffer and to ask what is
 * out. Linux: page_pool_destroy.
 *
 * Thread: owner; any while no thread owns the pool.
 * Ownership: the pool's handle ends. `*shutdown` is the caller's, to be put once; it keeps the pool's
 *     domains.
 * Errors: as pagepool_destroy; the pool stays then.
 * Cost: as pagepool_destroy.
 */
int pagepool_destroy_watched(struct pagepool *pool, struct pagepool_shutdown **shutdown);

/**
 * Waits at most `timeout_ns` nanoseconds until the last buffer has returned and the pool is freed. It sleeps
 * and does not spin.
 *
 * Thread: any.
 * Errors: -ETIMEDOUT, with the report as the sentence. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock; a system call to sleep.
 */
int pagepool_shutdown_wait(struct pagepool_shutdown *shutdown, uint64_t timeout_ns);

/**
 * Gives the number of pages that are out, and writes a report into `text`: "stalled pool shutdown: N buffers
 * held for S s", and the pages with their tags. The text is cut to `len` bytes and ends with a zero byte.
 * `text` may be NULL.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a walk over the arena's records.
 */
int64_t pagepool_shutdown_report(struct pagepool_shutdown *shutdown, char *text, size_t len);

/**
 * Returns a buffer of a destroyed pool by its device address, also after the pool was freed.
 *
 * Thread: any.
 * Ownership: the address ends.
 * Errors: -EINVAL for an address that is not the pool's, -ESTALE for one that is not out in raw form; one
 *     that came back before is either. Nothing changes then. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock and about four atomic operations.
 */
int pagepool_shutdown_put_addr(struct pagepool_shutdown *shutdown, uint64_t addr);

/**
 * Puts the handle of a shutdown. The last buffer frees the pool, with or without it.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_shutdown_put(struct pagepool_shutdown *shutdown);

/**
 * Reads the pool's counters into `*stats`, `size` bytes: sizeof(*stats). It sets them and does not add. They
 * are exact while the pool is at rest. Linux: page_pool_get_stats.
 *
 * Thread: any.
 * Errors: -EINVAL for NULL or a size that no struct has. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock; nothing on the owner's thread.
 */
int pagepool_stats(struct pagepool *pool, struct pagepool_stats *stats, size_t size);

/**
 * Gives the number of pages that joined the pool and have not left: hold - release, also across wrap-around.
 * Linux: page_pool_inflight.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int64_t pagepool_inflight(struct pagepool *pool);

/**
 * Gives the bytes lost when pages were cut into fragments: the ends of pages, and alignment.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int64_t pagepool_frag_waste(struct pagepool *pool);

/**
 * Counts the pool's pages by the place where they are.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_buffer_locations(struct pagepool *pool, struct pagepool_buffer_locations *places);

/**
 * Makes a tag of a pool that was made with `tagging`. Gives its number, 0 or more. The same name gives the
 * same number.
 *
 * Thread: owner.
 * Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_tag(struct pagepool *pool, const char *name);

/**
 * Records who has a buffer now. It has no effect in a pool made without `tagging`.
 *
 * Thread: the one that has the buffer.
 * Errors: -EINVAL for a tag that is not of this pool. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_buf_set_tag(struct pagepool *pool, struct pagepool_buf *buf, int tag);

/**
 * Gives the descriptor of a pool made with `wakeup`, to be polled together with the device's. It is readable
 * once another thread returned a buffer after an allocation failed, or after fewer than `low_water` pages
 * were left.
 *
 * Thread: owner.
 * Ownership: the descriptor is the pool's.
 * Errors: -EOPNOTSUPP in a pool without one. -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: a load.
 */
int pagepool_wake_fd(struct pagepool *pool);

/**
 * Clears the descriptor after it woke the owner, so that the owner can sleep on it again.
 *
 * Thread: owner.
 * Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: a system call.
 */
int pagepool_acknowledge_wake(struct pagepool *pool);

/**
 * Gives the lowest number of pages that cache and arena had together whenever the arena was asked.
 *
 * Thread: owner.
 * Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: a load.
 */
int64_t pagepool_low_water_mark(struct pagepool *pool);

/**
 * Makes a cache for the descriptions of `packets` packets, 1 to 16777216, of 1100 bytes each. Clones of a
 * packet share one. Memory is committed when it is first used. Linux: skbuff_cache.
 *
 * Thread: any.
 * Ownership: `*cache` is the caller's, to be put once.
 * Errors: -EINVAL for a number out of range. -ENOMEM.
 * Cost: allocates.
 */
int pagepool_skb_cache_create(size_t packets, struct pagepool_skb_cache **cache);

/**
 * Puts a cache. Packets that are out stay valid; the last of them frees it.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_skb_cache_put(struct pagepool_skb_cache *cache);

/**
 * Makes a packet of `len` bytes at `offset` in a buffer, without a copy. The buffer is the head of the
 * packet; the bytes before `offset` are headroom. A buffer that the CPU cannot read is its first fragment
 * instead. Linux: build_skb.
 *
 * Thread: the one that has the buffer.
 * Ownership: the handle of the buffer ends, unless the call fails. `*skb` is the caller's, to be put once.
 * Errors: -EINVAL for bytes beyond the buffer or in its tailroom. -ENOBUFS when the cache is exhausted.
 *     -EINVAL, -ESTALE for a bad handle.
 * Cost: three short locks and one compare-and-swap.
 */
int pagepool_skb_from_buf(struct pagepool_skb_cache *cache,
                          struct pagepool_buf *buf,
                          size_t offset,
                          size_t len,
                          struct pagepool_skb **skb);

/**
 * Makes an empty packet in ordinary memory, with `headroom` bytes and then room for `len` bytes in its head.
 * Linux: alloc_skb, skb_reserve.
 *
 * Thread: any.
 * Ownership: `*skb` is the caller's, to be put once.
 * Errors: -ENOBUFS when the cache is exhausted. -ENOMEM. -EINVAL, -ESTALE for a bad handle.
 * Cost: as pagepool_skb_from_buf; allocates if `headroom` and `len` exceed 512 bytes.
 */
int pagepool_skb_alloc(struct pagepool_skb_cache *cache,
                       size_t headroom,
                       size_t len,
                       struct pagepool_skb **skb);

/**
 * Makes another packet with the same data; each has its own ends. The data returns with the last of them.
 * Nobody may write the bytes while there are clones. Linux: skb_clone.
 *
 * Thread: any, one at a time per packet.
 * Ownership: `*clone` is the caller's, to be put once.
 * Errors: -EBUSY during another call about the packet. -ENOMEM without memory for the table. -EINVAL,
 *     -ESTALE for a bad handle.
 * Cost: two short locks and one atomic operation.
 */
int pagepool_skb_clone(struct pagepool_skb *skb, struct pagepool_skb **clone);

/**
 * Puts a packet. The last of its clones returns every buffer as pagepool_buf_put does, and calls the
 * callbacks of lent memory. Linux: kfree_skb.
 *
 * Thread: any, one at a time per packet.
 * Ownership: the handle ends.
 * Errors: -ESTALE for a packet that was put before. -EBUSY during another call about it. -EINVAL for a value
 *     that never was one.
 * Cost: two short locks, and the return of each buffer.
 */
int pagepool_skb_put(struct pagepool_skb *skb);

/**
 * Gives the bytes of the packet; 0 for a bad handle. Linux: skb->len.
 *
 * Thread: any, one at a time per packet.
 * Cost: a lock of the packet's own.
 */
size_t pagepool_skb_len(struct pagepool_skb *skb);

/**
 * Gives the bytes in the head; 0 for a bad handle. Linux: skb_headlen.
 *
 * Thread: any, one at a time per packet.
 * Cost: a lock of the packet's own.
 */
size_t pagepool_skb_head_len(struct pagepool_skb *skb);

/**
 * Gives the free bytes before the data of the head; 0 for a bad handle. Linux: skb_headroom.
 *
 * Thread: any, one at a time per packet.
 * Cost: a lock of the packet's own.
 */
size_t pagepool_skb_headroom(struct pagepool_skb *skb);

/**
 * Gives the free bytes behind the data of the head; 0 if the packet has fragments, or for a bad handle.
 * Linux: skb_tailroom.
 *
 * Thread: any, one at a time per packet.
 * Cost: a lock of the packet's own.
 */
size_t pagepool_skb_tailroom(struct pagepool_skb *skb);

/**
 * Gives the bytes of memory that the packet occupies; 0 for a bad handle. Linux: skb->truesize.
 *
 * Thread: any, one at a time per packet.
 * Cost: a lock of the packet's own, and a look at every fragment.
 */
size_t pagepool_skb_truesize(struct pagepool_skb *skb);

/**
 * Gives the number of fragments; 0 for a bad handle. Linux: skb_shinfo(skb)->nr_frags.
 *
 * Thread: any, one at a time per packet.
 * Cost: a lock of the packet's own.
 */
size_t pagepool_skb_nr_frags(struct pagepool_skb *skb);

/**
 * Gives 1 if a clone shares the data, otherwise 0. Linux: skb_cloned.
 *
 * Thread: any, one at a time per packet.
 * Errors: -EBUSY during another call about the packet. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock of the packet's own.
 */
int pagepool_skb_is_cloned(struct pagepool_skb *skb);

/**
 * Gives the address of the head's data, pagepool_skb_head_len bytes. They may be written only while the
 * packet is not cloned. NULL for a bad handle. Linux: skb->data.
 *
 * Thread: any, one at a time per packet.
 * Ownership: the address is valid until the head changes or the packet is put.
 * Cost: a lock of the packet's own.
 */
void *pagepool_skb_data(struct pagepool_skb *skb);

/**
 * Writes where the bytes of the packet lie into the first `n` elements of `iov`, in order, as sendmsg
 * expects them: the head if it has bytes, then every fragment. They are to be read only. Gives the number of
 * all, at most 18. `iov` may be NULL if `n` is 0. Linux: skb_to_sgvec.
 *
 * Thread: any, one at a time per packet.
 * Ownership: the addresses are valid until the packet changes or is put.
 * Errors: -EOPNOTSUPP for memory that the CPU cannot read. -EBUSY during another call about the packet.
 *     -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock of the packet's own.
 */
int64_t pagepool_skb_iovec(struct pagepool_skb *skb, struct iovec *iov, size_t n);

/**
 * Gives the device address of a segment in a domain: segment 0 is the head, the fragments begin at 1.
 * UINT64_MAX for memory that is not mapped there, a segment that does not exist, or a bad handle. Linux:
 * skb_frag_dma_map.
 *
 * Thread: any, one at a time per packet.
 * Cost: two locks and a lookup.
 */
uint64_t pagepool_skb_dma_addr(struct pagepool_skb *skb, size_t segment, struct pagepool_domain *domain);

/**
 * Copies `len` bytes from `offset` in the packet to `to`, across head and fragments. Linux: skb_copy_bits.
 *
 * Thread: any, one at a time per packet.
 * Errors: -EINVAL for bytes beyond the packet. -EOPNOTSUPP for memory that the CPU cannot read. -EBUSY
 *     during another call about the packet. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock of the packet's own, and the copy.
 */
int pagepool_skb_copy_bits(struct pagepool_skb *skb, size_t offset, void *to, size_t len);

/**
 * Appends `len` bytes at `offset` in a buffer, as a fragment. A packet has up to 17 fragments. Linux:
 * skb_add_rx_frag.
 *
 * Thread: any, one at a time per packet.
 * Ownership: the handle of the buffer ends, unless the call fails.
 * Errors: -EINVAL for bytes beyond the buffer. -ENOSPC for the 18th fragment. -EBUSY while a clone shares
 *     the data. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock of the packet's own.
 */
int pagepool_skb_add_buf(struct pagepool_skb *skb, struct pagepool_buf *buf, size_t offset, size_t len);

/**
 * Appends bytes of a shared buffer as a fragment: the packet is one more reader. Linux: skb_add_rx_frag,
 * page_pool_ref_page.
 *
 * Thread: any, one at a time per packet.
 * Ownership: the shared handle stays the caller's.
 * Errors: as pagepool_skb_add_buf.
 * Cost: two locks and one atomic operation.
 */
int pagepool_skb_add_shared(struct pagepool_skb *skb,
                            struct pagepool_shared *shared,
                            size_t offset,
                            size_t len);

/**
 * Appends memory of the caller's as a fragment that is only read. When no packet has it any more, `free` is
 * called once with `arg` and the memory, in the call that ended the last use: a put, a pull, a trim or a
 * copy into the head. The callback may use the library, except for that packet (-EBUSY). `free` may be NULL
 * for memory that stays forever. Linux: ubuf_info.
 *
 * Thread: any, one at a time per packet.
 * Ownership: the bytes must stay unchanged until `free` is called, on any thread. If the call fails, the
 *     memory stays the caller's and `free` is not called.
 * Errors: as pagepool_skb_add_buf. -EINVAL for NULL.
 * Cost: a lock of the packet's own; allocates a count.
 */
int pagepool_skb_add_memory(struct pagepool_skb *skb,
                            void *start,
                            size_t len,
                            void (*free)(void *arg, void *start, size_t len),
                            void *arg);

/**
 * Adds `len` bytes at the front of the packet, from its headroom, and stores their address into `*at` unless
 * `at` is NULL. They are not initialised. Linux: skb_push.
 *
 * Thread: any, one at a time per packet.
 * Errors: -ENOSPC without enough headroom (pagepool_skb_cow_head makes it). -EBUSY while a clone shares the
 *     data. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock of the packet's own.
 */
int pagepool_skb_push(struct pagepool_skb *skb, size_t len, void **at);

/**
 * Adds `len` bytes at the end of the head, from its tailroom, and stores their address into `*at` unless
 * `at` is NULL. They are not initialised. A packet with fragments has no tailroom. Linux: skb_put.
 *
 * Thread: any, one at a time per packet.
 * Errors: -ENOSPC without enough tailroom. -EBUSY while a clone shares the data. -EINVAL, -ESTALE for a bad
 *     handle.
 * Cost: a lock of the packet's own.
 */
int pagepool_skb_append(struct pagepool_skb *skb, size_t len, void **at);

/**
 * Removes `len` bytes from the front of the packet. Fragments without bytes left return at once. Linux:
 * pskb_pull.
 *
 * Thread: any, one at a time per packet.
 * Errors: -EINVAL for more bytes than the packet has. -ENOBUFS, -ENOMEM if the fragments of a clone need a
 *     description of their own. -EBUSY during another call about the packet. -EINVAL, -ESTALE for a bad
 *     handle.
 * Cost: a lock of the packet's own.
 */
int pagepool_skb_pull(struct pagepool_skb *skb, size_t len);

/**
 * Cuts the packet to its first `len` bytes; a shorter packet stays as it is. Linux: pskb_trim.
 *
 * Thread: any, one at a time per packet.
 * Errors: as pagepool_skb_pull.
 * Cost: a lock of the packet's own.
 */
int pagepool_skb_trim(struct pagepool_skb *skb, size_t len);

/**
 * Moves the first `len` bytes of the packet into its head, by a copy if they are not there. Linux:
 * pskb_may_pull.
 *
 * Thread: any, one at a time per packet.
 * Errors: -EINVAL for more bytes than the packet has. -EOPNOTSUPP for memory that the CPU cannot read.
 *     -ENOBUFS, -ENOMEM. -EBUSY during another call about the packet. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock of the packet's own, and the copy of the missing bytes.
 */
int pagepool_skb_make_linear(struct pagepool_skb *skb, size_t len);

/**
 * Gives a clone a head of its own in ordinary memory, and a reference to every fragment, so that it may be
 * written. A packet without clones stays as it is. Linux: skb_unclone.
 *
 * Thread: any, one at a time per packet.
 * Errors: -ENOBUFS, -ENOMEM. -EBUSY during another call about the packet. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock of the packet's own, and the copy of the head.
 */
int pagepool_skb_unclone(struct pagepool_skb *skb);

/**
 * Makes the head writable as pagepool_skb_unclone does, with at least `headroom` bytes of headroom. Linux:
 * skb_cow_head.
 *
 * Thread: any, one at a time per packet.
 * Errors: as pagepool_skb_unclone.
 * Cost: a lock of the packet's own, and the copy of the head if one is needed.
 */
int pagepool_skb_cow_head(struct pagepool_skb *skb, size_t headroom);

/**
 * Gives the version of the library, as "0.1.0".
 *
 * Thread: any.
 * Ownership: the text is the library's and stays.
 * Cost: none.
 */
const char *pagepool_version(void);

/**
 * Gives the sentence that explains the last error on this thread, or "" if there was none. It names the
 * parameter, its value and its range, or the system call and the remedy.
 *
 * Thread: any; each has its own sentence.
 * Ownership: the text is the library's. It is valid until the next call on this thread that fails.
 * Errors: none.
 * Cost: a load.
 */
const char *pagepool_last_error(void);

/**
 * Gives the tables of the inline functions, or NULL if library and header have different layouts; the inline
 * functions then call the library. For the header's own use, once per compiled file, before main.
 *
 * Thread: any.
 * Cost: none.
 */
const struct pagepool_inline_ *pagepool_inline_tables(uint32_t layout);

/* ---- Parameters with their defaults ---- */

/** Default parameters: `struct pagepool_params params = PAGEPOOL_PARAMS_INIT;`, then set `arena`. */
#define PAGEPOOL_PARAMS_INIT pagepool_params_init_()
/** Default parameters of an arena. */
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

/* ---- The fast paths, compiled into the program ---
 *
 * pagepool_alloc_page and pagepool_buf_put on the owner's thread, without a call. They do what the library
 * does, with the same checks, and call the library in all other cases. The names here are not for programs.
 * The tables belong to the library and are never freed. Each compiled file asks once, before main, whether
 * the library has the same layout; if not, every call goes to the library. Define PAGEPOOL_NO_INLINE to leave
 * this part out.
 *
 * Loads dominate the cost. So each thread keeps the address of the pool that it used last; that is a guess,
 * and every call compares it with the handle and the thread.
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
/* Without this a shared object would make a call to find the variable. Other C libraries than glibc may
 * refuse to load such an object at run time. */
#if defined(__GLIBC__)
#define PAGEPOOL_NEAR_ __attribute__((tls_model("initial-exec")))
#else
#define PAGEPOOL_NEAR_
#endif

/* A pool that nobody owns and that has no page: every comparison fails. */
PAGEPOOL_ONCE_ struct pagepool_view_ pagepool_no_view_2_;
/* The pool that this thread used last. The layout is in the name, so that two versions do not share it. */
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
        struct pagepool_view_ *views = (struct pagepool_view_ *)pagepool_tables_->views;
        struct pagepool_view_ *view = views + (token >> 4 & pagepool_tables_->view_mask);
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
                *word = home + ((uint64_t)1 << 32) + 1; /* the page is out, in its next life: see LifeWord */
                __atomic_store_n(&cache->count, at - 1, __ATOMIC_RELAXED);
                ++view->allocated;
                return (struct pagepool_buf *)(uintptr_t)(home + ((uint64_t)1 << 32) + 1);
            }
        }
    }
    return pagepool_alloc_slow_(pool);
}

/* For the biased owner, after it marked the beginning: the page goes into the cache if it is in that life. */
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
    uint32_t page = far >> 4 | far << 28; /* beyond every page for another kind: see PoolView::page_of */
    if (PAGEPOOL_LIKELY_(page < view->pages && view->bias == me)) {
        uint64_t counted = view->recycled;
        __atomic_store_n(&view->begun, counted + 1, __ATOMIC_RELAXED);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        if (PAGEPOOL_LIKELY_(__atomic_load_n(&view->bias, __ATOMIC_RELAXED) == me &&
                             pagepool_put_page_(view, page, token))) {
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
