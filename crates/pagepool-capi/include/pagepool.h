/*
 * pagepool: a user-space page pool for packet buffers. Generated; docs/c-api.md is the guide.
 *
 * Terms, in the order in which they build on each other:
 *   page      page_size << order bytes: an arena has its page_size (4096 by default), a pool its order
 *   arena     memory from which pools take pages
 *   buffer    a page, or a fragment of a page; it is out from its allocation until it is returned to its pool
 *   owner     the thread that called pagepool_bind, or pagepool_open: it alone allocates
 *   cache     the pool's free pages for the owner
 *   lane      a queue in which one other thread returns buffers to the owner, without a lock
 *   ring      a queue in which the threads without a lane return buffers, under a lock
 *   refill    what the owner does when its cache is empty: it takes pages from lanes, ring or arena
 *   domain    the address space of a device; pools map their memory in it, region by region
 *   headroom  free bytes before a packet; tailroom: free bytes after it
 *
 * A handle is a token, not an address. The library refuses a bad handle in every build, and nothing changes:
 * -EINVAL for NULL, another kind of handle, or a value that never was one; -ESTALE for a handle that was
 * released before. If two threads return the same buffer at the same time, one gets 0 and the other -ESTALE.
 *
 * Functions return 0 or a negative errno unless their comment says otherwise. pagepool_last_error explains
 * the last error. Nothing throws or unwinds. Signal handlers must not call the library.
 *
 * Functions that end in _put release a handle or return a buffer. After what it does, a comment names:
 *   Thread     who may call the function: "owner", "any", or the thread that holds the buffer
 *   Ownership  which handles and memory belong to whom afterwards
 *   Errors     when it fails
 *   Cost       what a call takes; docs/c-api.md lists times
 *   Linux      the corresponding function or field there
 */

#ifndef PAGEPOOL_H
#define PAGEPOOL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/**
 * For the fields `nid` and `node`: NUMA node n, 0 to 255; a negative n, such as DPDK's SOCKET_ID_ANY, is
 * PAGEPOOL_NODE_ANY. A bare number above 0 is refused there, and 0 is the default, so a struct of zeroes
 * names no node. `n` is evaluated twice.
 */
#define PAGEPOOL_NODE(n) ((n) < 0 ? PAGEPOOL_NODE_ANY : 256 + (n))

/**
 * Any node: for an arena the memory policy of the process decides, for a pool the node of the thread that
 * refills. It is the default in fields. Arguments need it, because their 0 is node 0.
 */
#define PAGEPOOL_NODE_ANY -1

/**
 * For an arena: the node of the thread that makes it grow.
 */
#define PAGEPOOL_NODE_LOCAL -2

/**
 * The default: PAGEPOOL_BACKING_TRANSPARENT_HUGE.
 */
#define PAGEPOOL_BACKING_DEFAULT 0

/**
 * Anonymous memory in pages of 4 KiB.
 */
#define PAGEPOOL_BACKING_ANONYMOUS_4K 1

/**
 * Anonymous memory; the kernel may use transparent huge pages for it.
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
 * A memfd in pages of 4 KiB, which a peer process can map.
 */
#define PAGEPOOL_BACKING_MEMFD 5

/**
 * A memfd of hugetlb pages of 2 MiB.
 */
#define PAGEPOOL_BACKING_MEMFD_HUGE 6

/**
 * The caller's memory: `memory` and `max_bytes`.
 */
#define PAGEPOOL_BACKING_CALLER 7

/**
 * Memory of a device, which the CPU cannot read: its pages have numbers and device addresses only. It is on
 * node 0 unless `node` names another.
 */
#define PAGEPOOL_BACKING_DEVICE 8

/**
 * For pagepool_open, added to a kind of huge pages: fail if no huge pages are available.
 */
#define PAGEPOOL_HUGE_OR_FAIL 256

/**
 * Keep the buffer in the queue, and end the poll. For users that finish in queue order.
 */
#define PAGEPOOL_ON_BUSY_KEEP 0

/**
 * Keep the buffer in the queue, and check the buffers behind it. For users that keep single buffers long.
 */
#define PAGEPOOL_ON_BUSY_SKIP 1

/**
 * Remove the buffer from the queue, at most one per poll, and its page from the pool. The memory returns to
 * the arena once the user is done.
 */
#define PAGEPOOL_ON_BUSY_RELEASE 2

/**
 * Record nothing.
 */
#define PAGEPOOL_HOLDERS_OFF 0

/**
 * Record since when each buffer is out, and its tag.
 */
#define PAGEPOOL_HOLDERS_AGES 1

/**
 * Also record the thread and the place in the program that allocated it: file and line if the program has
 * debug information, otherwise the function or the address. The first allocation of each place looks that
 * up, which allocates, and takes up to milliseconds.
 */
#define PAGEPOOL_HOLDERS_SITES 2

/**
 * Also record the call stack of some allocations. Taking a stack reads the program's debug information: it
 * allocates, and takes up to milliseconds.
 */
#define PAGEPOOL_HOLDERS_STACKS 3

/**
 * For `max_lanes`: no thread has a lane.
 */
#define PAGEPOOL_NO_LANES UINT32_MAX

/**
 * For `colour`: packets begin at the same offset in every page.
 */
#define PAGEPOOL_NO_COLOUR UINT32_MAX

/**
 * An arena: memory from which pools take pages. pagepool_arena_create creates it.
 */
struct pagepool_arena;

/**
 * A batch: whole pages of one pool that move together, without a handle for each. pagepool_batch_create
 * creates it.
 */
struct pagepool_batch;

/**
 * A buffer: a page of a pool, or a fragment of a page. The owner allocates it; any thread returns it, once.
 */
struct pagepool_buf;

/**
 * A user of deferred buffers: pagepool_deferred_user_create registers it.
 */
struct pagepool_deferred_user;

/**
 * A domain: the address space of a device. pagepool_domain_create, _identity and _offset create it.
 */
struct pagepool_domain;

/**
 * A reference to a page, which keeps its memory from being used again: pagepool_buf_page_ref takes it.
 */
struct pagepool_page_ref;

/**
 * A pool of pages: pagepool_create creates it, pagepool_destroy destroys it.
 */
struct pagepool;

/**
 * One reader's handle of a shared buffer: pagepool_buf_share and pagepool_shared_clone make it.
 */
struct pagepool_shared;

/**
 * The shutdown of a pool: pagepool_destroy_watched creates it, pagepool_shutdown_wait waits for it.
 */
struct pagepool_shutdown;

/**
 * The parameters of an arena. Start from PAGEPOOL_ARENA_PARAMS_INIT, or from zeroes with `size` set: in each
 * field 0 selects the default.
 */
struct pagepool_arena_params {
    /**
     * sizeof(struct pagepool_arena_params): fields can be added at the end.
     */
    size_t size;
    /**
     * The largest size of the arena in bytes: a multiple of 4096, or of the huge page size for the hugetlb
     * kinds; rounded up to the system's page, if that is larger (arm64). 0 means 64 MiB. With
     * PAGEPOOL_BACKING_CALLER it is the length of `memory`.
     */
    uint64_t max_bytes;
    /**
     * The kind of memory: one of PAGEPOOL_BACKING_.
     */
    uint32_t backing;
    /**
     * The NUMA node of the memory: PAGEPOOL_NODE(n) for node n, PAGEPOOL_NODE_LOCAL, or 0 or
     * PAGEPOOL_NODE_ANY for any node. No effect if `nodes` is not 0.
     */
    int node;
    /**
     * For tests: the number of simulated NUMA nodes, 1 to 255. 0 means the nodes of the machine.
     */
    uint32_t nodes;
    /**
     * 1: fail if no huge pages are available. 0: take smaller pages instead, which pagepool_arena_describe
     * reports.
     */
    uint32_t huge_or_fail;
    /**
     * For tests with `nodes`: returns the simulated node of a page. NULL divides the arena into `nodes`
     * equal parts. The library calls it on any thread, when it commits memory; the callback must not call
     * the library. A page of a higher order requires all its base pages on one node.
     */
    uint32_t (*node_of_page)(uint32_t page_index, void *arg);
    /**
     * The second argument of `node_of_page`.
     */
    void *arg;
    /**
     * The name in descriptions and of the memfd; copied. NULL means "arena".
     */
    const char *name;
    /**
     * With PAGEPOOL_BACKING_CALLER: the memory, aligned to 4096 bytes. It must stay until the handle of the
     * arena is released and its last pool is freed.
     */
    void *memory;
    /**
     * 1: let the kernel provide the memory of a region when it is committed, not at the first access. On a
     * machine with several nodes it always does so, unless `node` names one.
     */
    uint32_t prefault;
    /**
     * 1: lock the memory into RAM, as mlock(2) does.
     */
    uint32_t mlock;
    /**
     * 1: commit all memory now and never trim it. Domains that fix the arena (an AF_XDP UMEM) require it.
     */
    uint32_t commit_all;
    /**
     * 1: a child of fork(2) inherits the memory. 0: it does not. No effect on the caller's memory.
     */
    uint32_t inherit_on_fork;
    /**
     * Bytes of a page of order 0: 2048 or 4096. 0 means 4096. With 2048, a packet of 1514 bytes takes half
     * the memory, if its headroom and tailroom fit in the other 534 bytes. Not for PAGEPOOL_BACKING_DEVICE.
     */
    uint64_t page_size;
};

/**
 * A buffer as a device address and a length, 16 bytes. Programs keep arrays of it beside a descriptor ring,
 * so unlike other results it has no `size` field and never grows.
 */
struct pagepool_raw {
    /**
     * Device address of the buffer's first byte, in the pool's first domain.
     */
    uint64_t addr;
    /**
     * Size of the buffer in bytes.
     */
    uint32_t len;
    /**
     * Always 0.
     */
    uint32_t reserved;
};

/**
 * A user of deferred buffers: it reads them without owning them, and does not signal when it is done.
 * Examples: the kernel that sends from a page (MSG_ZEROCOPY), a reference count kept elsewhere. The library
 * calls these functions in allocations and polls of the pool's owner; once the pool is destroyed, in the
 * calls that pagepool_defer names. They may use the library, but must not unbind or destroy the pool, throw
 * or longjmp. They should be short: the owner waits for them.
 */
struct pagepool_deferred_user_ops {
    /**
     * sizeof(struct pagepool_deferred_user_ops).
     */
    size_t size;
    /**
     * The first argument of each function.
     */
    void *arg;
    /**
     * Returns 0 once the buffer that was deferred with `cookie` is no longer read; the buffer then returns
     * to its pool. Returns another value while it is in use. Required.
     */
    int (*in_use)(void *arg, uint64_t cookie);
    /**
     * Called once at the start of each poll, to read the state for `in_use`, such as the error queue of a
     * socket. May be NULL.
     */
    void (*refresh)(void *arg);
    /**
     * Called once, after the handle was released and no buffer is deferred for the user; `arg` may be freed
     * then. May be NULL.
     */
    void (*release)(void *arg);
};

/**
 * A region: a part of an arena that domains map in one piece. The library fills it in for callbacks.
 */
struct pagepool_region {
    /**
     * The size of the struct in the calling library: only fields within it exist.
     */
    size_t size;
    /**
     * Offset of the first byte in the arena.
     */
    uint64_t offset;
    /**
     * Length in bytes, a multiple of 4096.
     */
    uint64_t len;
    /**
     * Address of the first byte for the CPU; NULL for memory that the CPU cannot read.
     */
    void *cpu_addr;
    /**
     * Identifies the arena in this process.
     */
    uint64_t arena_id;
};

/**
 * An address space that the caller implements. The library calls these functions on any thread, in calls
 * that make an arena grow, create or destroy a pool, or return a buffer. They may return buffers; they must
 * not throw or longjmp. `map` runs under a lock of the arena. To avoid a deadlock it must not create or
 * destroy a pool over that arena, release the arena, or read a device address in another domain.
 */
struct pagepool_domain_ops {
    /**
     * sizeof(struct pagepool_domain_ops).
     */
    size_t size;
    /**
     * The name in error texts; copied. NULL means "domain".
     */
    const char *name;
    /**
     * The first argument of each function.
     */
    void *arg;
    /**
     * Maps a region and stores its device address in `*addr`. Returns 0, or a negative errno to refuse.
     * Required.
     */
    int (*map)(void *arg, const struct pagepool_region *region, uint64_t *addr);
    /**
     * Unmaps a region, once for each `map` that returned 0. Required.
     */
    void (*unmap)(void *arg, const struct pagepool_region *region, uint64_t addr);
    /**
     * Makes `len` bytes from the device address `addr` visible to the device. Required unless `coherent`.
     */
    void (*sync_for_device)(void *arg, uint64_t addr, size_t len);
    /**
     * Makes `len` bytes from the device address `addr` visible to the CPU. Required unless `coherent`.
     */
    void (*sync_for_cpu)(void *arg, uint64_t addr, size_t len);
    /**
     * Called once, after the last use of the domain; `arg` may be freed then. May be NULL.
     */
    void (*release)(void *arg);
    /**
     * 1: device and CPU always see the same bytes, so no syncs are needed.
     */
    uint32_t coherent;
    /**
     * 1: an arena must not grow or shrink while it is mapped here, as in an AF_XDP UMEM; it requires
     * `commit_all`.
     */
    uint32_t fixes_arena;
};

