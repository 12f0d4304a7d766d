/*
 * pagepool: a user-space page pool for packet buffers. Generated; docs/c-api.md is the guide.
 *
 * Terms, in the order in which they build on each other:
 *   page      4096 << order bytes; each pool has its order
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
 *   Cost       what a call takes
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
 * No node in particular: for an arena the memory policy of the process decides, for a pool the node of the
 * thread that refills. It is the default in fields, and is for arguments, in which 0 is node 0.
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
 * Keep the buffer in the queue, and end the poll. For users that finish in the order of the queue.
 */
#define PAGEPOOL_ON_BUSY_KEEP 0

/**
 * Keep the buffer in the queue, and look at the buffers behind it. For users that keep single buffers long.
 */
#define PAGEPOOL_ON_BUSY_SKIP 1

/**
 * Remove the buffer from the queue, at most one per poll, and its page from the pool. The memory goes back
 * to the arena once the user is done.
 */
#define PAGEPOOL_ON_BUSY_RELEASE 2

/**
 * Nothing.
 */
#define PAGEPOOL_HOLDERS_OFF 0

/**
 * Since when each buffer is out, and its tag.
 */
#define PAGEPOOL_HOLDERS_AGES 1

/**
 * Also the thread, and where in the program it was allocated: file and line if the program has debug
 * information, else its function or the address. The first allocation of each place looks that up, which
 * allocates, and takes up to milliseconds.
 */
#define PAGEPOOL_HOLDERS_SITES 2

/**
 * Also the call stack of some allocations. Taking one reads the program's debug information: it allocates,
 * and takes up to milliseconds.
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
 * A pool of pages: pagepool_create creates it, pagepool_destroy ends it.
 */
struct pagepool;

/**
 * One reader's handle of a shared buffer: pagepool_buf_share and pagepool_shared_clone make it.
 */
struct pagepool_shared;

/**
 * The end of a pool: pagepool_destroy_watched makes it, pagepool_shutdown_wait waits for it.
 */
struct pagepool_shutdown;

/**
 * The parameters of an arena. Start from PAGEPOOL_ARENA_PARAMS_INIT, or from zeroes with `size` set, which
 * is the same: in each field 0 selects the default.
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
     * PAGEPOOL_NODE_ANY for none in particular. Without effect if `nodes` is not 0.
     */
    int node;
    /**
     * For tests: the number of simulated NUMA nodes, 1 to 255. 0 means the nodes of the machine.
     */
    uint32_t nodes;
    /**
     * 1: fail if no huge pages are available. 0: take smaller pages instead; pagepool_arena_describe says
     * so.
     */
    uint32_t huge_or_fail;
    /**
     * For tests with `nodes`: returns the simulated node of a page. NULL divides the arena into `nodes`
     * equal parts. The library calls it on any thread, when it commits memory; it must not call the library.
     * A page of a higher order requires all its base pages on one node.
     */
    uint32_t (*node_of_page)(uint32_t page_index, void *arg);
    /**
     * The second argument of `node_of_page`.
     */
    void *arg;
    /**
     * The name in descriptions, and that of the memfd; copied. NULL means "arena".
     */
    const char *name;
    /**
     * With PAGEPOOL_BACKING_CALLER: the memory, aligned to 4096 bytes. It must stay until the handle of the
     * arena is released and its last pool is freed.
     */
    void *memory;
    /**
     * 1: let the kernel provide the memory of a region when it is committed, not at the first access. On a
     * machine with several nodes it always does, unless `node` names one.
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
     * 1: a child of fork(2) inherits the memory. 0: it does not. Without effect on the caller's memory.
     */
    uint32_t inherit_on_fork;
};

/**
 * A buffer as a device address and a length, 16 bytes. Programs keep arrays of it beside a descriptor ring,
 * so it has no `size` as other results have, and never gets more fields.
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
 * A user of deferred buffers: somebody who reads them without owning them, and never tells when it is done.
 * Examples: the kernel that sends from a page (MSG_ZEROCOPY), a reference count kept elsewhere. The library
 * calls these functions in allocations and polls of the pool's owner; after the pool was destroyed, on the
 * thread that waits for its end. They may use the library, but must not unbind or destroy the pool, throw or
 * longjmp. They should be short: the owner waits for them.
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
     * Returns 0 once nobody reads the buffer that was deferred with `cookie`; the buffer then returns to its
     * pool. Returns another value while it is in use. Required.
     */
    int (*in_use)(void *arg, uint64_t cookie);
    /**
     * Called once at the start of each poll, to read what `in_use` depends on, such as the error queue of a
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
     * The size of the struct in the library that calls: it has the fields that lie within.
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
 * destroy a pool over that arena, release the arena, or ask for a device address in another domain.
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
 * The parameters of a pool. Start from PAGEPOOL_PARAMS_INIT, or from zeroes with `size` set, which is the
 * same: in each field 0 selects the default.
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
     * The size of a page: 4096 << order bytes, with an order of 0 to 10.
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
     * the sets of the CPU's caches. The shift uses only bytes that `max_len` leaves free.
     * PAGEPOOL_NO_COLOUR: no shift.
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
     * 1: take pages from the arena without naming a node, to measure what the node costs.
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
     * With PAGEPOOL_ON_BUSY_SKIP: the most buffers in use that one poll passes, 1 to 64; 0 means 16.
     * Otherwise 0.
     */
    uint32_t skip_ahead;
    /**
     * 1: no thread ever owns the pool. Any thread calls pagepool_alloc_addr_bulk and pagepool_put_addr_bulk:
     * each call takes a lock, for a compare-and-swap and a store. Calls of the owner's are refused with
     * -EPERM. Needs a domain, and neither `wakeup` nor `defer_capacity`. For threads that come and go, and
     * for a DPDK mempool. 0: one thread at a time owns it (pagepool_bind).
     */
    uint32_t no_owner;
    /**
     * What the pool records of each buffer that is out, for pagepool_shutdown_report, and for `pagepool
     * show` if the process publishes, also after it was killed: PAGEPOOL_HOLDERS_OFF, _AGES, _SITES or
     * _STACKS. Each allocation and each return is then a call that takes the slow way. If a function returns
     * what it allocates, a compiler may call the library by a jump: the recorded place is then that of the
     * function's caller. Compile with -fno-optimize-sibling-calls against that.
     */
    uint32_t holders;
    /**
     * With PAGEPOOL_HOLDERS_STACKS: the call stack of one in so many allocations is recorded. 0 means 1000.
     * Otherwise 0.
     */
    uint32_t one_stack_in;
    /**
     * 0.
     */
    uint32_t reserved;
};

/**
 * How many pages of a pool are where. The fields below `total` add up to it while no call about the pool is
 * in progress. Start from PAGEPOOL_BUFFER_LOCATIONS_INIT, or set `size`.
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
     * Pages whose fragments have all returned, but whose owner has not yet collected those that returned on
     * other threads.
     */
    uint64_t uncollected;
};

/**
 * Something that the program shows beside its pools: a socket, a port, or anything else. Start from
 * PAGEPOOL_ENTRY_PARAMS_INIT, or from zeroes with `size` set. All texts are copied.
 */
