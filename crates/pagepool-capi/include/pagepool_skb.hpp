/*
 * Packets of pagepool_skb.h for C++11 and later: handles that release themselves. It includes pagepool.hpp.
 */

#ifndef PAGEPOOL_SKB_HPP
#define PAGEPOOL_SKB_HPP

#include <pagepool.hpp>
#include <pagepool_skb.h>

namespace pagepool_cpp {

/** Releases a packet or a cache of packets. */
struct skb_deleter {
    void operator()(struct pagepool_skb *skb) const noexcept { (void)pagepool_skb_put(skb); }
    void operator()(struct pagepool_skb_cache *cache) const noexcept { (void)pagepool_skb_cache_put(cache); }
};

using unique_skb = std::unique_ptr<pagepool_skb, skb_deleter>;
using unique_skb_cache = std::unique_ptr<pagepool_skb_cache, skb_deleter>;

} // namespace pagepool_cpp

#endif