/**
 * The parameters of a pool. Start from PAGEPOOL_PARAMS_INIT, or from zeroes with `size` set: in each field 0
 * selects the default.
 */
struct pagepool_params {
    /**
     * sizeof(struct pagepool_params): fields can be added at the end.
     */
    size_t size;
    /**
     * The arena from which the pool takes pages. Required.
     */
    struct pagepool_arena *arena;
    /**
     * The name of the pool in reports and errors; copied. NULL means "pool".
     */
    const char *name;
    /**
     * The size of a page: the `page_size` of the arena (4096 by default) << order, with an order of 0 to 10.
     */
    uint32_t order;
    /**
     * Slots in the ring. 0 means 1024; values above 16384 mean 16384. Linux: pool_size.
     */
    uint32_t ring_size;
    /**
     * Pages that the owner's cache holds: 1 to 1024. 0 means twice `refill`.
     */
    uint32_t cache_size;
    /**
     * The most pages that one refill takes: 1 to 256, at most `cache_size`. 0 means 64 for pages below 16
     * KiB, 16 for pages below 64 KiB, otherwise 4.
     */
    uint32_t refill;
    /**
     * The preferred NUMA node: PAGEPOOL_NODE(n) for node n. 0 or PAGEPOOL_NODE_ANY means the node of the
     * thread that refills, read at each refill.
     */
    int nid;
    /**
     * Alignment of fragments in bytes: a power of two from 8 to 4096. 0 means 64.
     */
    uint32_t frag_align;
    /**
     * 0 or 1: shift the start of packets by up to 15 cache lines from page to page, so that they spread over
     * the sets of the CPU's caches. The shift uses only bytes that `max_len` leaves free. Not in pages of
     * 2 KiB. PAGEPOOL_NO_COLOUR: no shift.
     */
    uint32_t colour;
    /**
     * The most threads that have a lane at the same time: 1 to 64. 0 means 16; PAGEPOOL_NO_LANES means none.
     * Threads without a lane return buffers through the ring.
     */
    uint32_t max_lanes;
    /**
     * Slots in a lane: a power of two from 2 to 16384. 0 means 1024.
     */
    uint32_t lane_size;
    /**
     * Bytes to keep free before the packet in a whole page. Linux: offset.
     */
    uint32_t headroom;
    /**
     * The largest packet in a whole page, in bytes; a sync for the device covers no more. 0 means all bytes
     * that headroom and tailroom leave.
     */
    uint32_t max_len;
    /**
     * Bytes to keep free after the packet in a whole page.
     */
    uint32_t tailroom;
    /**
     * An array of `n_domains` domains; every page is mapped in each. pagepool_buf_dma_addr uses the first.
     * The pool keeps the domains: their handles may be released at once.
     */
    struct pagepool_domain *const *domains;
    /**
     * Number of `domains`: 0 to 64.
     */
    size_t n_domains;
    /**
     * 1: in domains that are not coherent, sync pages for the device when they join the pool and when they
     * are returned. Linux: PP_FLAG_DMA_SYNC_DEV.
     */
    uint32_t sync_for_device;
    /**
     * With `wakeup`: a refill that leaves fewer available pages than this in cache and arena arms the event
     * descriptor. 0: only a failed allocation does.
     */
    uint32_t low_water;
    /**
     * 1: create the event descriptor of pagepool_wake_fd.
     */
    uint32_t wakeup;
    /**
     * 1: record who holds each buffer (pagepool_buf_set_tag), for pagepool_shutdown_report.
     */
    uint32_t tagging;
    /**
     * 1: take pages from the arena without naming a node, to measure what naming one costs.
     */
    uint32_t node_blind;
    /**
     * The most buffers in the deferred queue (pagepool_defer): up to 65536. 0 means no queue.
     */
    uint32_t defer_capacity;
    /**
     * What a poll of the deferred queue does with a buffer in use at its head: PAGEPOOL_ON_BUSY_KEEP, _SKIP
     * or _RELEASE.
     */
    uint32_t on_busy;
    /**
     * With PAGEPOOL_ON_BUSY_SKIP: the most buffers in use that one poll skips, 1 to 64; 0 means 16.
     * Otherwise it must be 0.
     */
    uint32_t skip_ahead;
    /**
     * 1: no thread ever owns the pool. Any thread may call pagepool_alloc_addr_bulk and
     * pagepool_put_addr_bulk; each call takes a lock, for a compare-and-swap and a store. Owner's calls fail
     * with -EPERM. Requires a domain, and neither `wakeup` nor `defer_capacity`. For short-lived threads,
     * and for a DPDK mempool. 0: one thread at a time owns it (pagepool_bind).
     */
    uint32_t no_owner;
    /**
     * What the pool records of each buffer that is out: PAGEPOOL_HOLDERS_OFF, _AGES, _SITES or _STACKS. It
     * is for pagepool_shutdown_report, and for `pagepool show` if the process publishes, also after it was
     * killed. Each allocation and each return is then a call on the slow path. If a function returns what it
     * allocates, a compiler may turn the call into a jump, and the pool records the place of the function's
     * caller; -fno-optimize-sibling-calls prevents that.
     */
    uint32_t holders;
    /**
     * With PAGEPOOL_HOLDERS_STACKS: record the call stack of one in this many allocations. 0 means 1000.
     * Otherwise it must be 0.
     */
    uint32_t one_stack_in;
    /**
     * Must be 0.
     */
    uint32_t reserved;
};

/**
 * The number of a pool's pages in each place. The fields below `total` add up to it while no call on the
 * pool is in progress. Start from PAGEPOOL_BUFFER_LOCATIONS_INIT, or set `size`.
 */
struct pagepool_buffer_locations {
    /**
     * sizeof(struct pagepool_buffer_locations): fields can be added at the end.
     */
    size_t size;
    /**
     * Pages that joined the pool and have not left.
     */
    int64_t total;
    /**
     * Pages in the owner's cache.
     */
    uint64_t cache;
    /**
     * Pages in the lanes.
     */
    uint64_t lanes;
    /**
     * Pages in the ring.
     */
    uint64_t ring;
    /**
     * 1 if the pool has a page from which it cuts fragments, otherwise 0.
     */
    uint64_t frag;
    /**
     * Pages that are out, and those in the deferred queue (pagepool_defer).
     */
    uint64_t out;
    /**
     * Pages whose fragments were all returned, some of them on other threads; the owner has not yet
     * collected those.
     */
    uint64_t uncollected;
};

/**
 * An entry that the program publishes beside its pools: a socket, a port, or anything else. Start from
 * PAGEPOOL_ENTRY_PARAMS_INIT, or from zeroes with `size` set. All texts are copied.
 */
struct pagepool_entry_params {
    /**
     * sizeof(struct pagepool_entry_params): fields can be added at the end.
     */
    size_t size;
    /**
     * The kind, up to 16 bytes; any word except "pool". Required. Buffers that a "socket" or "nic" counts as
     * `in_rx` wait for packets, and do not count as held by the program.
     */
    const char *kind;
    /**
     * The program's own number, to distinguish entries of one kind.
     */
    uint64_t id;
    /**
     * The pool of the entry. NULL means none.
     */
    struct pagepool *pool;
    /**
     * The name, of which 64 bytes are shown. NULL means "".
     */
    const char *name;
    /**
     * Fixed properties: lines of `key=value`, of which 688 bytes are shown. "ifindex=N" names the interface.
     * NULL means none.
     */
    const char *params;
    /**
     * The names of the counters, which begin at 0: at most 256 names, and 4096 bytes with a terminating byte
     * for each. A socket has `in_rx`, buffers that wait for packets; `in_tx`, buffers that are being sent;
     * `rx_packets`, `tx_packets`.
     */
    const char *const *counters;
    /**
     * Number of `counters`.
     */
    size_t n_counters;
};

/**
 * Tables for the inline functions of this header, not for programs.
 */
struct pagepool_inline_ {
    const void *views;
    const void *directory;
    uint64_t view_mask;
    /**
     * Notes where the calling thread keeps the pool that it used last; the library clears that place when
     * the thread stops being the owner. Returns 0 if 16 such places of the thread are noted, the limit. A
     * field, not an exported function, so that it belongs to the library that has the tables.
     */
    int (*note)(void *here);
    /**
     * Returns a buffer as pagepool_buf_put does, on a thread that does not own its pool.
     */
    int (*put_away)(void *buf);
    /**
     * Keeps the pool of a buffer in the thread's record of a pool to which it returns buffers but which it
     * does not own. Returns the record, whose address never changes.
     */
    const void *(*note_away)(void *buf);
};

/**
 * Counters of a pool. The names are Linux's (page_pool_alloc_stats, page_pool_recycle_stats). Start from
 * PAGEPOOL_STATS_INIT, or set `size`.
 */
struct pagepool_stats {
    /**
     * sizeof(struct pagepool_stats): fields can be added at the end.
     */
    size_t size;
    /**
     * Pages taken from the cache, plus fragment pages reused in place after all their fragments had returned.
     * If it rises: normal.
     */
    uint64_t alloc_fast;
    /**
     * Pages that the owner returned to the cache, plus fragment pages reused in place. If it rises: normal.
     */
    uint64_t recycle_cached;
    /**
     * Allocations that took pages from the provider (the arena), up to `refill` pages each. If it rises:
     * normal during warm-up. Later, pages are lost, held for longer, or waived. `inflight` shows where they
     * are.
     */
    uint64_t alloc_slow;
    /**
     * Pages of an order above 0 that came from the provider (the arena). If it rises: see `alloc_slow`.
     */
    uint64_t alloc_slow_high_order;
    /**
     * Refills that found no page: the cache, lanes and ring were empty, and no deferred buffer returned. If
     * it rises: more pages are out than before, if `alloc_slow` rises as well. Find out who holds them before
     * you enlarge the arena.
     */
    uint64_t alloc_empty;
    /**
     * Refills that found at least one page in the deferred queue, the lanes or the ring. Each refill counts
     * once. If it rises: normal if other threads return buffers.
     */
    uint64_t alloc_refill;
    /**
     * Off-node pages (on a NUMA node other than the pool's) that left the pool. At most one leaves each time
     * the owner collects pages from the lanes and the ring. An allocation collects once or, with `wakeup`,
     * twice if it fails. If it rises: the owner moved to another node. Pin it to a CPU, or set `nid`.
     */
    uint64_t alloc_waive;
    /**
     * Allocations that returned nothing. Linux has no such counter. If it rises: the arena is exhausted.
     * Raise `max_bytes`, or find out who holds the buffers (`holders`).
     */
    uint64_t alloc_failed;
    /**
     * Returned pages that found the cache full. Each one also counts in `recycle_ring` or
     * `recycle_ring_full`. If it rises: the owner returns more pages than it allocates. This is normal if it
     * sends. Otherwise raise `cache_size`.
     */
    uint64_t recycle_cache_full;
    /**
     * Pages returned through a lane or the ring. If it rises: normal if other threads return buffers.
     */
    uint64_t recycle_ring;
    /**
     * Pages that left the pool because the lane and the ring were full. For bulk returns, Linux counts calls
     * instead of pages. If it rises: the owner refills too rarely. Raise `lane_size`, `ring_size` or
     * `max_lanes`.
     */
    uint64_t recycle_ring_full;
    /**
     * Pages that left the pool when they were returned, because a page reference still existed. Linux also
     * counts pages of its emergency reserve (`pfmemalloc`). If it rises: a page reference outlives its
     * buffer. To recycle the page, share the buffer instead.
     */
    uint64_t recycle_released_refcnt;
    /**
     * Pages that joined the pool. If it rises: see `alloc_slow`.
     */
    uint64_t hold;
    /**
     * Pages that left the pool. If it rises: see `alloc_waive`, `recycle_ring_full` and
     * `recycle_released_refcnt`. A rise is normal when a pool shrinks or ends.
     */
    uint64_t release;
    /**
     * Returns through the C interface that the owner refused, because another thread had returned the same
     * buffer at the same time. Both calls returned 0. Linux has no such counter. If it rises: threads return
     * buffers that are not theirs. Find out which.
     */
    uint64_t returned_twice;
};

/**
 * Counters of a pool's deferred queue. Start from PAGEPOOL_DEFERRED_STATS_INIT, or set `size`.
 */
struct pagepool_deferred_stats {
    /**
     * sizeof(struct pagepool_deferred_stats): fields can be added at the end.
     */
    size_t size;
    /**
     * Buffers that are in the queue now, and released ones that are still in use.
     */
    uint64_t pending;
    /**
     * Buffers put into the deferred queue. If it rises: normal.
     */
    uint64_t queued;
    /**
     * Buffers that returned to the pool because their reader was done. If it rises: normal.
     */
    uint64_t reused;
    /**
     * Polls that stopped at a buffer still in use and left it in the queue. If it rises: readers may finish
     * out of order. If the rise is fast, set `on_busy = OnBusy::Skip`.
     */
    uint64_t kept;
    /**
     * Buffers still in use that a poll skipped to check the buffers behind them. If it rises: normal with
     * `on_busy = OnBusy::Skip`.
     */
    uint64_t skipped;
    /**
     * Buffers that left the queue while still in use. The page leaves the pool. Its memory is freed when the
     * reader is done. If it rises: a reader is slow, which is normal with `on_busy = OnBusy::Release`.
     */
    uint64_t released;
    /**
     * Released buffers whose reader is done. Their memory has returned to the provider (the arena). If it
     * rises: normal after `released` rose.
     */
    uint64_t freed_late;
    /**
     * Buffers refused because the queue was full. If it rises: raise `defer_capacity`, or wait until readers
     * are done.
     */
    uint64_t full;
    /**
     * Polls that found a buffer in the queue. If it rises: normal.
     */
    uint64_t polls;
    /**
     * Buffers still in use when the pool's shutdown handle was dropped. Their memory is never reused. If it
     * rises: keep the shutdown handle until the pool is freed.
     */
    uint64_t leaked;
};