struct pagepool_entry_params {
    /**
     * sizeof(struct pagepool_entry_params): fields can be added at the end.
     */
    size_t size;
    /**
     * Its kind, up to 16 bytes; any word except "pool". Required. Buffers that a "socket" or "nic" counts as
     * `in_rx` wait for packets, and do not count as held by the program.
     */
    const char *kind;
    /**
     * A number of the program's own, which tells entries of one kind apart.
     */
    uint64_t id;
    /**
     * The pool that it belongs to. NULL: none.
     */
    struct pagepool *pool;
    /**
     * Its name, of which 64 bytes are shown. NULL means "".
     */
    const char *name;
    /**
     * Its fixed properties: lines of `key=value`, of which 688 bytes are shown. "ifindex=N" names the
     * interface. NULL means none.
     */
    const char *params;
    /**
     * The names of its counters, which begin at 0: 256 names at most, and 4096 bytes with a terminating byte
     * for each. Those of a socket are `in_rx`, buffers that wait for packets; `in_tx`, buffers that are
     * being sent; `rx_packets`, `tx_packets`.
     */
    const char *const *counters;
    /**
     * How many there are.
     */
    size_t n_counters;
};

/**
 * For the inline functions of this header, not for programs.
 */
struct pagepool_inline_ {
    const void *views;
    const void *directory;
    uint64_t view_mask;
    /**
     * Has the library know where the calling thread keeps the pool that it used last: it takes a pool back
     * there when the thread stops being its owner. 0 if it knows 16 such places of the thread, the limit. In
     * this struct and no function of its own, so that it is of the library that has the tables.
     */
    int (*note)(void *here);
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
     * Pages that came out of the cache, and fragment pages that are used again in place because all their
     * fragments had returned. If it rises: normal.
     */
    uint64_t alloc_fast;
    /**
     * Pages that the owner returned into the cache, and fragment pages that are used again in place. If it
     * rises: normal.
     */
    uint64_t recycle_cached;
    /**
     * Allocations for which the provider (the arena) gave pages, up to `refill` at once. If it rises: normal
     * during warm-up; later, pages are lost, longer out, or waived. `inflight` says where they are.
     */
    uint64_t alloc_slow;
    /**
     * Pages of an order above 0 that the provider (the arena) gave. If it rises: as `alloc_slow`.
     */
    uint64_t alloc_slow_high_order;
    /**
     * Refills that found no page: cache, lanes and ring were empty, and no deferred page was done. If it
     * rises: with `alloc_slow`, more pages are out than before; find out who holds them before you enlarge
     * the arena.
     */
    uint64_t alloc_empty;
    /**
     * Refills that found at least one page in lanes, ring or deferred queue; one per refill. If it rises:
     * normal, if other threads return buffers.
     */
    uint64_t alloc_refill;
    /**
     * Off-node pages (of another NUMA node than the pool's) that left the pool. At most one per look at lanes
     * and ring. An allocation looks once; one that would fail looks again in a pool with `wakeup`. If it
     * rises: the owner moved to another node; pin it, or set `nid`.
     */
    uint64_t alloc_waive;
    /**
     * Allocations that returned nothing. Linux has no such counter. If it rises: the arena is exhausted;
     * raise `max_bytes`, or find out who holds the buffers (`holders`).
     */
    uint64_t alloc_failed;
    /**
     * Returned pages that found the cache full. Each is counted again, under `recycle_ring` or
     * `recycle_ring_full`. If it rises: the owner returns more than it allocates, which is normal if it
     * sends; else raise `cache_size`.
     */
    uint64_t recycle_cache_full;
    /**
     * Pages returned through a lane or the ring. If it rises: normal, if other threads return buffers.
     */
    uint64_t recycle_ring;
    /**
     * Pages that found lane and ring full and left the pool. One per page; for bulk returns Linux counts
     * calls. If it rises: the owner refills too rarely; raise `lane_size`, `ring_size` or `max_lanes`.
     */
    uint64_t recycle_ring_full;
    /**
     * Pages that left the pool when they were returned: somebody has a reference to the page, or the provider
     * marked it as emergency reserve (Linux: `pfmemalloc`). If it rises: a page reference outlives its
     * buffer; share the buffer instead if the pool should recycle the page.
     */
    uint64_t recycle_released_refcnt;
    /**
     * Pages that joined the pool. If it rises: see `alloc_slow`.
     */
    uint64_t hold;
    /**
     * Pages that left the pool. If it rises: see `alloc_waive`, `recycle_ring_full` and
     * `recycle_released_refcnt`; normal when a pool shrinks or ends.
     */
    uint64_t release;
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
     * Polls that ended at a buffer in use and left it in the queue. If it rises: if fast, readers finish out
     * of order; set `on_busy` to skip.
     */
    uint64_t kept;
    /**
     * Buffers in use that a poll passed over, to ask about those behind. If it rises: normal if `on_busy` is
     * skip.
     */
    uint64_t skipped;
    /**
     * Buffers that left the queue while in use. Their page leaves the pool; its memory stays until the reader
     * is done. If it rises: a reader is slow; normal if `on_busy` is release.
     */
    uint64_t released;
    /**
     * Released buffers whose reader is done; their memory went back to the provider (the arena). If it rises:
     * normal after `released`.
     */
    uint64_t freed_late;
    /**
     * Buffers refused because the queue was full. If it rises: raise `defer_capacity`, or wait for the
     * reader.
     */
    uint64_t full;
    /**
     * Polls that found a buffer in the queue. If it rises: normal.
     */
    uint64_t polls;
    /**
     * Buffers still in use when the handle of the pool's shutdown went. Their memory is never used again. If
     * it rises: keep the shutdown's handle until the pool is freed.
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
    {sizeof(struct pagepool_arena_params), 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0}

/**
 * For pagepool_read_stats: `size` is set, all counters are 0. `struct pagepool_stats x =
 * PAGEPOOL_STATS_INIT;`, also for a static variable.
 */
#define PAGEPOOL_STATS_INIT \
    {sizeof(struct pagepool_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

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
 * Ownership: `*arena` is the caller's, to be released with pagepool_arena_put. `memory`, `node_of_page` and
 *     `arg` must stay valid until the arena and its pools are freed.
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
 * Writes one line about the arena into `text`: its kind of memory, and which requested features are missing.
 * It cuts the line to `len` bytes and ends it with a zero byte. The result is the full length in bytes,
 * without the zero byte. `text` may be NULL.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: formats text.
 */
int64_t pagepool_arena_describe(struct pagepool_arena *arena, char *text, size_t len);

/**
 * Returns how many base pages of 4096 bytes the pools over the arena have.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int64_t pagepool_arena_pages_out(struct pagepool_arena *arena);

/**
 * Returns free memory to the system: each region of which no pool has a page and which no domain maps. The
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
 * Sets the node on which all threads seem to run, for an arena with simulated nodes (`nodes`). It is node 0
 * at first.
 *
 * Thread: any.
 * Errors: -EINVAL for a node above 255. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_arena_set_current_node(struct pagepool_arena *arena, int nid);

/**
 * Returns the address of the arena's first byte; page i begins at 4096 * i bytes from there. NULL for device
 * memory (-EOPNOTSUPP) or a bad handle (-EINVAL, -ESTALE).
 *
 * Thread: any.
 * Cost: a lock.
 */
void *pagepool_arena_base(struct pagepool_arena *arena);

/**
 * Unmaps the arena from a domain whose device is gone, although pools still use it. The CPU can still use
 * the buffers that are out. They have no address in the domain any more, and are not unmapped again when
 * they are returned.
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
 * Ownership: `*batch` is the caller's, to be ended with pagepool_batch_destroy.
 * Errors: -EINVAL for NULL. -EBUSY if there are 4096 batches. -ENOMEM.
 * Cost: a lock; allocates 384 bytes, which later batches use again.
 */
int pagepool_batch_create(struct pagepool_batch **batch);

/**
 * Ends a batch. The pages that it has return to their pool, as by pagepool_batch_put.
 *
 * Thread: any, one at a time per batch.
 * Ownership: the handle ends.
 * Errors: -EBUSY during another call about this batch. -EINVAL, -ESTALE for a bad handle.
 * Cost: pagepool_batch_put, and a lock.
 */
int pagepool_batch_destroy(struct pagepool_batch *batch);

/**
 * Adds up to `n` whole pages of the pool to the batch, as far as it has room. Returns how many it added.
 * Linux: page_pool_dev_alloc_pages in a loop.
 *
 * Thread: owner of the pool; one at a time per batch.
 * Ownership: the pages are the batch's. The pool counts them as out.
 * Errors: fewer than `n`, and pagepool_last_error says why: no page is left (ENOMEM, counted in
 *     `alloc_failed`), the batch is full (ENOBUFS) or has pages of another pool (EINVAL), another call uses
 *     it (EBUSY), another thread owns the pool (EPERM), or a bad handle (EINVAL, ESTALE).
 * Cost: one copy from the cache, and no atomic operation if no other thread ever used the batch; otherwise
 *     one exchange.
 */
size_t pagepool_batch_alloc(struct pagepool_batch *batch, struct pagepool *pool, size_t n);

/**
 * Returns all pages of the batch to their pool; the batch stays, empty. Linux: page_pool_put_netmem_bulk.
 *
 * Thread: any, one at a time per batch.
 * Ownership: the pages are the pool's again. The handle stays the caller's.
 * Errors: -EBUSY during another call about this batch. -EINVAL, -ESTALE for a bad handle.
 * Cost: on the owner's thread one copy into the cache; otherwise one bulk of messages. An exchange if
 *     several threads used the batch.
 */
int pagepool_batch_put(struct pagepool_batch *batch);

/**
 * Returns the number of pages in the batch. 0 also for a bad handle, or during another call about this
 * batch.
 *
 * Thread: any, one at a time per batch.
 * Cost: a lookup.
 */
size_t pagepool_batch_len(struct pagepool_batch *batch);

/**
 * Stores the addresses of the packets of the first `n` pages in `packets`, in order: after headroom and
 * colour, as pagepool_buf_packet. Returns how many it stored: `n`, or the length of the batch if that is
 * less.
 *
 * Thread: any, one at a time per batch.
 * Ownership: the bytes are the caller's until the pages leave the batch. Page i keeps its place meanwhile.
 * Errors: 0 for NULL or a bad handle (EINVAL, ESTALE), memory that the CPU cannot read (EOPNOTSUPP), or
 *     during another call about this batch (EBUSY).
 * Cost: per page an addition and a store.
 */
size_t pagepool_batch_packets(struct pagepool_batch *batch, void **packets, size_t n);

/**
 * Takes the last page out of the batch, as a buffer with a handle of its own.
 *
 * Thread: any, one at a time per batch.
 * Ownership: the buffer is the caller's until it is returned.
 * Errors: NULL if the batch is empty (-ENOENT), during another call about it (-EBUSY), or for a bad handle
 *     (-EINVAL, -ESTALE).
 * Cost: about as pagepool_alloc_page.
 */
struct pagepool_buf *pagepool_batch_pop(struct pagepool_batch *batch);

/**
 * Adds a buffer to the batch, behind the others. It must be a whole page, of the pool of the others, that
 * never was shared and has no reference.
 *
 * Thread: the one that holds the buffer; one at a time per batch.
 * Ownership: the handle of the buffer ends, unless the call fails.
 * Errors: -EINVAL for another kind of buffer, or one of another pool. -ENOBUFS if the batch is full. -EBUSY
 *     during another call about this batch. -EINVAL, -ESTALE for a bad handle.
 * Cost: about as pagepool_buf_put.
 */
int pagepool_batch_push(struct pagepool_batch *batch, struct pagepool_buf *buf);

/**
 * Returns a buffer to its pool: on the owner's thread into the cache, otherwise through the thread's lane or
 * the ring. Linux: page_pool_put_full_page.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -ESTALE for a buffer that was returned before. -EINVAL for a value that never was a buffer.
 *     Nothing changes then.
 * Cost: on the owner's thread about fifteen instructions. No atomic operation if one thread returns all
 *     buffers of the pool, its owner or another one; otherwise one compare-and-swap.
 */
int pagepool_buf_put(struct pagepool_buf *buf);

/**
 * Returns a buffer to its pool through the ring, on every thread. Linux: page_pool_put_full_page outside
 * softirq.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: as pagepool_buf_put.
 * Cost: a lock.
 */
int pagepool_buf_put_ring(struct pagepool_buf *buf);

/**
 * Returns a buffer to its pool, and tells that only the first `dirty` bytes of its packet were written: with
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
 * Cost: a lookup; for a whole page, on the owner's thread, about sixteen instructions without a call.
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
 * Returns the number of the buffer's page in its arena, counted in base pages of 4096 bytes. A page of a
 * higher order has the number of its first base page. UINT32_MAX for a bad handle.
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
 * Returns the size of the largest packet that fits, in bytes: `max_len` in a whole page, the size of a
 * fragment. 0 for a bad handle.
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
 * Errors: the error of the first handle that failed; all others are returned nevertheless. -EINVAL for a
 *     NULL array.
 * Cost: on the owner's thread pool and owner are checked once for up to 64 whole pages of a pool, and each
 *     takes about ten instructions. On other threads one bulk of messages for up to 64. No atomic operation
 *     if one thread returns all buffers of the pool; otherwise one compare-and-swap per buffer.
 */
int pagepool_buf_put_bulk(struct pagepool_buf *const *bufs, size_t n);

/**
 * Returns `n` buffers to their pools through the rings, on every thread.
 *
 * Thread: any.
 * Ownership: every handle ends. The array stays the caller's and is unchanged.
 * Errors: as pagepool_buf_put_bulk.
 * Cost: a lock for each 64 buffers of a pool.
 */
int pagepool_buf_put_ring_bulk(struct pagepool_buf *const *bufs, size_t n);

/**
 * Takes a reference to the page of a buffer: its memory is not used again until the reference is released,
 * even if the buffer is returned before. For DMA that nobody can stop. A page that is returned meanwhile
 * leaves its pool (counted in `recycle_released_refcnt`). Linux: get_page.
 *
 * Thread: the one that holds the buffer.
 * Ownership: `*page_ref` is the caller's, to be released with pagepool_page_ref_put. The buffer is
 *     unchanged.
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
 * Returns the number of the page in its arena, as pagepool_buf_page_index does. UINT32_MAX for a bad handle.
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
 * allocated. It does what pagepool_alloc_bulk and pagepool_buf_into_raw do, without the handles between.
 * Linux: page_pool_alloc_pages for a fill ring.
 *
 * Thread: owner; any in a pool made with `no_owner`.
 * Ownership: these addresses are the caller's, for pagepool_from_raw or pagepool_put_addr. The other
 *     elements of `addrs` are unchanged.
 * Errors: fewer than `n`: no page (-ENOMEM), a pool without domains or whose device was removed
 *     (-EOPNOTSUPP), another thread (-EPERM), a bad handle. pagepool_last_error names it.
 * Cost: a lookup; in bulk per page from the cache about eight instructions, and no atomic operation.
 */
size_t pagepool_alloc_addr_bulk(struct pagepool *pool, uint64_t *addrs, size_t n);

/**
 * Turns a device address that came back from a descriptor ring into a buffer. The address may lie anywhere
 * in the buffer. A fragment comes back with its size rounded up to whole cache lines.
 *
 * Thread: any.
 * Ownership: the buffer is the caller's.
 * Errors: NULL for an address that is not the pool's (-EINVAL), for an address that is not out because it
 *     came back before (-ESTALE), or for a bad handle (-EINVAL, -ESTALE). Nothing changes then. NULL also if
 *     there is no memory for the table (-ENOMEM), or if all pools together have 268,435,456 pages and
 *     fragments, the limit (-ENOSPC); on the owner's thread the buffer has then returned to its pool.
 * Cost: a lookup and one atomic operation; on other threads than the owner's also a lock.
 */
struct pagepool_buf *pagepool_from_raw(struct pagepool *pool, uint64_t addr);

/**
 * Returns a buffer to its pool by its device address. Linux: page_pool_free_va, which takes the address for
 * the CPU.
 *
 * Thread: any.
 * Ownership: the address ends.
 * Errors: -EINVAL for an address that is not the pool's. -ESTALE for an address that is not out, because it
 *     came back before. Nothing changes then. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lookup; for a whole page on the owner's thread no atomic operation until another thread first
 *     returns an address of the pool, one after that. On other threads also a lock.
 */
int pagepool_put_addr(struct pagepool *pool, uint64_t addr);

/**
 * Returns `n` buffers to their pool by their device addresses.
 *
 * Thread: any.
 * Ownership: every address ends.
 * Errors: the error of the first address that failed; all others are returned nevertheless. -EINVAL for a
 *     NULL array.
 * Cost: a lookup, on other threads than the owner's also a lock; per address as pagepool_put_addr without
 *     these, about ten instructions for a whole page.
 */
int pagepool_put_addr_bulk(struct pagepool *pool, const uint64_t *addrs, size_t n);

/**
 * Makes a buffer shared: it can have many readers, each with a handle, and returns to its pool with the last
 * of them. Linux: page_pool_ref_page.
 *
 * Thread: the one that holds the buffer.
 * Ownership: the handle of the buffer ends. `*shared` is the caller's, to be released with
 *     pagepool_shared_put.
 * Errors: -ENOMEM if there is no memory for the table. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock and one atomic operation.
 */
int pagepool_buf_share(struct pagepool_buf *buf, struct pagepool_shared **shared);

/**
 * Makes a handle for one more reader of a shared buffer. Linux: page_pool_ref_page.
 *
 * Thread: any.
 * Ownership: `*clone` is the caller's, to be released with pagepool_shared_put.
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
 * Makes a shared buffer the caller's own again, to be written or split, if this is the handle of its last
 * reader. Fragments of one page are counted together: one is also refused while another fragment of its page
 * is shared.
 *
 * Thread: any.
 * Ownership: the shared handle ends, and `*buf` is the caller's, unless the call fails.
 * Errors: -EBUSY while there are other readers: try again, or release this handle. -ENOMEM if there is no
 *     memory for the table, -ENOSPC if all pools together have 268,435,456 pages and fragments, the limit.
 *     -EINVAL, -ESTALE for a bad handle. The handle is unchanged then.
 * Cost: a lock; for a fragment an atomic operation, and on other threads than the owner's one more lock.
 */
int pagepool_shared_try_unique(struct pagepool_shared *shared, struct pagepool_buf **buf);

/**
 * Returns the address of the first byte of the page or fragment, for reading. NULL for memory that the CPU
 * cannot read (-EOPNOTSUPP), or for a bad handle (-EINVAL, -ESTALE).
 *
 * Thread: any that holds a handle.
 * Ownership: the bytes stay until the handle is released.
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
 * Ownership: `*page_ref` is the caller's, to be released with pagepool_page_ref_put. The shared handle is
 *     unchanged.
 * Errors: -ENOMEM if there is no memory for the table. -EINVAL, -ESTALE for a bad handle.
 * Cost: two locks and an atomic operation.
 */
int pagepool_shared_page_ref(struct pagepool_shared *shared, struct pagepool_page_ref **page_ref);

/**
 * Splits a buffer in two: `*front` has the first `at` bytes, `*rest` those behind. Each returns by itself,
 * on any thread; the page returns with its last part. Nothing is copied. Several packets in one receive
 * buffer are cut off one after the other: pagepool_buf_split(buf, len, &packet, &buf).
 *
 * Both parts are fragments, also of a whole page: `at` counts from the page's first byte, headroom included.
 * So ask for the packet's address before. Parts that share a cache line have no device address for
 * pagepool_buf_into_raw.
 *
 * Thread: the one that holds the buffer.
 * Ownership: the handle of the buffer ends, unless the call fails; a handle names one buffer all its life.
 *     `*front` and `*rest` are the caller's, to be returned with pagepool_buf_put.
 * Errors: -EINVAL unless `at` is 1 to pagepool_buf_len() - 1, in pages of 4 MiB (order 10) also if it is
 *     odd; if `front` or `rest` is NULL, or both are the same place. -ENOMEM if there is no memory for the
 *     table. -ENOSPC if all pools together have 268,435,456 pages and fragments, the limit. -EINVAL, -ESTALE
 *     for a bad handle. Nothing changes then.
 * Cost: a lookup; on other threads than the owner's an atomic operation and two locks.
 */
int pagepool_buf_split(struct pagepool_buf *buf,
                       size_t at,
                       struct pagepool_buf **front,
                       struct pagepool_buf **rest);

/**
 * Registers a user of deferred buffers with a pool that has a deferred queue (`defer_capacity`).
 *
 * Thread: owner.
 * Ownership: `*user` is the caller's, to be released with pagepool_deferred_user_put.
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
 * buffer returns to the pool once `in_use` returns 0 for the cookie. Refills ask `in_use`, and so does
 * pagepool_poll_deferred. After pagepool_destroy_watched, pagepool_shutdown_wait and
 * pagepool_shutdown_report ask; after pagepool_destroy, every call that creates or destroys a pool asks.
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
 * Polls the deferred queue once, as the pool's `on_busy` says. Returns the number of buffers that returned
 * to the pool.
 *
 * Thread: owner.
 * Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: a callback per user, and one per buffer that is looked at.
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
 * Ownership: `*domain` is the caller's, to be released with pagepool_domain_put. Pools that use the domain
 *     keep it.
 * Errors: -EINVAL names the missing callback.
 * Cost: allocates.
 */
int pagepool_domain_create(const struct pagepool_domain_ops *ops, struct pagepool_domain **domain);

/**
 * Creates a domain in which the device address of a byte is its address for the CPU. `name` is used in error
 * texts; NULL means "domain".
 *
 * Thread: any.
 * Ownership: `*domain` is the caller's, to be released with pagepool_domain_put. Pools that use the domain
 *     keep it.
 * Errors: -EINVAL if `domain` is NULL.
 * Cost: allocates.
 */
int pagepool_domain_identity(const char *name, struct pagepool_domain **domain);

/**
 * Creates a domain in which the device address of a byte is its offset in the arena, as in an AF_XDP UMEM.
 * An arena that is mapped here requires `commit_all`. `name` is used in error texts; NULL means "domain".
 *
 * Thread: any.
 * Ownership: `*domain` is the caller's, to be released with pagepool_domain_put. Pools that use the domain
 *     keep it.
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
 * Ownership: `*pool` is the caller's, to be ended with pagepool_destroy or pagepool_destroy_watched. The
 *     pool keeps the arena and the domains: their handles may be released at once.
 * Errors: -EINVAL names the parameter, its value and its range. -EIO names the domain that refused to map.
 *     -ENOMEM and -EMFILE name what the system refused. -EBUSY for the 4097th pool. -ENOSPC if all pools
 *     together have 268,435,456 pages and fragments, the limit. `*pool` is then unchanged.
 * Cost: allocates; a few microseconds.
 */
int pagepool_create(const struct pagepool_params *params, struct pagepool **pool);

/**
 * Ends a pool without waiting. Pages in its cache, lanes and ring go back to the arena now. Buffers that are
 * out stay valid; the return of the last one frees the pool, on any thread. A buffer that is out as a device
 * address (pagepool_buf_into_raw, pagepool_alloc_addr_bulk) can no longer be returned: its page stays out,
 * so a device that still writes there damages nothing, but pool and arena then stay until the process ends.
 * Use pagepool_destroy_watched to wait for buffers, or to return device addresses. Linux: page_pool_destroy.
 *
 * Thread: owner; any while no thread owns the pool, and of a pool made with `no_owner`.
 * Ownership: the handle ends.
 * Errors: -EPERM on another thread. -EBUSY in a callback of the pool's own call. -EINVAL, -ESTALE for a bad
 *     handle.
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
 * Errors: -EPERM on another thread. -EBUSY in a callback of the pool's own call. -EINVAL, -ESTALE for a bad
 *     handle.
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
 * Cost: from the cache about ten instructions and no atomic operation; otherwise a refill of up to 64 pages.
 */
struct pagepool_buf *pagepool_alloc_page(struct pagepool *pool);

/**
 * Allocates a fragment of `size` bytes: a part of a page that other fragments share. It begins at a multiple
 * of `frag_align` bytes. Linux: page_pool_dev_alloc_frag.
 *
 * Thread: owner.
 * Ownership: the fragment is the caller's until it is returned; its page returns with the last fragment.
 * Errors: NULL for a size of 0 or above the page size (-EINVAL), if no page is left or no memory for the
 *     table (-ENOMEM), if all pools together have 268,435,456 pages and fragments, the limit (-ENOSPC), on
 *     another thread (-EPERM), or for a bad handle (-EINVAL, -ESTALE).
 * Cost: about forty instructions and no atomic operation; if fragments end on other threads, a lock for each
 *     64 of them.
 */
struct pagepool_buf *pagepool_alloc_frag(struct pagepool *pool, size_t size);

/**
 * Allocates a fragment of at least `*size` bytes, or a whole page if two such fragments do not fit into one
 * page. Stores the size that the buffer got in `*size`: a fragment behind which no second one fits gets the
 * rest of its page. Linux: page_pool_dev_alloc.
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
 * Errors: fewer than `n`, for the reasons of pagepool_alloc_page; pagepool_last_error names it.
 * Cost: pool and owner are checked once for up to 64 pages; per page from the cache about eight
 *     instructions and no atomic operation. A refill as for pagepool_alloc_page.
 */
size_t pagepool_alloc_bulk(struct pagepool *pool, struct pagepool_buf **bufs, size_t n);

/**
 * Allocates up to `n` whole pages into `bufs`, and stores the address of the first byte of each in `data`.
 * Returns how many it allocated. Linux: page_pool_dev_alloc_pages and page_address in a loop.
 *
 * Thread: owner.
 * Ownership: as for pagepool_alloc_bulk. The bytes at `data[i]` are the caller's until `bufs[i]` is
 * returned. The arrays do not overlap.
 * Errors: as for pagepool_alloc_bulk; also 0 for memory that the CPU cannot read (-EOPNOTSUPP).
 * Cost: pagepool_alloc_bulk, and about three instructions per page.
 */
size_t pagepool_alloc_bulk_data(struct pagepool *pool, struct pagepool_buf **bufs, void **data, size_t n);

/**
 * Writes one line for each pool that this process created through this library: name, id, state, where its
 * pages are, counters. A destroyed pool is listed until its last buffer is returned. The call cuts the text
 * to `len` bytes and ends it with a zero byte. The result is the full length in bytes, without the zero
 * byte. `text` may be NULL. Linux: the netlink dump of page pools.
 *
 * Thread: any.
 * Errors: none.
 * Cost: locks and formats text, pool by pool; nothing on the owners' threads.
 */
int64_t pagepool_dump(char *text, size_t len);

/**
 * Sets the NUMA node that the pool prefers, and gives the pages of the cache back to the arena. -1 means
 * the node of the thread that refills, read at each refill. Linux: page_pool_update_nid.
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
 * Creates a pool with `bytes` bytes of memory of its own, and makes the calling thread its owner. Device
 * addresses are offsets in that memory, as in an AF_XDP UMEM; pagepool_base has its address. All else is as
 * in PAGEPOOL_PARAMS_INIT. For several pools over one memory, other domains or other parameters use
 * pagepool_arena_create and pagepool_create.
 *
 * `bytes` is a multiple of 4096, or of the huge page size for the hugetlb kinds. `kind` is 0 for the
 * default, or PAGEPOOL_BACKING_ANONYMOUS_4K, _TRANSPARENT_HUGE, _HUGE_2M or _HUGE_1G. If no huge pages are
 * available, smaller pages are taken; `| PAGEPOOL_HUGE_OR_FAIL` fails instead.
 *
 * Thread: any.
 * Ownership: `*pool` is the caller's, to be ended with pagepool_destroy or pagepool_destroy_watched. The
 *     memory is the pool's: it is returned to the system when the pool is freed.
 * Errors: -EINVAL names the argument, its value and its range. -EPERM if the calling thread is ending.
 *     Otherwise as pagepool_arena_create and pagepool_create. `*pool` is then unchanged.
 * Cost: a few system calls; the time to clear the memory for the hugetlb kinds.
 */
int pagepool_open(uint64_t bytes, uint32_t kind, struct pagepool **pool);

/**
 * Returns the address of the first byte of the pool's memory, and stores its length in `*bytes` unless that
 * is NULL: for a UMEM, or to read the packet at offset `addr`. For a pool over an arena it is the arena's.
 * NULL for device memory (-EOPNOTSUPP) or a bad handle (-EINVAL, -ESTALE); `*bytes` is then unchanged.
 *
 * Thread: any.
 * Cost: a lock.
 */
void *pagepool_base(struct pagepool *pool, uint64_t *bytes);

/**
 * Gives idle pages back to the arena until at most `keep` are left in cache, lanes and ring, and returns the
 * number of pages that it gave back. It polls the deferred queue first. pagepool_arena_trim then returns the
 * memory to the system.
 *
 * Thread: owner.
 * Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: proportional to the pages that are given back, about 15 ns each.
 */
int64_t pagepool_shrink(struct pagepool *pool, size_t keep);

/**
 * Asks the owner to shrink the pool to `keep` idle pages, and returns at once. The owner does it when it
 * next refills its cache, or calls pagepool_poll_deferred or pagepool_acknowledge_wake. In a pool with
 * `wakeup` the event descriptor becomes readable. Of several requests the lowest counts.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock, and a system call in a pool with `wakeup`.
 */
int pagepool_ask_to_shrink(struct pagepool *pool, size_t keep);

/**
 * Ends a pool as pagepool_destroy does, and stores a handle: to wait for the last buffer, to report which
 * pages are out, and to return device addresses. Linux: page_pool_destroy.
 *
 * Thread: owner; any while no thread owns the pool, and of a pool made with `no_owner`.
 * Ownership: the pool's handle ends. `*shutdown` is the caller's, to be released with pagepool_shutdown_put;
 *     it keeps the pool's domains.
 * Errors: as pagepool_destroy, and -ENOMEM if there is no memory for the handle and for what the end of a
 *     pool allocates. The pool is then unchanged, and the caller still has it.
 * Cost: as pagepool_destroy.
 */
int pagepool_destroy_watched(struct pagepool *pool, struct pagepool_shutdown **shutdown);

/**
 * Waits until the last buffer is returned and the pool is freed, at most `timeout_ns` nanoseconds. The
 * thread sleeps; it does not spin.
 *
 * Thread: any.
 * Errors: -ETIMEDOUT if buffers are still out; pagepool_last_error has the report. -EPERM in a child of
 *     fork, if the pool ended in its parent. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock; a system call to sleep.
 */
int pagepool_shutdown_wait(struct pagepool_shutdown *shutdown, uint64_t timeout_ns);

/**
 * Returns the number of pages that are out, and writes a report into `text`: "stalled pool shutdown: N
 * buffers held for S s", and the pages with their tags. It cuts the text to `len` bytes and ends it with a
 * zero byte. `text` may be NULL.
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
 * Releases the handle of a shutdown. The pool is freed with its last buffer, with or without the handle.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -EPERM as for pagepool_shutdown_wait. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_shutdown_put(struct pagepool_shutdown *shutdown);

/**
 * Writes the pool's counters to `*stats`, as many as fit into `stats->size` bytes, which the caller sets. It
 * sets them, and does not add. They are exact while no call about the pool is in progress. Linux:
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
 * Returns how many bytes were lost when pages were cut into fragments: ends of pages, and alignment. The
 * number only grows.
 *
 * Thread: any.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int64_t pagepool_frag_waste(struct pagepool *pool);

/**
 * Writes to `*places` how many pages of the pool are where. The caller sets `places->size`.
 *
 * Thread: any.
 * Errors: -EINVAL for NULL, or a `size` that is 0 or too small; `*places` is then unchanged. -EINVAL,
 *     -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_read_buffer_locations(struct pagepool *pool, struct pagepool_buffer_locations *places);

/**
 * Registers a name for the holder of buffers, in a pool with `tagging` or `holders`. Returns its tag, 0 or
 * more. The same name gives the same tag. In another pool, after 65,535 names of the process, which stay as
 * long as it, and of no name, it is a tag that changes nothing.
 *
 * Thread: owner.
 * Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_tag(struct pagepool *pool, const char *name);

/**
 * Gives this tag to all buffers that are allocated from now on; -1: no tag. It has no effect in a pool
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
 * holds it from now on. What the buffer becomes keeps the tag, also as an address. It has no effect in a
 * pool without `tagging` and `holders`.
 *
 * Thread: the one that holds the buffer.
 * Errors: -EINVAL for a tag that is not of this pool. -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_buf_set_tag(struct pagepool *pool, struct pagepool_buf *buf, int tag);

/**
 * Records who holds a shared buffer now, as pagepool_buf_set_tag; of several readers the last call counts.
 *
 * Thread: any.
 * Errors: -EINVAL for a tag that is not of this pool. -EINVAL, -ESTALE for a bad handle.
 * Cost: two locks.
 */
int pagepool_shared_set_tag(struct pagepool *pool, struct pagepool_shared *shared, int tag);

/**
 * Returns the event descriptor of a pool with `wakeup`, for poll(2) or epoll(7) beside the device's. After
 * an allocation failed, or fewer than `low_water` pages were available, it becomes readable with the next
 * page: one that another thread returns, or one that comes back to the arena. It stays readable until
 * pagepool_acknowledge_wake. If you poll it edge-triggered (EPOLLET), acknowledge each signal.
 *
 * Thread: owner.
 * Ownership: the descriptor is the pool's, which closes it when it is destroyed.
 * Errors: -EOPNOTSUPP in a pool without a descriptor. -EPERM on another thread. -EINVAL, -ESTALE for a bad
 *     handle.
 * Cost: a load.
 */
int pagepool_wake_fd(struct pagepool *pool);

/**
 * Clears the event descriptor after it woke the owner, so that the owner can sleep on it again. Call it
 * before allocating: the next allocation that fails arms the descriptor. While a signal is pending, none
 * does.
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
 * Shows the pools of this process to others of the same user: counters, places of pages, parameters. They
 * are in a file in the folder `$PAGEPOOL_RUN`, else /run/pagepool for root, else
 * `$XDG_RUNTIME_DIR/pagepool`. A buffer costs at most one instruction more. If the process is killed the
 * file stays, and says what it had. Call it before the first pool; an arena that is made earlier is not
 * shown. A process publishes once. A child of fork(2) publishes nothing. The folder should be on tmpfs: on
 * another file system the first store to a page after it was written to the disk takes a page fault, and
 * where fallocate(2) reserves nothing a full one ends the process by SIGBUS.
 *
 * Thread: any.
 * Ownership: `name` is copied: 1 to 64 of A-Z a-z 0-9 - _ . and the first no dot.
 * Errors: -EINVAL for a bad name, for a folder that others may write to, or if there is no folder. -EBUSY
 *     on a second call, and while a pool exists. Other errors of the system, such as -ENOSPC.
 * Cost: some system calls, on files.
 */
int pagepool_publish(const char *name);

/**
 * Notes in the published file that the process runs now; where nothing is published, nothing. Of a process
 * that was killed, readers know the time of the last one. Pools that come and go are signs, too.
 *
 * Thread: any.
 * Cost: a look at the clock.
 */
void pagepool_sign_of_life(void);

/**
 * Takes back what pagepool_publish did: the file is removed, and pools made from now on are not shown.
 * Pools stay as they are. exit(3), and so a return from main, does it too. _exit(2), abort(3) and a signal
 * do not: the file then says what the process held.
 *
 * Thread: any.
 * Errors: -ENOENT if nothing is published, or another thread is taking it back; and in a child of fork(2),
 *     because the file is its parent's.
 * Cost: three system calls.
 */
int pagepool_unpublish(void);

/**
 * Shows something beside the pools, such as a socket and how many buffers wait there. `pagepool show` and
 * `doctor` subtract those from what the program holds. It is shown until pagepool_entry_put, or until the
 * process ends. Returns the number of the entry, above 0.
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
 * Removes an entry from what is shown.
 *
 * Thread: any.
 * Ownership: the number ends.
 * Errors: as for pagepool_entry_set.
 * Cost: a short lock.
 */
int pagepool_entry_put(int entry);

/**
 * Returns the version of the library, such as "0.1.0".
 *
 * Thread: any.
 * Ownership: the text is the library's. It stays valid until the process ends.
 * Cost: an address.
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
 * Returns the errno of the last error on this thread, as a positive number: of a function that returned
 * NULL, 0 or a largest value, too. 0 if there was none since the thread began or pagepool_clear_error. A
 * call that succeeds does not change it.
 *
 * Thread: any; each has its own.
 * Errors: none.
 * Cost: a load.
 */
int pagepool_last_errno(void);

/**
 * Forgets the last error on this thread. Call it before a function whose result may be 0 without an error,
 * such as pagepool_skb_len, to ask pagepool_last_errno after it.
 *
 * Thread: any.
 * Errors: none.
 * Cost: two stores.
 */
void pagepool_clear_error(void);

/**
 * For the inline functions of this header, not for programs: returns their tables. NULL if library and
 * header have different layouts; the inline functions then call the library. Each compiled file asks once,
 * before main.
 *
 * Thread: any.
 * Cost: an address.
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
 * These run without a call on the owner's thread: pagepool_alloc_page, pagepool_buf_put, pagepool_buf_data;
 * and in bulk pagepool_alloc_bulk, pagepool_alloc_bulk_data, pagepool_buf_put_bulk. They make the same checks
 * as the library, and call it in all other cases. Define PAGEPOOL_NO_INLINE to leave this part out. Programs
 * use none of the names that end in an underscore.
 *
 * The functions read tables of the library, which are never freed. Each compiled file asks once, before main,
 * whether the library has the same layout; if not, every call goes to the library.
 *
 * Loads dominate the cost. So each thread keeps the address of the pool that it used last, of those that it
 * owns. The library takes it back when the thread stops being the owner, which happens on that thread. So a
 * handle of the pool that is there proves that the thread owns it.
 */
#if !defined(PAGEPOOL_NO_INLINE) && defined(__GNUC__) && defined(__linux__) && !defined(__BIONIC__) && \
    (defined(__x86_64__) || defined(__aarch64__))

/* C has no other spelling for casts and null pointers. */
#if defined(__cplusplus)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wzero-as-null-pointer-constant"
#endif

/* What the pool's owner alone writes: its cache, and the counters of what it takes there and puts there. */
struct pagepool_cache_ {
    uint32_t pages[1024];
    size_t count, limit, capacity, other;
    uint64_t alloc_fast, recycle_cached;
};

struct pagepool_view_ {
    uint64_t token, owner, bias;
    uint32_t base, pages;
    uint64_t *words;
    struct pagepool_cache_ *cache;
    uint64_t home, limit;
    uint64_t returning;
    uint64_t *beginnings;
    uint64_t own;
    uint64_t memory, readable;
    uint32_t no_owner, turn;
    uint64_t rest[18];
};

struct pagepool_row_ {
    struct pagepool_view_ *view;
    uint64_t rest[3];
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

/* The layout is in the names that linkers see, so that two versions of this header share nothing. */
#define pagepool_no_cache_ pagepool_no_cache_e3681937_
#define pagepool_no_view_ pagepool_no_view_e3681937_
#define pagepool_here_ pagepool_here_e3681937_
#define pagepool_noted_ pagepool_noted_e3681937_

/* Stands for no pool, not even for NULL: it has no page, and an empty cache. */
extern PAGEPOOL_ONCE_ struct pagepool_cache_ pagepool_no_cache_;
PAGEPOOL_ONCE_ struct pagepool_cache_ pagepool_no_cache_;
extern PAGEPOOL_ONCE_ struct pagepool_view_ pagepool_no_view_;
PAGEPOOL_ONCE_ struct pagepool_view_ pagepool_no_view_ = {
    0, 0, 0, 0, 0, NULL, &pagepool_no_cache_, 0, 0, 0, NULL, 0, 0, 0, 0, 0, {0}};
/* The pool that this thread used last and owns. */
extern PAGEPOOL_ONCE_ PAGEPOOL_NEAR_ __thread struct pagepool_view_ *pagepool_here_;
PAGEPOOL_ONCE_ PAGEPOOL_NEAR_ __thread struct pagepool_view_ *pagepool_here_ = &pagepool_no_view_;
/* Whether the library knows where that stands, to take it back. */
extern PAGEPOOL_ONCE_ PAGEPOOL_NEAR_ __thread int pagepool_noted_;
PAGEPOOL_ONCE_ PAGEPOOL_NEAR_ __thread int pagepool_noted_;

/* The library's tables; NULL before the library was asked, and if it has another layout. */
PAGEPOOL_UNUSED_ static const struct pagepool_inline_ *pagepool_tables_;

__attribute__((constructor)) PAGEPOOL_UNUSED_ static void pagepool_start_(void)
{
    pagepool_tables_ = pagepool_inline_tables(0xe3681937);
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

/* What a call returned. The call is not the last thing that its function does, so a compiler makes no jump of
 * it, and the library finds the function on the stack: see pagepool_params.holders. */
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

/* This pool, which the calling thread owns, becomes the one that it used last. */
PAGEPOOL_SLOW_ void pagepool_stay_here_(struct pagepool_view_ *view)
{
    if (!pagepool_noted_)
        pagepool_noted_ = pagepool_tables_->note(&pagepool_here_);
    if (pagepool_noted_)
        pagepool_here_ = view;
}

/* A pool becomes the one that the calling thread used last, if it owns it. Called where there are tables. */
PAGEPOOL_FAST_ void pagepool_look_here_(struct pagepool_view_ *view)
{
    if (view != NULL && view->owner == pagepool_me_() && view->no_owner == 0)
        pagepool_stay_here_(view);
}

/* The same for any pool; its token tells where its view is. */
PAGEPOOL_FAST_ void pagepool_look_at_(const struct pagepool *pool)
{
    uint32_t token = (uint32_t)pagepool_number_(pool);
    if (pagepool_tables_ != NULL) {
        const uint64_t views = pagepool_number_(pagepool_tables_->views); /* written, too */
        pagepool_look_here_((struct pagepool_view_ *)pagepool_pointer_(views) +
                            (token >> 4 & pagepool_tables_->view_mask));
    }
}

/* The same for the pool of a buffer. */
PAGEPOOL_FAST_ void pagepool_look_behind_(const struct pagepool_buf *buf)
{
    uint32_t token = (uint32_t)pagepool_number_(buf);
    if (pagepool_tables_ != NULL)
        pagepool_look_here_(((const struct pagepool_row_ *)pagepool_tables_->directory)[token >> 16].view);
}

/* All other cases. Calls that allocate in the library stay in the program's own function, into which all of
 * this is inlined, because pools with `holders` record where that call is. */
PAGEPOOL_SLOW_ struct pagepool *pagepool_looked_at_(struct pagepool *pool)
{
    pagepool_look_at_(pool);
    return pool;
}

PAGEPOOL_SLOW_ int pagepool_put_slow_(struct pagepool_buf *buf)
{
    pagepool_look_behind_(buf);
    return pagepool_buf_put(buf);
}

PAGEPOOL_SLOW_ void *pagepool_data_slow_(struct pagepool_buf *buf)
{
    pagepool_look_behind_(buf);
    return pagepool_buf_data(buf);
}

/* The token of the page's next life: see LifeWord. */
PAGEPOOL_FAST_ uint64_t pagepool_next_(uint64_t token)
{
    return token + ((uint64_t)0x9e3779b2 << 32);
}

PAGEPOOL_FAST_ struct pagepool_buf *pagepool_alloc_page_(struct pagepool *pool)
{
    struct pagepool_view_ *view = pagepool_here_;
    if (PAGEPOOL_LIKELY_(view->token == pagepool_number_(pool))) {
        struct pagepool_cache_ *cache = view->cache;
        uint64_t *beginnings = __atomic_load_n(&view->beginnings, __ATOMIC_RELAXED); /* see begin_apart() */
        size_t at;
        if (PAGEPOOL_LIKELY_(!__builtin_sub_overflow(cache->count, (size_t)1, &at))) {
            uint32_t page = cache->pages[at];
            uint64_t token;
            if (PAGEPOOL_LIKELY_(beginnings == NULL)) {
                token = __atomic_load_n(&view->words[page], __ATOMIC_RELAXED);
            } else {
                token = beginnings[page];
                if (token != 0)
                    beginnings[page] = pagepool_next_(token);
            }
            if (PAGEPOOL_LIKELY_(token != 0)) { /* else the library finds it, or makes the first one */
                ++cache->alloc_fast;
                __atomic_store_n(&cache->count, at, __ATOMIC_RELAXED);
                return (struct pagepool_buf *)pagepool_pointer_(token);
            }
        }
    }
    return (struct pagepool_buf *)pagepool_called_(pagepool_alloc_page(pagepool_looked_at_(pool)));
}

/* The number of a token's page, where `base` is that of its pool's view; beyond every page for a token of
 * another pool or kind: see PoolView::page_of. */
PAGEPOOL_FAST_ uint32_t pagepool_page_(uint32_t base, uint64_t token)
{
    uint32_t far = (uint32_t)token - base;
    return far >> 4 | far << 28;
}

/* Marks a return that may use plain stores, before it looks whether it may: pairs with take() in bias.rs. The
 * mark is the token, whose life ends if it may, or 1 for several. 0 takes it back. */
PAGEPOOL_FAST_ void pagepool_mark_(struct pagepool_view_ *view, uint64_t mark)
{
    __atomic_store_n(&view->returning, mark, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Puts a page into the cache if its word equals the token. For the owner, which has marked the return. If the
 * pool is not biased to it (see claim.rs), the limit is 0 and nothing is put. */
PAGEPOOL_FAST_ int pagepool_put_page_(struct pagepool_view_ *view, uint32_t page, uint64_t token)
{
    struct pagepool_cache_ *cache = view->cache;
    size_t at = cache->count;
    if (PAGEPOOL_LIKELY_(at < __atomic_load_n(&view->limit, __ATOMIC_RELAXED) &&
                         __atomic_load_n(&view->words[page], __ATOMIC_RELAXED) == token)) {
        ++cache->recycle_cached;
        __atomic_store_n(&view->words[page], pagepool_next_(token), __ATOMIC_RELAXED);
        cache->pages[at] = page;
        __atomic_store_n(&cache->count, at + 1, __ATOMIC_RELAXED);
        return 1;
    }
    return 0;
}

PAGEPOOL_FAST_ int pagepool_buf_put_(struct pagepool_buf *buf)
{
    uint64_t token = pagepool_number_(buf);
    struct pagepool_view_ *view = pagepool_here_;
    uint32_t page = pagepool_page_(view->base, token);
    if (PAGEPOOL_LIKELY_(page < view->pages)) {
        pagepool_mark_(view, token);
        if (PAGEPOOL_LIKELY_(pagepool_put_page_(view, page, token)))
            return 0;
        pagepool_mark_(view, 0);
    }
    return pagepool_put_slow_(buf);
}

/* The calling thread owns this pool, so what the view says holds. If the word equals a token that was given
 * out, the page is out as a plain page, which has no offset. */
PAGEPOOL_FAST_ void *pagepool_buf_data_(struct pagepool_buf *buf)
{
    uint64_t token = pagepool_number_(buf);
    struct pagepool_view_ *view = pagepool_here_;
    uint64_t page = pagepool_page_(view->base, token);
    if (PAGEPOOL_LIKELY_(page < view->readable &&
                         __atomic_load_n(&view->words[page], __ATOMIC_RELAXED) == token))
        return pagepool_pointer_(view->memory + (page << 12));
    return pagepool_data_slow_(buf);
}

/* ---- The same in bulk: up to 64 at a time ---- */

/* GCC does not by itself unroll a loop that may end early. */
#if !defined(__clang__) && __GNUC__ >= 8
#define PAGEPOOL_UNROLL_ _Pragma("GCC unroll 8")
#else
#define PAGEPOOL_UNROLL_
#endif

/* Takes n pages from the cache, and stores their handles and, where `data` is not NULL, their addresses.
 * Takes none if the library has to look for one of their tokens. */
PAGEPOOL_FAST_ int pagepool_take_(struct pagepool_view_ *view, struct pagepool_buf **bufs, void **data,
    size_t n)
{
    uint64_t *beginnings = __atomic_load_n(&view->beginnings, __ATOMIC_RELAXED);
    const uint64_t *tokens = PAGEPOOL_LIKELY_(beginnings == NULL) ? view->words : beginnings;
    const uint64_t memory = view->memory;
    const size_t rest = view->cache->count - n;
    const uint32_t *pages = view->cache->pages + rest;
    PAGEPOOL_UNROLL_
    for (size_t at = 0; at < n; ++at) {
        uint64_t page = pages[at], token = __atomic_load_n(&tokens[page], __ATOMIC_RELAXED);
        if (!PAGEPOOL_LIKELY_(token != 0))
            return 0;
        bufs[at] = (struct pagepool_buf *)pagepool_pointer_(token);
        if (data != NULL)
            data[at] = pagepool_pointer_(memory + (page << 12));
    }
    if (!PAGEPOOL_LIKELY_(beginnings == NULL))
        for (size_t at = 0; at < n; ++at)
            beginnings[pages[at]] = pagepool_next_(beginnings[pages[at]]);
    __atomic_store_n(&view->cache->count, rest, __ATOMIC_RELAXED);
    view->cache->alloc_fast += n;
    return 1;
}

/* Whether n is 1 to 64, and `pool` is this thread's latest pool with n pages in its cache. */
PAGEPOOL_FAST_ int pagepool_has_(const struct pagepool_view_ *view, const struct pagepool *pool, size_t n)
{
    return view->token == pagepool_number_(pool) && n - 1 < 64 && n <= view->cache->count;
}

/* Whether these pages were taken without the library. */
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
    if (PAGEPOOL_LIKELY_(pagepool_has_(view, pool, n) && view->readable != 0 && bufs != NULL &&
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

/* Puts pages into the cache, in order, until a token does not equal its page's word. Returns their number.
 * Puts none if the cache has not the room for all n. For the owner, which has marked the return. */
PAGEPOOL_FAST_ size_t pagepool_put_pages_(struct pagepool_view_ *view, struct pagepool_buf *const *bufs,
    size_t n)
{
    struct pagepool_cache_ *cache = view->cache;
    const uint32_t base = view->base, count = view->pages;
    const size_t had = cache->count;
    uint32_t *pages = cache->pages + had;
    uint64_t *words = view->words;
    size_t done = 0;
    if (!PAGEPOOL_LIKELY_(had + n <= __atomic_load_n(&view->limit, __ATOMIC_RELAXED)))
        return 0;
    PAGEPOOL_UNROLL_
    for (; done < n; ++done) {
        uint64_t token = pagepool_number_(bufs[done]);
        uint32_t page = pagepool_page_(base, token);
        if (!PAGEPOOL_LIKELY_(page < count && __atomic_load_n(&words[page], __ATOMIC_RELAXED) == token))
            break;
        __atomic_store_n(&words[page], pagepool_next_(token), __ATOMIC_RELAXED);
        pages[done] = page;
    }
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
        pagepool_mark_(view, 1);
        done = pagepool_put_pages_(view, bufs, n);
        pagepool_mark_(view, 0);
        if (PAGEPOOL_LIKELY_(done == n))
            return 0;
    }
    pagepool_look_behind_(bufs[done]);
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
