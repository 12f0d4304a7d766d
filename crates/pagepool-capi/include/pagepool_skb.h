/*
 * pagepool: packets for network stacks over buffers of a pool. Generated; docs/c-api.md is the guide.
 * pagepool.h has the terms, and says what each comment names.
 */

#ifndef PAGEPOOL_SKB_H
#define PAGEPOOL_SKB_H

#include <sys/uio.h>

#include <pagepool.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * A cache for the descriptions of packets: pagepool_skb_cache_create creates it.
 */
struct pagepool_skb_cache;

/**
 * A packet for network stacks: pagepool_skb_from_buf, _alloc and _clone create it.
 */
struct pagepool_skb;

/**
 * Creates a cache for the descriptions of packets, with room for `packets` packets: 1 to 16777216. A
 * description takes 1100 bytes; clones of a packet share one. Memory is committed at its first use. Linux:
 * skbuff_cache.
 *
 * Thread: any.
 * Ownership: release `*cache` with pagepool_skb_cache_put.
 * Errors: -EINVAL for a number out of range. -ENOMEM.
 * Cost: allocates.
 */
int pagepool_skb_cache_create(size_t packets, struct pagepool_skb_cache **cache);

/**
 * Releases the handle of a cache. Packets that are out stay valid; the last of them frees the cache.
 *
 * Thread: any.
 * Ownership: the handle ends.
 * Errors: -EINVAL, -ESTALE for a bad handle.
 * Cost: a lock.
 */
int pagepool_skb_cache_put(struct pagepool_skb_cache *cache);

/**
 * Creates a packet of `len` bytes at `offset` in a buffer, without a copy. The buffer becomes the head of
 * the packet, and the bytes before `offset` its headroom. A buffer that the CPU cannot read becomes the
 * first fragment instead. Linux: build_skb.
 *
 * Thread: the one that holds the buffer.
 * Ownership: the handle of the buffer ends, unless the call fails. Release `*skb` with pagepool_skb_put.
 * Errors: -EINVAL for bytes beyond the buffer or in its tailroom. -ENOBUFS if the cache is exhausted.
 *     -EINVAL, -ESTALE for a bad handle.
 * Cost: two short locks and two compare-and-swaps.
 */
int pagepool_skb_from_buf(struct pagepool_skb_cache *cache,
                          struct pagepool_buf *buf,
                          size_t offset,
                          size_t len,
                          struct pagepool_skb **skb);

/**
 * Creates an empty packet whose head is ordinary memory: `headroom` bytes of headroom, and `len` bytes of
 * tailroom after it. Linux: alloc_skb, skb_reserve.
 *
 * Thread: any.
 * Ownership: release `*skb` with pagepool_skb_put.
 * Errors: -ENOBUFS if the cache is exhausted. -ENOMEM. -EINVAL, -ESTALE for a bad handle.
 * Cost: as pagepool_skb_from_buf; allocates if `headroom` and `len` together exceed 512 bytes.
 */
int pagepool_skb_alloc(struct pagepool_skb_cache *cache,
                       size_t headroom,
                       size_t len,
                       struct pagepool_skb **skb);

/**
 * Creates a clone of a packet: it shares the bytes, and has its own start and length. The bytes must not be
 * written while there are clones. The buffers return to their pools with the last clone. Linux: skb_clone.
 *
 * Thread: any, one at a time per packet.
 * Ownership: release `*clone` with pagepool_skb_put.
 * Errors: -EBUSY during another call on the packet. -ENOMEM if there is no memory for the table. -EINVAL,
 *     -ESTALE for a bad handle.
 * Cost: two short locks and two atomic operations.
 */
int pagepool_skb_clone(struct pagepool_skb *skb, struct pagepool_skb **clone);

/**
 * Records who holds the pool memory of a packet now, of all its pools, as pagepool_buf_set_tag does for a
 * buffer. Clones share the tag, so the last call counts.
 *
 * Thread: any, one at a time per packet.
 * Errors: -EINVAL for a tag that is not of `pool`. -EBUSY during another call on the packet. -EINVAL,
 *     -ESTALE for a bad handle.
 * Cost: a lock and the packet's lock; off the owner's thread one lock more for each buffer of a pool with
 *     `holders`.
 */
int pagepool_skb_set_tag(struct pagepool *pool, struct pagepool_skb *skb, int tag);

/**
 * Releases a packet. The last of its clones returns every buffer as pagepool_buf_put does, and calls the
 * `free` callbacks of the caller's memory. Linux: kfree_skb.
 *
 * Thread: any, one at a time per packet.
 * Ownership: the handle ends.
 * Errors: -ESTALE for a packet that was released before. -EBUSY during another call on it. -EINVAL for a
 *     value that never was a packet.
 * Cost: a short lock and a compare-and-swap, and the return of each buffer.
 */