/**
 * The default parameters of a pool; set `arena` after it. `struct pagepool_params x = PAGEPOOL_PARAMS_INIT;`,
 * also for a static variable.
 */
#define PAGEPOOL_PARAMS_INIT \
    {sizeof(struct pagepool_params), NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, \
     0, 0, 0, 0, 0, 0, 0, 0}

/**
 * The default parameters of an arena. `struct pagepool_arena_params x = PAGEPOOL_ARENA_PARAMS_INIT;`, also
 * for a static variable.
 */
#define PAGEPOOL_ARENA_PARAMS_INIT \
    {sizeof(struct pagepool_arena_params), 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0}

/**
 * For pagepool_read_stats: `size` is set, all counters are 0. `struct pagepool_stats x =
 * PAGEPOOL_STATS_INIT;`, also for a static variable.
 */
#define PAGEPOOL_STATS_INIT \
    {sizeof(struct pagepool_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/**
 * For pagepool_read_deferred_stats: `size` is set, all counters are 0. `struct pagepool_deferred_stats x =
 * PAGEPOOL_DEFERRED_STATS_INIT;`, also for a static variable.
 */
#define PAGEPOOL_DEFERRED_STATS_INIT \
    {sizeof(struct pagepool_deferred_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/**
 * For pagepool_read_buffer_locations: `size` is set, all counts are 0. `struct pagepool_buffer_locations x =
 * PAGEPOOL_BUFFER_LOCATIONS_INIT;`, also for a static variable.
 */
#define PAGEPOOL_BUFFER_LOCATIONS_INIT \
    {sizeof(struct pagepool_buffer_locations), 0, 0, 0, 0, 0, 0, 0}

/**
 * For pagepool_publish_entry: `size` is set; set `kind` after it. `struct pagepool_entry_params x =
 * PAGEPOOL_ENTRY_PARAMS_INIT;`, also for a static variable.
 */
#define PAGEPOOL_ENTRY_PARAMS_INIT \
    {sizeof(struct pagepool_entry_params), NULL, 0, NULL, NULL, NULL, NULL, 0}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Creates an arena: reserves its addresses and commits its first region of 4 MiB, or all of it with
 * `commit_all`.
 *
 * Thread: any.
 * Ownership: release `*arena` with pagepool_arena_put. `memory`, `node_of_page` and `arg` must stay valid
 *     until the arena and its pools are freed.
 * Errors: -EINVAL names the field, its value and its range. Otherwise the errno of the system call that
 *     failed; pagepool_last_error names the remedy. `*arena` is then unchanged.
 * Cost: a few system calls; with `prefault` or `mlock` also the time to clear the memory.
 */
int pagepool_arena_create(const struct pagepool_arena_params *params, struct pagepool_arena **arena);

/**
 * Releases the handle of an arena. The memory is returned to the system now, or when the last pool over the
 * arena is freed.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: system calls if the arena has no pool left.
 */
int pagepool_arena_put(struct pagepool_arena *arena);

/**
 * Writes one line about the arena into `text`: its kind of memory and the requested features that are
 * missing. Cuts the line to `len` bytes and ends it with a zero byte. Returns the full length in bytes,
 * without the zero byte. `text` may be NULL.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: formats text.
 */
int64_t pagepool_arena_describe(struct pagepool_arena *arena, char *text, size_t len);

/**
 * Returns the number of base pages (pages of order 0) that pools have taken from the arena.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int64_t pagepool_arena_pages_out(struct pagepool_arena *arena);

/**
 * Returns free memory to the system: each region that no domain maps and in which no pool has a page. The
 * result is the number of bytes.
 *
 * Thread: any.
 * Errors: -EOPNOTSUPP for device memory. -EINVAL, -ESTALE for a bad handle.
 * Cost: system calls.
 */
int64_t pagepool_arena_trim(struct pagepool_arena *arena);

/**
 * Returns the file descriptor of a memfd arena, for a peer process. Offsets in the file are offsets in the
 * arena.
 *
 * Thread: any.
 * Ownership: the descriptor is the arena's; duplicate it to keep it longer.
 * Errors: -EOPNOTSUPP for an arena without a descriptor. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_arena_memfd(struct pagepool_arena *arena);

/**
 * Sets the node on which all threads appear to run, in an arena with simulated nodes (`nodes`). Initially it
 * is node 0.
 *
 * Thread: any.
 * Errors: -EINVAL for a node above 255. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_arena_set_current_node(struct pagepool_arena *arena, int nid);

/**
 * Returns the address of the arena's first byte. Page i begins i times the arena's `page_size` from there.
 * NULL for device memory (-EOPNOTSUPP) or a bad handle (-EINVAL, -ESTALE).
 *
 * Thread: any.
 * Cost: a lock.
 */
void *pagepool_arena_base(struct pagepool_arena *arena);

/**
 * Unmaps the arena from a domain whose device is gone, even while pools use it. The CPU can still use
 * buffers that are out; they lose their address in the domain, and are not unmapped again when they are
 * returned.
 *
 * Thread: any.
 * Errors: -ENODEV if the arena is not mapped in the domain. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock, and the `unmap` of the domain.
 */
int pagepool_arena_device_gone(struct pagepool_arena *arena, struct pagepool_domain *domain);

/**
 * Creates an empty batch, for up to 64 whole pages of one pool at a time.
 *
 * Thread: any.
 * Ownership: release `*batch` with pagepool_batch_destroy.
 * Errors: -EINVAL for NULL. -EBUSY if there are 4096 batches. -ENOMEM.
 * Cost: a lock; allocates 384 bytes, which later batches reuse.
 */
int pagepool_batch_create(struct pagepool_batch **batch);

/**
 * Destroys a batch; its pages return to their pool as by pagepool_batch_put.
 *
 * Thread: any, one at a time per batch.
 * Ownership: the handle ends.
 * Errors: -EBUSY during another call on this batch. -EINVAL, -ESTALE for a bad handle.
 * Cost: pagepool_batch_put, and a lock.
 */
int pagepool_batch_destroy(struct pagepool_batch *batch);

/**
 * Adds up to `n` whole pages of the pool to the batch, while it has room. Returns how many it added. Linux:
 * page_pool_dev_alloc_pages in a loop.
 *
 * Thread: owner of the pool; one at a time per batch.
 * Ownership: the pages are the batch's. The pool counts them as out.
 * Errors: fewer than `n`, and pagepool_last_error says why: no page is left (ENOMEM, counted in
 *     `alloc_failed`), the batch is full (ENOBUFS) or has pages of another pool (EINVAL), another call uses
 *     it (EBUSY), another thread owns the pool (EPERM), or a bad handle (EINVAL, ESTALE).
 * Cost: one copy from the cache, and one exchange.
 */
size_t pagepool_batch_alloc(struct pagepool_batch *batch, struct pagepool *pool, size_t n);

/**
 * Returns all pages of the batch to their pool; the batch remains, empty. Linux: page_pool_put_netmem_bulk.
 *
 * Thread: any, one at a time per batch.
 * Ownership: the pages are the pool's again. The handle stays the caller's.
 * Errors: -EBUSY during another call on this batch. -EINVAL, -ESTALE for a bad handle.
 * Cost: on the owner's thread one copy into the cache; otherwise one bulk of messages. Plus an exchange.
 */
int pagepool_batch_put(struct pagepool_batch *batch);

/**
 * Returns the number of pages in the batch. 0 also for a bad handle, or during another call on this batch.
 *
 * Thread: any, one at a time per batch.
 * Cost: a lookup.
 */
size_t pagepool_batch_len(struct pagepool_batch *batch);

/**
 * Stores the packet addresses (after headroom and colour) of the first `n` pages in `packets`, in order.
 * Returns how many it stored: `n`, or the length of the batch if that is less.
 *
 * Thread: any, one at a time per batch.
 * Ownership: the bytes are the caller's until the pages leave the batch. Until then page i keeps its index.
 * Errors: 0 for NULL or a bad handle (EINVAL, ESTALE), memory that the CPU cannot read (EOPNOTSUPP), or
 *     during another call on this batch (EBUSY).
 * Cost: per page an addition and a store.
 */
size_t pagepool_batch_packets(struct pagepool_batch *batch, void **packets, size_t n);

/**
 * Removes the last page from the batch and returns it as a buffer with its own handle.
 *
 * Thread: any, one at a time per batch.
 * Ownership: the buffer is the caller's until it is returned.
 * Errors: NULL if the batch is empty (-ENOENT), during another call on it (-EBUSY), or for a bad handle
 *     (-EINVAL, -ESTALE).
 * Cost: about as pagepool_alloc_page.
 */
struct pagepool_buf *pagepool_batch_pop(struct pagepool_batch *batch);

/**
 * Appends a buffer to the batch. It must be a whole page of the pool of the other pages, must never have
 * been shared, and must have no page reference.
 *
 * Thread: the one that holds the buffer; one at a time per batch.
 * Ownership: the handle of the buffer ends, unless the call fails.
 * Errors: -EINVAL for another kind of buffer, or one of another pool. -ENOBUFS if the batch is full. -EBUSY
 *     during another call on this batch. -EINVAL, -ESTALE for a bad handle.
 * Cost: about as pagepool_buf_put; on other threads than the owner's a lock.
 */
int pagepool_batch_push(struct pagepool_batch *batch, struct pagepool_buf *buf);

/**
 * Returns a buffer to its pool: on the owner's thread into the cache, otherwise through the thread's lane or
 * the ring. Linux: page_pool_put_full_page.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -ESTALE for a buffer that was returned before. -EINVAL for a value that never was a buffer.
 *     Nothing changes then. If two threads return a buffer at the same moment, both calls may return 0; one
 *     is refused later, and counted in `returned_twice`.
 * Cost: no atomic operation for a page that returns through the cache or a lane, in pools without `holders`
 *     and syncs. A lock, if other threads claim buffers. One atomic operation for a fragment.
 */
int pagepool_buf_put(struct pagepool_buf *buf);

/**
 * Returns a buffer to its pool through the ring, even on the owner's thread. Linux: page_pool_put_full_page
 * outside softirq.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: as pagepool_buf_put.
 * Cost: a lock.
 */
int pagepool_buf_put_ring(struct pagepool_buf *buf);

/**
 * Returns a buffer to its pool, and says that only the first `dirty` bytes of its packet were written: with
 * `sync_for_device` only these are synced. Linux: page_pool_put_page with a dma_sync_size.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: as pagepool_buf_put.
 * Cost: as pagepool_buf_put, and the sync.
 */
int pagepool_buf_put_sync(struct pagepool_buf *buf, size_t dirty);

/**
 * Returns a buffer to the cache of its pool, and checks that the calling thread owns that pool. Linux:
 * page_pool_recycle_direct.
 *
 * Thread: owner.
 * Ownership: the handle ends, unless the call fails.
 * Errors: -EPERM on another thread. -EINVAL for a buffer of another pool. Otherwise as pagepool_buf_put.
 * Cost: one lookup more than pagepool_buf_put.
 */
int pagepool_recycle_direct(struct pagepool *pool, struct pagepool_buf *buf);

/**
 * Returns the address of the first byte of the page or fragment. NULL for memory that the CPU cannot read
 * (-EOPNOTSUPP), or for a bad handle (-EINVAL, -ESTALE). Linux: page_address.
 *
 * Thread: the one that holds the buffer.
 * Ownership: the bytes are the caller's until the buffer is returned.
 * Cost: a lookup. Inline for a whole page without references.
 */
void *pagepool_buf_data(struct pagepool_buf *buf);

/**
 * Returns the size of the page or fragment in bytes. The last fragment of a page includes the rest of the
 * page. 0 for a bad handle. Linux: truesize.
 *
 * Thread: the one that holds the buffer.
 * Cost: a lookup.
 */
size_t pagepool_buf_len(struct pagepool_buf *buf);

/**
 * Returns the offset of a fragment in its page, in bytes; 0 for a whole page. SIZE_MAX for a bad handle.
 *
 * Thread: the one that holds the buffer.
 * Cost: a lookup.
 */
size_t pagepool_buf_offset(struct pagepool_buf *buf);

/**
 * Returns the device address of the buffer's first byte in the pool's first domain. UINT64_MAX if the pool
 * has no domain, if the device is gone, or for a bad handle. Linux: page_pool_get_dma_addr plus the offset.
 *
 * Thread: the one that holds the buffer.
 * Cost: a lookup.
 */
uint64_t pagepool_buf_dma_addr(struct pagepool_buf *buf);

/**
 * Returns the number of the buffer's page in its arena, counted in base pages (pages of order 0). A page of
 * a higher order has the number of its first base page. UINT32_MAX for a bad handle.
 *
 * Thread: the one that holds the buffer.
 * Cost: a lookup.
 */
uint32_t pagepool_buf_page_index(struct pagepool_buf *buf);

/**
 * Returns 1 for a fragment and 0 for a whole page.
 *
 * Thread: the one that holds the buffer.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lookup.
 */
int pagepool_buf_is_frag(struct pagepool_buf *buf);

/**
 * Returns the address where the packet begins: after headroom and colour in a whole page, the first byte of
 * a fragment. NULL for memory that the CPU cannot read (-EOPNOTSUPP), or for a bad handle (-EINVAL,
 * -ESTALE).
 *
 * Thread: the one that holds the buffer.
 * Cost: a lookup.
 */
void *pagepool_buf_packet(struct pagepool_buf *buf);

/**
 * Returns the size of the largest packet that fits, in bytes: `max_len` for a whole page, the full size for
 * a fragment. 0 for a bad handle.
 *
 * Thread: the one that holds the buffer.
 * Cost: a lookup.
 */
size_t pagepool_buf_packet_capacity(struct pagepool_buf *buf);

/**
 * Makes `len` bytes from `offset` in the buffer visible to the CPU, in every domain that is not coherent.
 * Call it after the device wrote them. Linux: page_pool_dma_sync_for_cpu.
 *
 * Thread: the one that holds the buffer.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lookup, and the syncs of the domains.
 */
int pagepool_buf_sync_for_cpu(struct pagepool_buf *buf, size_t offset, size_t len);

/**
 * Makes `len` bytes from `offset` in the buffer visible to the device, in every domain that is not coherent.
 * Call it before the device reads them. Linux: dma_sync_single_range_for_device.
 *
 * Thread: the one that holds the buffer.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lookup, and the syncs of the domains.
 */
int pagepool_buf_sync_for_device(struct pagepool_buf *buf, size_t offset, size_t len);

/**
 * Returns `n` buffers to their pools; they may belong to different pools. Linux: page_pool_put_netmem_bulk.
 *
 * Thread: any.
 * Ownership: every handle ends. The array stays the caller's and is unchanged.
 * Errors: the error of the first handle that failed; all others are still returned. -EINVAL for a NULL
 *     array.
 * Cost: on the owner's thread one check of pool and owner for up to 64 whole pages of a pool. On other
 *     threads one bulk of messages for up to 64. Atomic operations as for pagepool_buf_put.
 */
int pagepool_buf_put_bulk(struct pagepool_buf *const *bufs, size_t n);

/**
 * Returns `n` buffers to their pools through the rings, even on the owner's thread.
 *
 * Thread: any.
 * Ownership: every handle ends. The array stays the caller's and is unchanged.
 * Errors: as pagepool_buf_put_bulk.
 * Cost: a lock per 64 buffers of a pool.
 */
int pagepool_buf_put_ring_bulk(struct pagepool_buf *const *bufs, size_t n);

/**
 * Takes a reference to the page of a buffer: its memory is not used again until the reference is released,
 * even if the buffer is returned before. For DMA that cannot be stopped. A page that is returned while it
 * has references leaves its pool (counted in `recycle_released_refcnt`). Linux: get_page.
 *
 * Thread: the one that holds the buffer.
 * Ownership: release `*page_ref` with pagepool_page_ref_put. The buffer is unchanged.
 * Errors: -ENOMEM if there is no memory for the table. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock and two atomic operations.
 */
int pagepool_buf_page_ref(struct pagepool_buf *buf, struct pagepool_page_ref **page_ref);

/**
 * Releases a reference to a page. If the page has left its pool, its last reference returns the memory to
 * the arena. Linux: put_page.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -ESTALE for a reference that was released before. -EINVAL for a value that never was a reference.
 * Cost: a lock and an atomic operation.
 */
int pagepool_page_ref_put(struct pagepool_page_ref *page_ref);

/**
 * Returns the number of the page in its arena, as pagepool_buf_page_index does for a buffer. UINT32_MAX for
 * a bad handle.
 *
 * Thread: any.
 * Cost: a lock.
 */
uint32_t pagepool_page_ref_page_index(struct pagepool_page_ref *page_ref);

/**
 * Returns the address of the page's first byte. NULL for memory that the CPU cannot read (-EOPNOTSUPP), or
 * for a bad handle (-EINVAL, -ESTALE).
 *
 * Thread: any.
 * Cost: a lock.
 */
void *pagepool_page_ref_data(struct pagepool_page_ref *page_ref);

/**
 * Turns a buffer into its device address, for a descriptor ring. pagepool_from_raw turns the address into a
 * buffer again; pagepool_put_addr returns it to the pool.
 *
 * Thread: the one that holds the buffer.
 * Ownership: the handle ends, unless the call fails. The address is the caller's.
 * Errors: -EOPNOTSUPP in a pool without domains, and for a fragment that shares a cache line with another
 *     (`frag_align` below 64). -EINVAL, -ESTALE for a bad handle.
 * Cost: a lookup and one or two atomic operations.
 */
int pagepool_buf_into_raw(struct pagepool_buf *buf, struct pagepool_raw *raw);

/**
 * Allocates up to `n` whole pages as device addresses into `addrs`, for a fill ring. Returns how many it
 * allocated. It works like pagepool_alloc_bulk followed by pagepool_buf_into_raw, without the handles.
 * Linux: page_pool_alloc_pages for a fill ring.
 *
 * Thread: owner; any in a pool made with `no_owner`.
 * Ownership: these addresses are the caller's, for pagepool_from_raw or pagepool_put_addr. The other
 *     elements of `addrs` are unchanged.
 * Errors: fewer than `n`: no page (-ENOMEM), a pool without domains or whose device was removed
 *     (-EOPNOTSUPP), another thread (-EPERM), a bad handle. pagepool_last_error says which.
 * Cost: a lookup; from the cache no atomic operation.
 */
size_t pagepool_alloc_addr_bulk(struct pagepool *pool, uint64_t *addrs, size_t n);

/**
 * Turns a device address from a descriptor ring back into a buffer. The address may lie anywhere in the
 * buffer. The size of a fragment is rounded up to whole cache lines.
 *
 * Thread: any.
 * Ownership: the buffer is the caller's.
 * Errors: NULL for an address that is not the pool's (-EINVAL), for an address that is not out because it
 *     was returned before (-ESTALE), or for a bad handle (-EINVAL, -ESTALE). Nothing changes then. NULL also
 *     if there is no memory for the table (-ENOMEM), or if all pools together have 268,435,456 pages and
 *     fragments, the limit (-ENOSPC); on the owner's thread the buffer has then returned to its pool.
 * Cost: as pagepool_put_addr.
 */
struct pagepool_buf *pagepool_from_raw(struct pagepool *pool, uint64_t addr);

/**
 * Returns a buffer to its pool by its device address. Linux: page_pool_free_va, which takes the CPU address.
 *
 * Thread: any.
 * Ownership: the address ends.
 * Errors: -EINVAL for an address that is not the pool's. -ESTALE for an address that is not out because it
 *     was returned before. Nothing changes then. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lookup. A whole page on the owner's thread costs no atomic operation, unless another thread
 *     returned an address of the pool shortly before: then a lock. On any other thread it costs the lock of
 *     the handle and the lock of the addresses and, seldom, a wait of about a microsecond for the owner.
 */
int pagepool_put_addr(struct pagepool *pool, uint64_t addr);

/**
 * Returns `n` buffers to their pool by their device addresses.
 *
 * Thread: any.
 * Ownership: every address ends.
 * Errors: the error of the first address that failed; all others are still returned. -EINVAL for a NULL
 *     array.
 * Cost: a lookup each. On any thread except the owner's: the lock of the handle once per call, and the lock
 *     of the addresses, with its wait, once per 64 addresses.
 */
int pagepool_put_addr_bulk(struct pagepool *pool, const uint64_t *addrs, size_t n);

/**
 * Makes a buffer shared: it can have many readers, each with its own handle. The last released handle
 * returns the buffer to its pool. Linux: page_pool_ref_page.
 *
 * Thread: the one that holds the buffer.
 * Ownership: the handle of the buffer ends. Release `*shared` with pagepool_shared_put.
 * Errors: -ENOMEM if there is no memory for the table. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock and one atomic operation.
 */
int pagepool_buf_share(struct pagepool_buf *buf, struct pagepool_shared **shared);

/**
 * Creates a handle for one more reader of a shared buffer. Linux: page_pool_ref_page.
 *
 * Thread: any.
 * Ownership: release `*clone` with pagepool_shared_put.
 * Errors: -ENOMEM if there is no memory for the table. -EINVAL, -ESTALE for a bad handle.
 * Cost: two locks and one atomic operation.
 */
int pagepool_shared_clone(struct pagepool_shared *shared, struct pagepool_shared **clone);

/**
 * Releases the handle of one reader; the last one returns the buffer to its pool. Linux:
 * page_pool_unref_page.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -ESTALE for a handle that was released before. -EINVAL for a value that never was a handle.
 * Cost: a lock and one atomic operation; for the last reader as pagepool_buf_put.
 */
int pagepool_shared_put(struct pagepool_shared *shared);

/**
 * Turns a shared buffer back into one that may be written or split, if this is the handle of its last
 * reader. Fragments of one page are counted together: the call also fails while another fragment of the page
 * is shared.
 *
 * Thread: any.
 * Ownership: the shared handle ends, and `*buf` is the caller's, unless the call fails.
 * Errors: -EBUSY while there are other readers: try again, or release this handle. -ENOMEM if there is no
 *     memory for the table, -ENOSPC if all pools together have 268,435,456 pages and fragments, the limit.
 *     -EINVAL, -ESTALE for a bad handle. The handle is then unchanged.
 * Cost: a lock; for a fragment an atomic operation, and on other threads than the owner's one more lock.
 */
int pagepool_shared_try_unique(struct pagepool_shared *shared, struct pagepool_buf **buf);

/**
 * Returns the address of the first byte of the page or fragment, for reading. NULL for memory that the CPU
 * cannot read (-EOPNOTSUPP), or for a bad handle (-EINVAL, -ESTALE).
 *
 * Thread: any that holds a handle.
 * Ownership: the bytes stay valid until the handle is released.
 * Cost: a lock.
 */
const void *pagepool_shared_data(struct pagepool_shared *shared);

/**
 * Returns the size of the page or fragment in bytes. 0 for a bad handle.
 *
 * Thread: any that holds a handle.
 * Cost: a lock.
 */
size_t pagepool_shared_len(struct pagepool_shared *shared);

/**
 * Returns the device address of the buffer's first byte in the pool's first domain. UINT64_MAX if the pool
 * has no domain, if the device is gone, or for a bad handle.
 *
 * Thread: any that holds a handle.
 * Cost: a lock.
 */
uint64_t pagepool_shared_dma_addr(struct pagepool_shared *shared);

/**
 * Takes a reference to the page of a shared buffer, as pagepool_buf_page_ref does.
 *
 * Thread: any that holds a handle.
 * Ownership: release `*page_ref` with pagepool_page_ref_put. The shared handle is unchanged.
 * Errors: -ENOMEM if there is no memory for the table. -EINVAL, -ESTALE for a bad handle.
 * Cost: two locks and an atomic operation.
 */
int pagepool_shared_page_ref(struct pagepool_shared *shared, struct pagepool_page_ref **page_ref);

/**
 * Splits a buffer in two: `*front` gets the first `at` bytes, `*rest` the others. Each part is returned
 * separately, on any thread; the page returns to its pool with its last part. Nothing is copied. To cut
 * several packets from one receive buffer, repeat pagepool_buf_split(buf, len, &packet, &buf).
 *
 * Both parts are fragments, even of a whole page: `at` counts from the page's first byte, headroom included.
 * Read the packet's address before the split. Parts that share a cache line have no device address for
 * pagepool_buf_into_raw.
 *
 * Thread: the one that holds the buffer.
 * Ownership: the handle of the buffer ends, unless the call fails. `*front` and `*rest` are new handles of
 *     the caller's, to be returned with pagepool_buf_put.
 * Errors: -EINVAL unless `at` is 1 to pagepool_buf_len() - 1; in pages of 4 MiB (order 10) it must be an
 *     even number. -EINVAL if `front` or `rest` is NULL, or both are the same pointer. -ENOMEM if there is
 *     no memory for the table. -ENOSPC if all pools together have 268,435,456 pages and fragments, the
 *     limit. -EINVAL, -ESTALE for a bad handle. Nothing changes then.
 * Cost: a lookup; on other threads than the owner's also two locks and one atomic operation, or two for a
 *     whole page.
 */
int pagepool_buf_split(struct pagepool_buf *buf,
                       size_t at,
                       struct pagepool_buf **front,
                       struct pagepool_buf **rest);

/**
 * Registers a user of deferred buffers with a pool that has a deferred queue (`defer_capacity`).
 *
 * Thread: owner.
 * Ownership: release `*user` with pagepool_deferred_user_put.
 * Errors: -EOPNOTSUPP in a pool without a queue. -EINVAL names the missing callback. -EPERM on another
 *     thread. -EINVAL, -ESTALE for a bad handle. `release` is not called then.
 * Cost: allocates.
 */
int pagepool_deferred_user_create(struct pagepool *pool,
                                  const struct pagepool_deferred_user_ops *ops,
                                  struct pagepool_deferred_user **user);

/**
 * Releases the handle of a user. Its buffers stay deferred until it is done with them; the poll after that
 * calls `release`.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_deferred_user_put(struct pagepool_deferred_user *user);

/**
 * Puts a buffer that its user still reads into the deferred queue of its pool, and does not block. The
 * buffer returns to the pool once `in_use` returns 0 for the cookie. Refills and pagepool_poll_deferred call
 * `in_use`. After pagepool_destroy_watched, pagepool_shutdown_wait and pagepool_shutdown_report call it;
 * after pagepool_destroy, every call that creates or destroys a pool.
 *
 * Thread: owner.
 * Ownership: the handle of the buffer ends, unless the call fails.
 * Errors: -ENOBUFS if `defer_capacity` buffers are in the queue. -EINVAL for a buffer or a user of another
 *     pool. -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lookup and two short locks; no allocation.
 */
int pagepool_defer(struct pagepool *pool,
                   struct pagepool_deferred_user *user,
                   struct pagepool_buf *buf,
                   uint64_t cookie);

/**
 * Polls the deferred queue once, as the pool's `on_busy` specifies. Returns the number of buffers that
 * returned to the pool.
 *
 * Thread: owner.
 * Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: a callback per user, and one per buffer that is checked.
 */
int64_t pagepool_poll_deferred(struct pagepool *pool);

/**
 * Writes the counters of a pool's deferred queue to `*stats`, as many as fit into `stats->size` bytes, which
 * the caller sets. All are 0 in a pool without a queue.
 *
 * Thread: any.
 * Errors: -EINVAL for NULL, or a `size` that is 0 or too small; `*stats` is then unchanged. -EINVAL, -ESTALE
 *     for a bad handle.
 * Cost: a lock; nothing on the owner's thread.
 */
int pagepool_read_deferred_stats(struct pagepool *pool, struct pagepool_deferred_stats *stats);

/**
 * Creates a domain from the caller's callbacks, such as an IOMMU or the address translation of a device.
 *
 * Thread: any.
 * Ownership: release `*domain` with pagepool_domain_put. Pools that use the domain keep it.
 * Errors: -EINVAL names the missing callback.
 * Cost: allocates.
 */
int pagepool_domain_create(const struct pagepool_domain_ops *ops, struct pagepool_domain **domain);

/**
 * Creates a domain in which the device address of a byte is its address for the CPU. `name` is used in error
 * texts; NULL means "domain".
 *
 * Thread: any.
 * Ownership: release `*domain` with pagepool_domain_put. Pools that use the domain keep it.
 * Errors: -EINVAL if `domain` is NULL.
 * Cost: allocates.
 */
int pagepool_domain_identity(const char *name, struct pagepool_domain **domain);

/**
 * Creates a domain in which the device address of a byte is its offset in the arena, as in an AF_XDP UMEM.
 * An arena that is mapped here requires `commit_all`. `name` is used in error texts; NULL means "domain".
 *
 * Thread: any.
 * Ownership: release `*domain` with pagepool_domain_put. Pools that use the domain keep it.
 * Errors: -EINVAL if `domain` is NULL.
 * Cost: allocates.
 */
int pagepool_domain_offset(const char *name, struct pagepool_domain **domain);

/**
 * Releases the handle of a domain. The domain is freed, and its `release` called, after the last pool that
 * uses it.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_domain_put(struct pagepool_domain *domain);

/**
 * Returns the device address of the buffer's first byte in a domain. A device of that domain can use the
 * buffer without a new mapping. UINT64_MAX if the buffer's arena is not mapped there, or for a bad handle.
 *
 * Thread: the one that holds the buffer.
 * Cost: two lookups; a lock for a domain that is not the pool's.
 */
uint64_t pagepool_buf_dma_addr_in(struct pagepool_buf *buf, struct pagepool_domain *domain);

/**
 * Creates a pool over the memory of an arena, and maps that memory in the pool's domains. No thread owns the
 * pool yet. Linux: page_pool_create.
 *
 * Thread: any.
 * Ownership: release `*pool` with pagepool_destroy or pagepool_destroy_watched. The pool keeps the arena and
 *     the domains: their handles may be released at once.
 * Errors: -EINVAL names the parameter, its value and its range. -EIO names the domain that refused to map.
 *     -ENOMEM and -EMFILE name what the system refused. -EBUSY for the 4097th pool. -ENOSPC if all pools
 *     together have 268,435,456 pages and fragments, the limit. `*pool` is then unchanged.
 * Cost: allocates; a few microseconds.
 */
int pagepool_create(const struct pagepool_params *params, struct pagepool **pool);

/**
 * Destroys a pool without waiting. Pages in its cache, lanes and ring return to the arena now. Buffers that
 * are out stay valid; the return of the last one frees the pool, on any thread. A buffer that is out as a
 * device address (pagepool_buf_into_raw, pagepool_alloc_addr_bulk) can no longer be returned: its page stays
 * out, so a device that still writes there damages nothing, but pool and arena then stay until the process
 * ends. Use pagepool_destroy_watched to wait for buffers, or to return device addresses. Linux:
 * page_pool_destroy.
 *
 * Thread: owner; any while no thread owns the pool, or if it was made with `no_owner`.
 * Ownership: the handle ends.
 * Errors: -EPERM on another thread. -EBUSY in a callback that a call on this pool makes. -EINVAL, -ESTALE
 *     for a bad handle.
 * Cost: locks; proportional to the pages in the pool.
 */
int pagepool_destroy(struct pagepool *pool);

/**
 * Makes the calling thread the owner of the pool. The owner allocates, and its returns go into the cache.
 * The call has no effect if the thread owns the pool already. When a thread ends, the library unbinds its
 * pools. Linux: page_pool_enable_direct_recycling.
 *
 * Thread: any.
 * Errors: -EPERM if another thread owns the pool, if it was made with `no_owner`, or if the calling thread
 *     is ending. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_bind(struct pagepool *pool);

/**
 * Ends the ownership of the calling thread, so that another thread can bind the pool. From now on this
 * thread returns buffers as any other thread does. Linux: page_pool_disable_direct_recycling.
 *
 * Thread: owner.
 * Errors: -EPERM on another thread. -EBUSY in a callback that a call on this pool makes. -EINVAL, -ESTALE
 *     for a bad handle.
 * Cost: a lock.
 */
int pagepool_unbind(struct pagepool *pool);

/**
 * Allocates a whole page. The library does not clear it. Linux: page_pool_dev_alloc_pages.
 *
 * Thread: owner.
 * Ownership: the buffer is the caller's until it is returned.
 * Errors: NULL if no page is left (-ENOMEM, counted in `alloc_failed`), on another thread (-EPERM), or for a
 *     bad handle (-EINVAL, -ESTALE).
 * Cost: from the cache no atomic operation; otherwise a refill of up to 64 pages.
 */
struct pagepool_buf *pagepool_alloc_page(struct pagepool *pool);

/**
 * Allocates a fragment of `size` bytes: a part of a page that other fragments share. It begins at a multiple
 * of `frag_align` bytes. Linux: page_pool_dev_alloc_frag.
 *
 * Thread: owner.
 * Ownership: the fragment is the caller's until it is returned; its page is free when its last fragment is
 *     returned.
 * Errors: NULL for a size of 0 or above the page size (-EINVAL), if no page is left or no memory for the
 *     table (-ENOMEM), if all pools together have 268,435,456 pages and fragments, the limit (-ENOSPC), on
 *     another thread (-EPERM), or for a bad handle (-EINVAL, -ESTALE).
 * Cost: no atomic operation; if fragments are returned on other threads, a lock per 64 of them.
 */
struct pagepool_buf *pagepool_alloc_frag(struct pagepool *pool, size_t size);

/**
 * Allocates a fragment of at least `*size` bytes, or a whole page if two such fragments do not fit into one
 * page. Stores the size of the buffer in `*size`: if no second fragment fits after it, it gets the rest of
 * its page. Linux: page_pool_dev_alloc.
 *
 * Thread: owner.
 * Ownership: the buffer is the caller's until it is returned.
 * Errors: NULL as for pagepool_alloc_frag, and if `size` is NULL. `*size` is then unchanged.
 * Cost: as pagepool_alloc_page or pagepool_alloc_frag.
 */
struct pagepool_buf *pagepool_alloc(struct pagepool *pool, size_t *size);

/**
 * Allocates up to `n` whole pages into `bufs`. Returns how many it allocated. Linux:
 * page_pool_dev_alloc_pages in a loop.
 *
 * Thread: owner.
 * Ownership: these buffers are the caller's. The other elements of `bufs` are unchanged.
 * Errors: fewer than `n`, for one of the reasons of pagepool_alloc_page; pagepool_last_error says which.
 * Cost: one check of pool and owner for up to 64 pages; from the cache no atomic operation. A refill as for
 *     pagepool_alloc_page.
 */
size_t pagepool_alloc_bulk(struct pagepool *pool, struct pagepool_buf **bufs, size_t n);

/**
 * Allocates up to `n` whole pages into `bufs`, and stores the address of the first byte of each in `data`.
 * Returns how many it allocated. Linux: page_pool_dev_alloc_pages and page_address in a loop.
 *
 * Thread: owner.
 * Ownership: as for pagepool_alloc_bulk. The bytes at `data[i]` are the caller's until `bufs[i]` is
 *     returned. The arrays must not overlap.
 * Errors: as for pagepool_alloc_bulk; also 0 for memory that the CPU cannot read (-EOPNOTSUPP).
 * Cost: as pagepool_alloc_bulk, and the address of each page.
 */
size_t pagepool_alloc_bulk_data(struct pagepool *pool, struct pagepool_buf **bufs, void **data, size_t n);

/**
 * Writes one line for each pool that this process created through this library: name, id, state, where its
 * pages are, counters. A destroyed pool is listed until its last buffer is returned. Cuts the text to `len`
 * bytes and ends it with a zero byte. Returns the full length in bytes, without the zero byte. `text` may be
 * NULL. Linux: the netlink dump of page pools.
 *
 * Thread: any.
 * Errors: none.
 * Cost: locks and formats text, pool by pool; nothing on the owners' threads.
 */
int64_t pagepool_dump(char *text, size_t len);

/**
 * Sets the NUMA node that the pool prefers, and returns the pages of the cache to the arena. -1 means the
 * node of the thread that refills, read at each refill. Linux: page_pool_update_nid.
 *
 * Thread: owner.
 * Errors: -EINVAL for a node that the arena does not have; nothing changes then. -EPERM on another thread.
 *     -EINVAL, -ESTALE for a bad handle.
 * Cost: proportional to the pages in the cache.
 */
int pagepool_update_nid(struct pagepool *pool, int nid);

/**
 * Calls pagepool_update_nid if `nid` differs from the pool's node. Linux: page_pool_nid_changed.
 *
 * Thread: owner.
 * Errors: as pagepool_update_nid.
 * Cost: a comparison if the node is the same.
 */
int pagepool_nid_changed(struct pagepool *pool, int nid);

/**
 * Creates a pool with `bytes` bytes of its own memory, and makes the calling thread its owner. Device
 * addresses are offsets in that memory, as in an AF_XDP UMEM; pagepool_base has its address. All other
 * parameters are those of PAGEPOOL_PARAMS_INIT. For several pools over one memory, other domains or other
 * parameters use pagepool_arena_create and pagepool_create.
 *
 * `bytes` is a multiple of 4096, or of the huge page size for the hugetlb kinds. `kind` is 0 for the
 * default, or PAGEPOOL_BACKING_ANONYMOUS_4K, _TRANSPARENT_HUGE, _HUGE_2M or _HUGE_1G. If no huge pages are
 * available, smaller pages are taken; `| PAGEPOOL_HUGE_OR_FAIL` fails instead.
 *
 * Thread: any.
 * Ownership: release `*pool` with pagepool_destroy or pagepool_destroy_watched. The memory is the pool's: it
 *     is returned to the system when the pool is freed.
 * Errors: -EINVAL names the argument, its value and its range. -EPERM if the calling thread is ending.
 *     Otherwise as pagepool_arena_create and pagepool_create. `*pool` is then unchanged.
 * Cost: a few system calls; the time to clear the memory for the hugetlb kinds.
 */
int pagepool_open(uint64_t bytes, uint32_t kind, struct pagepool **pool);

/**
 * Returns the address of the first byte of the pool's memory, and stores its length in `*bytes` unless
 * `bytes` is NULL: for a UMEM, or to read the packet at offset `addr`. A pool over an arena has the arena's
 * memory. NULL for device memory (-EOPNOTSUPP) or a bad handle (-EINVAL, -ESTALE); `*bytes` is then
 * unchanged.
 *
 * Thread: any.
 * Cost: a lock.
 */
void *pagepool_base(struct pagepool *pool, uint64_t *bytes);

/**
 * Returns idle pages to the arena until at most `keep` are left in the cache, lanes and ring. It polls the
 * deferred queue first. The result is the number of pages returned. pagepool_arena_trim then returns the
 * memory to the system.
 *
 * Thread: owner.
 * Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: proportional to the pages returned.
 */
int64_t pagepool_shrink(struct pagepool *pool, size_t keep);

/**
 * Requests that the owner shrink the pool to `keep` idle pages, and returns at once. The owner does so when
 * it next refills its cache, or calls pagepool_poll_deferred or pagepool_acknowledge_wake. In a pool with
 * `wakeup` the event descriptor becomes readable. Of several requests the lowest counts.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock, and a system call in a pool with `wakeup`.
 */
int pagepool_ask_to_shrink(struct pagepool *pool, size_t keep);

/**
 * Destroys a pool as pagepool_destroy does, and stores a handle: to wait for the last buffer, to report
 * which pages are out, and to return device addresses. Linux: page_pool_destroy.
 *
 * Thread: owner; any while no thread owns the pool, or if it was made with `no_owner`.
 * Ownership: the pool's handle ends. Release `*shutdown` with pagepool_shutdown_put; it keeps the pool's
 *     domains.
 * Errors: as pagepool_destroy, and -ENOMEM if there is no memory for the handle or for destroying the pool.
 *     The pool is then unchanged, and its handle stays the caller's.
 * Cost: as pagepool_destroy.
 */
int pagepool_destroy_watched(struct pagepool *pool, struct pagepool_shutdown **shutdown);

/**
 * Waits at most `timeout_ns` nanoseconds until the last buffer is returned and the pool is freed. The thread
 * sleeps; it does not spin.
 *
 * Thread: any.
 * Errors: -ETIMEDOUT if buffers are still out; pagepool_last_error has the report. -EPERM in a child of
 *     fork, if its parent destroyed the pool. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock; a system call to sleep.
 */
int pagepool_shutdown_wait(struct pagepool_shutdown *shutdown, uint64_t timeout_ns);

/**
 * Returns the number of pages that are out, and writes a report into `text`: "stalled pool shutdown: N
 * buffers held for S s", and the pages with their tags. Cuts the text to `len` bytes and ends it with a zero
 * byte. `text` may be NULL.
 *
 * Thread: any.
 * Errors: -EPERM as for pagepool_shutdown_wait. -EINVAL, -ESTALE for a bad handle.
 * Cost: reads all page records of the arena.
 */
int64_t pagepool_shutdown_report(struct pagepool_shutdown *shutdown, char *text, size_t len);

/**
 * Returns a buffer to a destroyed pool by its device address; also after the pool was freed.
 *
 * Thread: any.
 * Ownership: the address ends.
 * Errors: -EINVAL for an address that is not the pool's. -ESTALE for an address that is not out. An address
 *     that was returned before gives one of the two. Nothing changes then. -EPERM as for
 *     pagepool_shutdown_wait. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock and about four atomic operations.
 */
int pagepool_shutdown_put_addr(struct pagepool_shutdown *shutdown, uint64_t addr);

/**
 * Releases the handle of a shutdown. The pool is freed with its last buffer, with or without this handle.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -EPERM as for pagepool_shutdown_wait. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_shutdown_put(struct pagepool_shutdown *shutdown);

/**
 * Writes the pool's counters to `*stats`, as many as fit into `stats->size` bytes, which the caller sets.
 * Overwrites the old values. The counters are exact while no call on the pool is in progress. Linux:
 * page_pool_get_stats.
 *
 * Thread: any.
 * Errors: -EINVAL for NULL, or a `size` that is 0 or too small; `*stats` is then unchanged. -EINVAL, -ESTALE
 *     for a bad handle.
 * Cost: a lock; nothing on the owner's thread.
 */
int pagepool_read_stats(struct pagepool *pool, struct pagepool_stats *stats);

/**
 * Returns the number of pages that joined the pool and have not left: `hold` - `release`, correct across
 * wrap-around. Linux: page_pool_inflight.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int64_t pagepool_inflight(struct pagepool *pool);

/**
 * Returns how many bytes were lost when pages were cut into fragments: at the ends of pages, and by
 * alignment. The number only grows.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int64_t pagepool_frag_waste(struct pagepool *pool);

/**
 * Writes the number of the pool's pages in each place to `*places`. The caller sets `places->size`.
 *
 * Thread: any.
 * Errors: -EINVAL for NULL, or a `size` that is 0 or too small; `*places` is then unchanged. -EINVAL,
 *     -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_read_buffer_locations(struct pagepool *pool, struct pagepool_buffer_locations *places);

/**
 * Registers a name for the holder of buffers, in a pool with `tagging` or `holders`. Returns its tag, 0 or
 * more; a known name gives its existing tag. The process keeps at most 65,535 names, until it ends. Beyond
 * that, for an empty name, and in a pool with neither option, the returned tag has no effect.
 *
 * Thread: owner.
 * Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_tag(struct pagepool *pool, const char *name);

/**
 * Gives this tag to all buffers that are allocated from now on; -1 means no tag. It has no effect in a pool
 * without `holders`.
 *
 * Thread: owner.
 * Errors: -EINVAL for a tag that is not of this pool. -EPERM on another thread. -EINVAL, -ESTALE for a bad
 *     handle.
 * Cost: a lock.
 */
int pagepool_set_tag(struct pagepool *pool, int tag);

/**
 * Records who holds a buffer now, for pagepool_shutdown_report; in a pool with `holders` the calling thread
 * becomes the holder. The tag stays when the buffer is shared or becomes a device address. It has no effect
 * in a pool with neither `tagging` nor `holders`.
 *
 * Thread: the one that holds the buffer.
 * Errors: -EINVAL for a tag that is not of this pool. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_buf_set_tag(struct pagepool *pool, struct pagepool_buf *buf, int tag);

/**
 * Records who holds a shared buffer now, as pagepool_buf_set_tag does for a buffer. The last call of any
 * reader counts.
 *
 * Thread: any.
 * Errors: -EINVAL for a tag that is not of this pool. -EINVAL, -ESTALE for a bad handle.
 * Cost: two locks.
 */
int pagepool_shared_set_tag(struct pagepool *pool, struct pagepool_shared *shared, int tag);

/**
 * Returns the event descriptor of a pool with `wakeup`, for poll(2) or epoll(7) beside the device's. After
 * an allocation failed, or fewer than `low_water` pages were available, it becomes readable when another
 * thread returns a page, or a page returns to the arena. It stays readable until pagepool_acknowledge_wake.
 * If you poll it edge-triggered (EPOLLET), acknowledge each signal.
 *
 * Thread: owner.
 * Ownership: the descriptor is the pool's, and is closed when the pool is destroyed.
 * Errors: -EOPNOTSUPP in a pool without a descriptor. -EPERM on another thread. -EINVAL, -ESTALE for a bad
 *     handle.
 * Cost: a load.
 */
int pagepool_wake_fd(struct pagepool *pool);

/**
 * Clears the event descriptor after it woke the owner. Call it before you allocate: the next allocation that
 * fails arms the descriptor again, which none does while a signal is pending.
 *
 * Thread: owner.
 * Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: a short lock; with a signal to clear, a system call.
 */
int pagepool_acknowledge_wake(struct pagepool *pool);

/**
 * Returns the lowest number of pages that cache and arena together had at any refill from the arena.
 *
 * Thread: owner.
 * Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: a load.
 */
int64_t pagepool_low_water_mark(struct pagepool *pool);

/**
 * Publishes the pools of this process to other processes of the same user: counters, places of pages,
 * parameters. Call it once, before the first pool; an arena that was created earlier is not shown. The file
 * is in the folder `$PAGEPOOL_RUN`, otherwise /run/pagepool for root, otherwise `$XDG_RUNTIME_DIR/pagepool`.
 * If the process is killed, the file stays and shows what the process held. A buffer costs at most one
 * instruction more. A child of fork(2) publishes nothing.
 *
 * The folder should be on tmpfs. On another file system, the first store to a page after its write-back
 * takes a page fault, and if fallocate(2) reserves nothing there, a full file system kills the process by
 * SIGBUS.
 *
 * Thread: any.
 * Ownership: `name` is copied. It has 1 to 64 characters of A-Z a-z 0-9 - _ . and does not begin with a dot.
 * Errors: -EINVAL for a bad name, for a folder that others may write to, or if there is no folder. -EBUSY
 *     on a second call, and while a pool exists. Other errors of the system, such as -ENOSPC.
 * Cost: some system calls, on files.
 */
int pagepool_publish(const char *name);

/**
 * Records in the published file that the process is alive now. Without a published file it does nothing.
 * Readers of the file of a killed process see the time of its last sign of life. Creating or destroying a
 * pool is a sign of life too.
 *
 * Thread: any.
 * Cost: reads the clock.
 */
void pagepool_sign_of_life(void);

/**
 * Withdraws what pagepool_publish published: removes the file; pools created from now on are not shown.
 * Existing pools are unchanged. exit(3) and a return from main do this too. _exit(2), abort(3) and a signal
 * do not: the file then shows what the process held.
 *
 * Thread: any.
 * Errors: -ENOENT if nothing is published, or another thread is withdrawing it. -ENOENT in a child of
 *     fork(2), because the file is its parent's.
 * Cost: three system calls.
 */
int pagepool_unpublish(void);

/**
 * Publishes an entry beside the pools, such as a socket with the number of buffers that wait there.
 * `pagepool show` and `doctor` subtract those from what the program holds. The entry is shown until
 * pagepool_entry_put, or until the process ends. Returns the number of the entry, above 0.
 *
 * Thread: any.
 * Ownership: the texts are copied.
 * Errors: -ENOENT if nothing is published. -EINVAL names the field that is NULL, too long or too many.
 *     -ENOSPC if the file is full: it has room for 1024 pools and entries. -EINVAL, -ESTALE for a bad
 *     handle of a pool. -ENOMEM.
 * Cost: allocates; a short lock.
 */
int pagepool_publish_entry(const struct pagepool_entry_params *params);

/**
 * Sets a counter of an entry, by the index of its name.
 *
 * Thread: any.
 * Errors: -EINVAL for an index or an entry that never existed. -ESTALE for an entry that was removed.
 * Cost: a lock.
 */
int pagepool_entry_set(int entry, size_t counter, uint64_t value);

/**
 * Removes a published entry.
 *
 * Thread: any.
 * Ownership: the number of the entry ends.
 * Errors: as for pagepool_entry_set.
 * Cost: a short lock.
 */
int pagepool_entry_put(int entry);

/**
 * Returns the version of the library, such as "0.1.0".
 *
 * Thread: any.
 * Ownership: the text is the library's. It stays valid until the process ends.
 * Cost: returns a constant.
 */
const char *pagepool_version(void);

/**
 * Returns a sentence that explains the last error on this thread, or "" if there was none. It names the
 * parameter, its value and its range, or the system call and the remedy.
 *
 * Thread: any; each has its own sentence.
 * Ownership: the text is the library's. It is valid until the next call on this thread that fails.
 * Errors: none.
 * Cost: a load.
 */
const char *pagepool_last_error(void);

/**
 * Returns the errno of the last error on this thread, as a positive number, also of a function that returned
 * NULL, 0 or a largest value. 0 if there was none since the thread began or pagepool_clear_error. A call
 * that succeeds does not change it.
 *
 * Thread: any; each has its own.
 * Errors: none.
 * Cost: a load.
 */
int pagepool_last_errno(void);

/**
 * Clears the last error on this thread. Call it before a function whose result may be 0 without an error,
 * such as pagepool_skb_len, to check pagepool_last_errno after it.
 *
 * Thread: any.
 * Errors: none.
 * Cost: two stores.
 */
void pagepool_clear_error(void);

/**
 * Returns the tables for the inline functions of this header; not for programs. NULL if library and header
 * have different layouts; the inline functions then call the library. Each compiled file calls it once,
 * before main.
 *
 * Thread: any.
 * Cost: a comparison.
 */
const struct pagepool_inline_ *pagepool_inline_tables(uint32_t layout);

#if defined(__GNUC__)
#define PAGEPOOL_UNUSED_ __attribute__((unused))
#else
#define PAGEPOOL_UNUSED_
#endif

/* ---- Device addresses, as Linux's headers have them ----
 *
 * Linux's __u64, the type of a fill ring's entries, is `unsigned long long`; uint64_t may be `unsigned long`.
 * Both have 64 bits, and the functions that take arrays of addresses accept both.
 */
#if defined(__cplusplus)
extern "C++" {
template <typename T> struct pagepool_of_linux_ {
};
template <> struct pagepool_of_linux_<unsigned long long> {
    typedef size_t number;
    typedef int status;
};
template <typename T>
inline typename pagepool_of_linux_<T>::number pagepool_alloc_addr_bulk(struct pagepool *pool, T *addrs,
    size_t n)
{
    return pagepool_alloc_addr_bulk(pool, reinterpret_cast<uint64_t *>(addrs), n);
}
template <typename T>
inline typename pagepool_of_linux_<T>::status pagepool_put_addr_bulk(struct pagepool *pool, const T *addrs,
    size_t n)
{
    return pagepool_put_addr_bulk(pool, reinterpret_cast<const uint64_t *>(addrs), n);
}
}
#elif defined(__GNUC__)
union pagepool_addrs_ {
    uint64_t *addrs;
    unsigned long long *of_linux;
} __attribute__((transparent_union));
union pagepool_const_addrs_ {
    const uint64_t *addrs;
    const unsigned long long *of_linux;
} __attribute__((transparent_union));
#define PAGEPOOL_EITHER_ __attribute__((unused, always_inline)) static inline
PAGEPOOL_EITHER_ size_t pagepool_alloc_addr_bulk_(struct pagepool *pool, union pagepool_addrs_ at, size_t n)
{
    return pagepool_alloc_addr_bulk(pool, at.addrs, n);
}
PAGEPOOL_EITHER_ int pagepool_put_addr_bulk_(struct pagepool *pool, union pagepool_const_addrs_ at, size_t n)
{
    return pagepool_put_addr_bulk(pool, at.addrs, n);
}
#define pagepool_alloc_addr_bulk(...) (__extension__ pagepool_alloc_addr_bulk_(__VA_ARGS__))
#define pagepool_put_addr_bulk(...) (__extension__ pagepool_put_addr_bulk_(__VA_ARGS__))
#endif

/* ---- The fast paths, compiled into the program ---
 *
 * On the owner's thread, these do not call into the library: pagepool_alloc_page, pagepool_buf_put,
 * pagepool_buf_data; and in bulk pagepool_alloc_bulk, pagepool_alloc_bulk_data, pagepool_buf_put_bulk. On
 * other threads, pagepool_buf_data does not either; nor does pagepool_buf_put, after up to 17 buffers of a
 * pool. All make the same checks as the library, and call it in all other cases. Define PAGEPOOL_NO_INLINE to
 * leave this part out. Programs must not use names that end in an underscore.
 *
 * The functions read tables of the library, which are never freed. Before main, each compiled file checks
 * once that the library has this layout; if not, every call goes to the library.
 *
 * Loads dominate the cost. So each thread keeps the address of the owned pool that it used last. The library
 * clears it when the thread stops being the owner, which happens on that thread. So a handle that matches the
 * kept pool proves that the thread owns it. For each thread, the library also records one pool to which the
 * thread returns buffers and which it does not own. A return compares the recorded token with the pool's,
 * because that pool may have ended.
 */
#if !defined(PAGEPOOL_NO_INLINE) && defined(__GNUC__) && defined(__linux__) && !defined(__BIONIC__) && \
    (defined(__x86_64__) || defined(__aarch64__))

/* C has no other spelling for casts and null pointers. */
#if defined(__cplusplus)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wzero-as-null-pointer-constant"
#endif

/* Only the pool's owner writes this: its cache, and the counters of pages taken from it and put into it. */
struct pagepool_cache_ {
    uint32_t pages[1024];
    size_t count, limit, capacity;
    uint64_t alloc_fast, recycle_cached;
};

struct pagepool_view_ {
    uint64_t token, owner;
    uint32_t base, pages;
    struct pagepool_cache_ *cache;
    uint64_t memory, base_page; /* `memory` is 0 if the CPU cannot read the pages */
    uint64_t rest[4];
    uint32_t no_owner;
    uint64_t *lives __attribute__((aligned(128)));
    uint64_t *outs;
    uint64_t number, limit;
    uint32_t busy __attribute__((aligned(64)));
    uint32_t claims __attribute__((aligned(128)));
    uint32_t away __attribute__((aligned(128)));
};

/* `outs` and `memory` are the addresses that place 0 would have. `base_page` is 0 unless the row is for pages
 * that the CPU can read. */
struct pagepool_row_ {
    struct pagepool_view_ *view;
    uint64_t kind;
    uint64_t outs;
    uint64_t rest;
    uint64_t memory, base_page;
} __attribute__((aligned(64)));

/* A pool to which a thread returns buffers but which it does not own. The library has such a record per
 * thread, and only that thread uses it. */
struct pagepool_elsewhere_ {
    uint32_t base, pages;
    uint64_t *outs;
    const struct pagepool_view_ *view;
    uint64_t token;
    const struct pagepool_hand_ *hand;
    struct pagepool_lane_ *lane;
    int (*after_sending)(void *buf);
};

/* `lanes` is 0 while the thread has no lanes. */
struct pagepool_hand_ {
    uint64_t rest;
    uint32_t lanes;
};

/* The thread's lane to the pool. Only this thread writes this part, except the flags. */
struct pagepool_lane_ {
    uint32_t *next, *until;
    uint32_t phase, flags;
    uint64_t rest[2];
    uint64_t to_life;
};

/* One definition per program or shared object, however many files include this. */
#define PAGEPOOL_ONCE_ __attribute__((weak, visibility("hidden")))
/* Otherwise a shared object would call a function to find the variable. Only glibc: other C libraries may
 * refuse to load such an object at run time. */
#if defined(__GLIBC__)
#define PAGEPOOL_NEAR_ __attribute__((tls_model("initial-exec")))
#else
#define PAGEPOOL_NEAR_
#endif

/* The layout is part of the names that linkers see, so two versions of this header share nothing. */
#define pagepool_no_cache_ pagepool_no_cache_efc1f758_
#define pagepool_no_view_ pagepool_no_view_efc1f758_
#define pagepool_here_ pagepool_here_efc1f758_
#define pagepool_nowhere_ pagepool_nowhere_efc1f758_
#define pagepool_there_ pagepool_there_efc1f758_
#define pagepool_missed_ pagepool_missed_efc1f758_
#define pagepool_noted_ pagepool_noted_efc1f758_

/* A view of no pool. It has no page and an empty cache, so even NULL passes none of the checks. */
extern PAGEPOOL_ONCE_ struct pagepool_cache_ pagepool_no_cache_;
PAGEPOOL_ONCE_ struct pagepool_cache_ pagepool_no_cache_;
extern PAGEPOOL_ONCE_ struct pagepool_view_ pagepool_no_view_;
PAGEPOOL_ONCE_ struct pagepool_view_ pagepool_no_view_ = {
    0, 0, 0, 0, &pagepool_no_cache_, 0, 0, {0}, 0, NULL, NULL, 0, 0, 0, 0, 0};
/* The pool that this thread used last and owns. */
extern PAGEPOOL_ONCE_ PAGEPOOL_NEAR_ __thread struct pagepool_view_ *pagepool_here_;
PAGEPOOL_ONCE_ PAGEPOOL_NEAR_ __thread struct pagepool_view_ *pagepool_here_ = &pagepool_no_view_;
/* This thread's record of a pool that it does not own, or a record of no pool. */
extern PAGEPOOL_ONCE_ struct pagepool_elsewhere_ pagepool_nowhere_;
PAGEPOOL_ONCE_ struct pagepool_elsewhere_ pagepool_nowhere_ = {
    0, 0, NULL, &pagepool_no_view_, 0, NULL, NULL, NULL};
extern PAGEPOOL_ONCE_ PAGEPOOL_NEAR_ __thread const struct pagepool_elsewhere_ *pagepool_there_;
PAGEPOOL_ONCE_ PAGEPOOL_NEAR_ __thread const struct pagepool_elsewhere_ *pagepool_there_ = &pagepool_nowhere_;
/* How many buffers of other pools this thread met. */
extern PAGEPOOL_ONCE_ PAGEPOOL_NEAR_ __thread uint32_t pagepool_missed_;
PAGEPOOL_ONCE_ PAGEPOOL_NEAR_ __thread uint32_t pagepool_missed_;
/* Whether the library has noted where pagepool_here_ is, to clear it. */
extern PAGEPOOL_ONCE_ PAGEPOOL_NEAR_ __thread int pagepool_noted_;
PAGEPOOL_ONCE_ PAGEPOOL_NEAR_ __thread int pagepool_noted_;

/* The library's tables; NULL before pagepool_start_, and if the library has another layout. */
PAGEPOOL_UNUSED_ static const struct pagepool_inline_ *pagepool_tables_;
/* The directory's rows, and the mask of their offsets. Without the tables, one row without pages. */
PAGEPOOL_UNUSED_ static const struct pagepool_row_ pagepool_no_row_ = {NULL, 0, 0, 0, 0, 0};
PAGEPOOL_UNUSED_ static const void *pagepool_rows_ = &pagepool_no_row_;
PAGEPOOL_UNUSED_ static uint32_t pagepool_row_mask_;

__attribute__((constructor)) PAGEPOOL_UNUSED_ static void pagepool_start_(void)
{
    pagepool_tables_ = pagepool_inline_tables(0xefc1f758);
    if (pagepool_tables_ != NULL) {
        pagepool_rows_ = pagepool_tables_->directory;
        pagepool_row_mask_ = 0xffff * sizeof(struct pagepool_row_);
    }
}

#define PAGEPOOL_FAST_ __attribute__((unused, always_inline)) static inline
#define PAGEPOOL_SLOW_ __attribute__((unused, noinline)) static
#define PAGEPOOL_LIKELY_(what) __builtin_expect(!!(what), 1)

/* A handle or an address as a number, and back: uintptr_t is as long as uint64_t, or even the same type. */
PAGEPOOL_FAST_ uint64_t pagepool_number_(const void *handle)
{
    return (uintptr_t)handle;
}

PAGEPOOL_FAST_ void *pagepool_pointer_(uintptr_t number)
{
    return (void *)number;
}

/* Passes on what a call returned. So the call is not the last thing in its function, a compiler does not turn
 * it into a jump, and the library finds the function on the stack: see pagepool_params.holders. */
PAGEPOOL_FAST_ void *pagepool_called_(void *got)
{
    __asm__ volatile("" : "+r"(got));
    return got;
}

PAGEPOOL_FAST_ size_t pagepool_called_n_(size_t got)
{
    __asm__ volatile("" : "+r"(got));
    return got;
}

/* The calling thread, as the library identifies it. */
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

/* Keeps this pool, which the calling thread owns, as the one that it used last. */
PAGEPOOL_SLOW_ void pagepool_stay_here_(struct pagepool_view_ *view)
{
    if (!pagepool_noted_)
        pagepool_noted_ = pagepool_tables_->note(&pagepool_here_);
    if (pagepool_noted_)
        pagepool_here_ = view;
}

/* Keeps a pool as the one that the calling thread used last, if it owns it. NULL without the tables. */
PAGEPOOL_FAST_ void pagepool_look_here_(struct pagepool_view_ *view)
{
    if (view != NULL && view->owner == pagepool_me_() && view->no_owner == 0)
        pagepool_stay_here_(view);
}

/* Keeps a pool as the last one, if the calling thread owns it; its token leads to its view. */
PAGEPOOL_FAST_ void pagepool_look_at_(const struct pagepool *pool)
{
    uint32_t token = (uint32_t)pagepool_number_(pool);
    if (pagepool_tables_ != NULL) {
        const uint64_t views = pagepool_number_(pagepool_tables_->views); /* written, too */
        pagepool_look_here_((struct pagepool_view_ *)pagepool_pointer_(views) +
                            (token >> 4 & pagepool_tables_->view_mask));
    }
}

/* All other cases. Calls that allocate stay in the program's own function, into which all of this is inlined,
 * because pools with `holders` record the place of that call. */
PAGEPOOL_SLOW_ struct pagepool *pagepool_looked_at_(struct pagepool *pool)
{
    pagepool_look_at_(pool);
    return pool;
}

/* The token of the page's next life: see LifeTable. */
PAGEPOOL_FAST_ uint64_t pagepool_next_(uint64_t token)
{
    return token + ((uint64_t)0x9e3779b2 << 32);
}

/* The page number of a token; `base` is that of its pool's view. It is above every page for a token of
 * another pool or kind: see PoolView::page_of. */
PAGEPOOL_FAST_ uint32_t pagepool_page_(uint32_t base, uint64_t token)
{
    uint32_t far = (uint32_t)token - base;
    return far >> 4 | far << 28;
}

/* Whether the kept pool still exists. If so, no other pool uses its words. */
PAGEPOOL_FAST_ int pagepool_is_there_(const struct pagepool_elsewhere_ *there)
{
    return __atomic_load_n(&there->view->token, __ATOMIC_ACQUIRE) == there->token;
}

/* The directory's row of any number; rows are never freed. */
PAGEPOOL_FAST_ const struct pagepool_row_ *pagepool_row_of_(uint64_t token)
{
    uint64_t at = pagepool_number_(pagepool_rows_) + ((uint32_t)token >> 10 & pagepool_row_mask_);
    return (const struct pagepool_row_ *)pagepool_pointer_(at);
}

/* Returns a buffer in all other cases, also before the tables are known. */
PAGEPOOL_SLOW_ int pagepool_put_other_(struct pagepool_buf *buf)
{
    if (pagepool_tables_ != NULL) {
        struct pagepool_view_ *view = pagepool_row_of_(pagepool_number_(buf))->view;
        if (view == NULL || view->owner != pagepool_me_()) {
            /* Notes the pool of every 17th such buffer only: a thread may return to several pools in turn. 17
             * is odd because buffers may come in pairs, of which the library can note only one. */
            if (++pagepool_missed_ % 17 == 0)
                pagepool_there_ = (const struct pagepool_elsewhere_ *)pagepool_tables_->note_away(buf);
            return pagepool_tables_->put_away(buf);
        }
        pagepool_look_here_(view);
    }
    return pagepool_buf_put(buf);
}

/* Marks the buffer as returned, and sends its life, as `leave` and `push_in_run` of the library do. The
 * caller has checked that the buffer is out and the slot is free. Gives the lane's flags. */
PAGEPOOL_FAST_ uint32_t pagepool_send_(struct pagepool_lane_ *lane, uint64_t *out, uint32_t page,
    uint64_t token)
{
    uint32_t *next = lane->next;
    uint32_t *life = (uint32_t *)(pagepool_number_(next) + lane->to_life);
    __atomic_store_n(out, pagepool_next_(token), __ATOMIC_RELAXED);
    __atomic_store_n(life, (uint32_t)(token >> 32), __ATOMIC_RELAXED);
    __atomic_store_n(next, (uint32_t)1 << 31 | page << 2 | lane->phase, __ATOMIC_RELEASE);
    __atomic_store_n(&lane->next, next + 1, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return __atomic_load_n(&lane->flags, __ATOMIC_RELAXED);
}

/* Most likely returns a plain page on a thread that is not the owner. Saves no register, because all its
 * calls are tail calls. */
PAGEPOOL_SLOW_ int pagepool_put_slow_(struct pagepool_buf *buf)
{
    uint64_t token = pagepool_number_(buf);
    const struct pagepool_elsewhere_ *there = pagepool_there_;
    uint32_t page = pagepool_page_(there->base, token);
    if (PAGEPOOL_LIKELY_(page < there->pages && pagepool_is_there_(there))) {
        struct pagepool_lane_ *lane = there->lane;
        uint64_t *out = &there->outs[page];
        if (PAGEPOOL_LIKELY_(there->hand->lanes != 0 && lane->next != lane->until &&
                             __atomic_load_n(out, __ATOMIC_RELAXED) == token)) {
            if (PAGEPOOL_LIKELY_(pagepool_send_(lane, out, page, token) == 0))
                return 0;
            return there->after_sending(buf);
        }
    }
    return pagepool_put_other_(buf);
}

PAGEPOOL_FAST_ struct pagepool_buf *pagepool_alloc_page_(struct pagepool *pool)
{
    struct pagepool_view_ *view = pagepool_here_;
    if (PAGEPOOL_LIKELY_(view->token == pagepool_number_(pool))) {
        struct pagepool_cache_ *cache = view->cache;
        size_t at;
        if (PAGEPOOL_LIKELY_(!__builtin_sub_overflow(cache->count, (size_t)1, &at))) {
            uint64_t token = view->lives[cache->pages[at]];
            if (PAGEPOOL_LIKELY_(token != 0)) { /* else the library begins the first life */
                ++cache->alloc_fast;
                __atomic_store_n(&cache->count, at, __ATOMIC_RELAXED);
                return (struct pagepool_buf *)pagepool_pointer_(token);
            }
        }
    }
    return (struct pagepool_buf *)pagepool_called_(pagepool_alloc_page(pagepool_looked_at_(pool)));
}

/* Begins and ends a plain section of the owner: pairs with alone() in lives.rs. In it, the limit is 0 unless
 * the owner may end lives. */
PAGEPOOL_FAST_ void pagepool_enter_(struct pagepool_view_ *view)
{
    __atomic_store_n(&view->busy, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

PAGEPOOL_FAST_ void pagepool_leave_(struct pagepool_view_ *view)
{
    __atomic_store_n(&view->busy, 0, __ATOMIC_RELEASE);
}

/* Ends the life of a plain page that is out. In a section, so no other thread uses `lives`. */
PAGEPOOL_FAST_ int pagepool_end_(uint64_t *lives, uint64_t *outs, uint32_t page, uint64_t token)
{
    if (!PAGEPOOL_LIKELY_(__atomic_load_n(&outs[page], __ATOMIC_RELAXED) == token && lives[page] == token))
        return 0;
    __atomic_store_n(&lives[page], pagepool_next_(token), __ATOMIC_RELAXED);
    __atomic_store_n(&outs[page], pagepool_next_(token), __ATOMIC_RELAXED);
    return 1;
}

/* Puts a page into the cache, if it is out in this life. In a section. */
PAGEPOOL_FAST_ int pagepool_put_page_(struct pagepool_view_ *view, uint32_t page, uint64_t token)
{
    struct pagepool_cache_ *cache = view->cache;
    size_t at = cache->count;
    if (!PAGEPOOL_LIKELY_(at < __atomic_load_n(&view->limit, __ATOMIC_RELAXED) &&
                          pagepool_end_(view->lives, view->outs, page, token)))
        return 0;
    ++cache->recycle_cached;
    cache->pages[at] = page;
    __atomic_store_n(&cache->count, at + 1, __ATOMIC_RELAXED);
    return 1;
}

PAGEPOOL_FAST_ int pagepool_buf_put_(struct pagepool_buf *buf)
{
    uint64_t token = pagepool_number_(buf);
    struct pagepool_view_ *view = pagepool_here_;
    uint32_t page = pagepool_page_(view->base, token);
    int done;
    if (PAGEPOOL_LIKELY_(page < view->pages)) {
        pagepool_enter_(view);
        done = pagepool_put_page_(view, page, token);
        pagepool_leave_(view);
        if (PAGEPOOL_LIKELY_(done))
            return 0;
    }
    return pagepool_put_slow_(buf);
}

/* If the out word equals a token that was given out, the page is out in that life as a plain page, which has
 * no offset, unless two threads returned it at the same moment. Words are never freed. The Acquire pairs with
 * set_memory(): a row with a size has all the rest. */
PAGEPOOL_FAST_ void *pagepool_buf_data_(struct pagepool_buf *buf)
{
    uint64_t token = pagepool_number_(buf);
    const struct pagepool_row_ *row = pagepool_row_of_(token);
    uint64_t place = (uint32_t)token >> 4;
    uint64_t base_page = __atomic_load_n(&row->base_page, __ATOMIC_ACQUIRE);
    const uint64_t *outs = (const uint64_t *)pagepool_pointer_(row->outs);
    if (PAGEPOOL_LIKELY_(base_page != 0 && __atomic_load_n(&outs[place], __ATOMIC_RELAXED) == token))
        return pagepool_pointer_(row->memory + place * base_page);
    return pagepool_buf_data(buf);
}

/* ---- The fast paths in bulk: up to 64 at a time ---- */

/* GCC does not by itself unroll a loop that may end early. */
#if !defined(__clang__) && __GNUC__ >= 8
#define PAGEPOOL_UNROLL_ _Pragma("GCC unroll 8")
#else
#define PAGEPOOL_UNROLL_
#endif

/* Takes n pages from the cache, and stores their handles and, unless `data` is NULL, their addresses. Takes
 * none if the library must begin one of their lives. */
PAGEPOOL_FAST_ int pagepool_take_(struct pagepool_view_ *view, struct pagepool_buf **bufs, void **data,
    size_t n)
{
    const uint64_t *lives = view->lives;
    const uint64_t memory = view->memory, base_page = view->base_page;
    const size_t rest = view->cache->count - n;
    const uint32_t *pages = view->cache->pages + rest;
    PAGEPOOL_UNROLL_
    for (size_t at = 0; at < n; ++at) {
        uint64_t page = pages[at], token = lives[page];
        if (!PAGEPOOL_LIKELY_(token != 0))
            return 0;
        bufs[at] = (struct pagepool_buf *)pagepool_pointer_(token);
        if (data != NULL)
            data[at] = pagepool_pointer_(memory + page * base_page);
    }
    __atomic_store_n(&view->cache->count, rest, __ATOMIC_RELAXED);
    view->cache->alloc_fast += n;
    return 1;
}

/* Whether n is 1 to 64, and `pool` is this thread's latest pool with n pages in its cache. */
PAGEPOOL_FAST_ int pagepool_has_(const struct pagepool_view_ *view, const struct pagepool *pool, size_t n)
{
    return view->token == pagepool_number_(pool) && n - 1 < 64 && n <= view->cache->count;
}

/* Takes n pages without the library, if possible; returns whether it did. */
PAGEPOOL_UNUSED_ static inline int pagepool_took_(struct pagepool *pool, struct pagepool_buf **bufs, size_t n)
{
    struct pagepool_view_ *view = pagepool_here_;
    if (PAGEPOOL_LIKELY_(pagepool_has_(view, pool, n) && bufs != NULL &&
                         pagepool_take_(view, bufs, NULL, n)))
        return 1;
    pagepool_look_at_(pool);
    return 0;
}

PAGEPOOL_UNUSED_ static inline int pagepool_took_data_(struct pagepool *pool, struct pagepool_buf **bufs,
    void **data, size_t n)
{
    struct pagepool_view_ *view = pagepool_here_;
    if (PAGEPOOL_LIKELY_(pagepool_has_(view, pool, n) && view->memory != 0 && bufs != NULL &&
                         data != NULL && pagepool_take_(view, bufs, data, n)))
        return 1;
    pagepool_look_at_(pool);
    return 0;
}

PAGEPOOL_FAST_ size_t pagepool_alloc_bulk_(struct pagepool *pool, struct pagepool_buf **bufs, size_t n)
{
    if (PAGEPOOL_LIKELY_(pagepool_took_(pool, bufs, n)))
        return n;
    return pagepool_called_n_(pagepool_alloc_bulk(pool, bufs, n));
}

PAGEPOOL_FAST_ size_t pagepool_alloc_bulk_data_(struct pagepool *pool, struct pagepool_buf **bufs,
    void **data, size_t n)
{
    if (PAGEPOOL_LIKELY_(pagepool_took_data_(pool, bufs, data, n)))
        return n;
    return pagepool_called_n_(pagepool_alloc_bulk_data(pool, bufs, data, n));
}

/* What the owner needs of a view to end lives. */
struct pagepool_ends_ {
    uint64_t *lives, *outs;
    uint32_t base, pages;
};

/* Ends the life of a plain page that is out, stores the page's number, and returns 1. Else returns 0. In a
 * section. */
PAGEPOOL_FAST_ int pagepool_end_one_(struct pagepool_ends_ of, const struct pagepool_buf *buf,
    uint32_t *number)
{
    uint64_t token = pagepool_number_(buf);
    uint32_t page = pagepool_page_(of.base, token);
    if (!PAGEPOOL_LIKELY_(page < of.pages && pagepool_end_(of.lives, of.outs, page, token)))
        return 0;
    *number = page;
    return 1;
}

/* Calls pagepool_end_one_ for each buffer in order, up to the first that it refuses; returns how many it
 * ended. In a section. This is a fast path: it is not inlined, so that its loop has enough registers. */
PAGEPOOL_SLOW_ size_t pagepool_end_each_(const struct pagepool_view_ *view, struct pagepool_buf *const *bufs,
    uint32_t *numbers, size_t n)
{
    const struct pagepool_ends_ of = {view->lives, view->outs, view->base, view->pages};
    size_t done = 0;
    for (; done + 8 <= n; done += 8) {
        PAGEPOOL_UNROLL_
        for (size_t at = 0; at < 8; ++at)
            if (!pagepool_end_one_(of, bufs[done + at], numbers + done + at))
                return done + at;
    }
    while (done < n && pagepool_end_one_(of, bufs[done], numbers + done))
        ++done;
    return done;
}

/* Puts pages into the cache, in order, until one is not out in its token's life. Returns their number. Puts
 * none if the cache lacks room for all n. In a section. */
PAGEPOOL_FAST_ size_t pagepool_put_pages_(struct pagepool_view_ *view, struct pagepool_buf *const *bufs,
    size_t n)
{
    struct pagepool_cache_ *cache = view->cache;
    const size_t had = cache->count;
    size_t done;
    if (!PAGEPOOL_LIKELY_(had + n <= __atomic_load_n(&view->limit, __ATOMIC_RELAXED)))
        return 0;
    done = pagepool_end_each_(view, bufs, cache->pages + had, n);
    __atomic_store_n(&cache->count, had + done, __ATOMIC_RELAXED);
    cache->recycle_cached += done;
    return done;
}

PAGEPOOL_UNUSED_ static inline int pagepool_buf_put_bulk_(struct pagepool_buf *const *bufs, size_t n)
{
    struct pagepool_view_ *view = pagepool_here_;
    size_t done = 0;
    if (!PAGEPOOL_LIKELY_(n - 1 < 64 && bufs != NULL))
        return pagepool_buf_put_bulk(bufs, n);
    if (PAGEPOOL_LIKELY_(pagepool_page_(view->base, pagepool_number_(bufs[0])) < view->pages)) {
        pagepool_enter_(view);
        done = pagepool_put_pages_(view, bufs, n);
        pagepool_leave_(view);
        if (PAGEPOOL_LIKELY_(done == n))
            return 0;
    }
    pagepool_look_here_(pagepool_row_of_(pagepool_number_(bufs[done]))->view);
    return pagepool_buf_put_bulk(bufs + done, n - done);
}

#define pagepool_alloc_page(pool) pagepool_alloc_page_(pool)
#define pagepool_buf_put(buf) pagepool_buf_put_(buf)
#define pagepool_buf_data(buf) pagepool_buf_data_(buf)
/* An array may be a literal with commas. */
#define pagepool_alloc_bulk(...) pagepool_alloc_bulk_(__VA_ARGS__)
#define pagepool_alloc_bulk_data(...) pagepool_alloc_bulk_data_(__VA_ARGS__)
#define pagepool_buf_put_bulk(...) pagepool_buf_put_bulk_(__VA_ARGS__)

#if defined(__cplusplus)
#pragma GCC diagnostic pop
#endif

#endif

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PAGEPOOL_H */