int pagepool_skb_put(struct pagepool_skb *skb);

/**
 * Returns the length of the packet in bytes. 0 for a bad handle. Linux: skb->len.
 *
 * Thread: any, one at a time per packet.
 * Cost: the packet's lock.
 */
size_t pagepool_skb_len(struct pagepool_skb *skb);

/**
 * Returns how many bytes of the packet lie in its head. 0 for a bad handle. Linux: skb_headlen.
 *
 * Thread: any, one at a time per packet.
 * Cost: the packet's lock.
 */
size_t pagepool_skb_head_len(struct pagepool_skb *skb);

/**
 * Returns the number of free bytes before the data of the head. 0 for a bad handle. Linux: skb_headroom.
 *
 * Thread: any, one at a time per packet.
 * Cost: the packet's lock.
 */
size_t pagepool_skb_headroom(struct pagepool_skb *skb);

/**
 * Returns the number of free bytes after the data of the head. 0 if the packet has fragments, or for a bad
 * handle. Linux: skb_tailroom.
 *
 * Thread: any, one at a time per packet.
 * Cost: the packet's lock.
 */
size_t pagepool_skb_tailroom(struct pagepool_skb *skb);

/**
 * Returns how many bytes of memory the packet occupies. 0 for a bad handle. Linux: skb->truesize.
 *
 * Thread: any, one at a time per packet.
 * Cost: the packet's lock; reads the size of each fragment.
 */
size_t pagepool_skb_truesize(struct pagepool_skb *skb);

/**
 * Returns the number of fragments. 0 for a bad handle. Linux: skb_shinfo(skb)->nr_frags.
 *
 * Thread: any, one at a time per packet.
 * Cost: the packet's lock.
 */
size_t pagepool_skb_nr_frags(struct pagepool_skb *skb);

/**
 * Returns 1 if a clone shares the bytes of the packet, otherwise 0. Linux: skb_cloned.
 *
 * Thread: any, one at a time per packet.
 * Errors: -EBUSY during another call on the packet. -EINVAL, -ESTALE for a bad handle.
 * Cost: the packet's lock.
 */
int pagepool_skb_is_cloned(struct pagepool_skb *skb);

/**
 * Returns the address of the data in the head, which is pagepool_skb_head_len bytes long. The data may be
 * written only while no clone shares it. NULL for a bad handle. Linux: skb->data.
 *
 * Thread: any, one at a time per packet.
 * Ownership: the address is valid until the head changes or the packet is released.
 * Cost: the packet's lock.
 */
void *pagepool_skb_data(struct pagepool_skb *skb);

/**
 * Describes the bytes of the packet in `iov`, in order, for sendmsg(2): the head if it has bytes, then each
 * fragment. Writes the first `n` elements, and returns how many there are, at most 18. The bytes are for
 * reading. `iov` may be NULL if `n` is 0. Linux: skb_to_sgvec.
 *
 * Thread: any, one at a time per packet.
 * Ownership: the addresses are valid until the packet changes or is released.
 * Errors: -EOPNOTSUPP for memory that the CPU cannot read. -EBUSY during another call on the packet.
 *     -EINVAL, -ESTALE for a bad handle.
 * Cost: the packet's lock.
 */
int64_t pagepool_skb_iovec(struct pagepool_skb *skb, struct iovec *iov, size_t n);

/**
 * Returns the device address of a segment of the packet in a domain: segment 0 is the head, segment i is
 * fragment i - 1. UINT64_MAX for a segment that does not exist or is not mapped there, or for a bad handle.
 * Linux: skb_frag_dma_map.
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
 *     during another call on the packet. -EINVAL, -ESTALE for a bad handle.
 * Cost: the packet's lock, and the copy.
 */
int pagepool_skb_copy_bits(struct pagepool_skb *skb, size_t offset, void *to, size_t len);

/**
 * Appends `len` bytes at `offset` in a buffer to the packet, as a fragment. A packet has at most 17
 * fragments. Linux: skb_add_rx_frag.
 *
 * Thread: any, one at a time per packet.
 * Ownership: the handle of the buffer ends, unless the call fails.
 * Errors: -EINVAL for bytes beyond the buffer. -ENOSPC for the 18th fragment. -EBUSY while a clone shares
 *     the bytes, or during another call on the packet. -EINVAL, -ESTALE for a bad handle.
 * Cost: the packet's lock.
 */
int pagepool_skb_add_buf(struct pagepool_skb *skb, struct pagepool_buf *buf, size_t offset, size_t len);

/**
 * Appends `len` bytes at `offset` in a shared buffer to the packet, as a fragment. The packet is one more
 * reader of the buffer. Linux: skb_add_rx_frag, page_pool_ref_page.
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
 * Appends `len` bytes of the caller's memory to the packet, as a fragment that is only read. After the last
 * use of the bytes by any packet the library calls `free` once, with `arg` and the memory, in the call that
 * ended the use: a release, a pull, a trim or a copy into the head. `free` may use the library, except for
 * that packet (-EBUSY). It may be NULL for memory that stays forever. Linux: ubuf_info.
 *
 * Thread: any, one at a time per packet.
 * Ownership: the bytes must stay unchanged until `free` is called, on any thread. If the call fails, the
 *     memory stays the caller's and `free` is not called.
 * Errors: as pagepool_skb_add_buf. -EINVAL for NULL.
 * Cost: the packet's lock; allocates a reference count.
 */
int pagepool_skb_add_memory(struct pagepool_skb *skb,
                            void *start,
                            size_t len,
                            void (*free)(void *arg, void *start, size_t len),
                            void *arg);

/**
 * Adds `len` bytes to the front of the packet, from its headroom, and stores their address in `*at` unless
 * `at` is NULL. The library does not initialise them. Linux: skb_push.
 *
 * Thread: any, one at a time per packet.
 * Errors: -ENOSPC if there is too little headroom; pagepool_skb_cow_head makes more. -EBUSY while a clone
 *     shares the bytes, or during another call on the packet. -EINVAL, -ESTALE for a bad handle.
 * Cost: the packet's lock.
 */
int pagepool_skb_push(struct pagepool_skb *skb, size_t len, void **at);

/**
 * Adds `len` bytes to the end of the packet, from the tailroom of its head, and stores their address in
 * `*at` unless `at` is NULL. The library does not initialise them. A packet with fragments has no tailroom.
 * Linux: skb_put.
 *
 * Thread: any, one at a time per packet.
 * Errors: -ENOSPC if there is too little tailroom. -EBUSY while a clone shares the bytes, or during another
 *     call on the packet. -EINVAL, -ESTALE for a bad handle.
 * Cost: the packet's lock.
 */
int pagepool_skb_append(struct pagepool_skb *skb, size_t len, void **at);

/**
 * Removes `len` bytes from the front of the packet. A fragment without bytes left is returned at once.
 * Linux: pskb_pull.
 *
 * Thread: any, one at a time per packet.
 * Errors: -EINVAL for more bytes than the packet has. -ENOBUFS, -ENOMEM if the packet is a clone and needs
 *     its own description. -EBUSY during another call on the packet. -EINVAL, -ESTALE for a bad handle.
 * Cost: the packet's lock.
 */
int pagepool_skb_pull(struct pagepool_skb *skb, size_t len);

/**
 * Cuts the packet to its first `len` bytes. A shorter packet is unchanged. Linux: pskb_trim.
 *
 * Thread: any, one at a time per packet.
 * Errors: as pagepool_skb_pull.
 * Cost: the packet's lock.
 */
int pagepool_skb_trim(struct pagepool_skb *skb, size_t len);

/**
 * Makes the first `len` bytes of the packet lie in its head, by copying those that lie in fragments. Linux:
 * pskb_may_pull.
 *
 * Thread: any, one at a time per packet.
 * Errors: -EINVAL for more bytes than the packet has. -EOPNOTSUPP for memory that the CPU cannot read.
 *     -ENOBUFS, -ENOMEM. -EBUSY during another call on the packet. -EINVAL, -ESTALE for a bad handle.
 * Cost: the packet's lock, and the copy.
 */
int pagepool_skb_make_linear(struct pagepool_skb *skb, size_t len);

/**
 * Makes the head of a clone writable: copies it into its own ordinary memory, and takes a reference to each
 * fragment. A packet without clones is unchanged. Linux: skb_unclone.
 *
 * Thread: any, one at a time per packet.
 * Errors: -ENOBUFS, -ENOMEM. -EBUSY during another call on the packet. -EINVAL, -ESTALE for a bad handle.
 * Cost: the packet's lock, and the copy of the head.
 */
int pagepool_skb_unclone(struct pagepool_skb *skb);

/**
 * Makes the head writable as pagepool_skb_unclone does, with at least `headroom` bytes of headroom. Linux:
 * skb_cow_head.
 *
 * Thread: any, one at a time per packet.
 * Errors: as pagepool_skb_unclone.
 * Cost: the packet's lock; a copy of the head if it is a clone's or has too little headroom.
 */
int pagepool_skb_cow_head(struct pagepool_skb *skb, size_t headroom);

#ifdef __cplusplus
}
#endif

#endif
