/* pagepool.hpp, pagepool_skb.hpp, and the headers of C as C++ sees them. */
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include <pagepool_skb.hpp>

#define CHECK(what)                                                                                     \
    do {                                                                                                \
        if (!(what)) {                                                                                  \
            std::fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, pagepool_last_error()); \
            std::exit(1);                                                                               \
        }                                                                                               \
    } while (0)

namespace cpp = pagepool_cpp;

static const pagepool_params constant = PAGEPOOL_PARAMS_INIT;

/* `pagepool_stats` is a type, and what it is made of empty braces has no size, which is an error. */
static void structs(pagepool *pool)
{
    pagepool_stats empty{};
    pagepool_buffer_locations at{};
    pagepool_deferred_stats deferred{};
    CHECK(pagepool_read_stats(pool, &empty) == -EINVAL);
    CHECK(pagepool_read_buffer_locations(pool, &at) == -EINVAL);
    CHECK(pagepool_read_deferred_stats(pool, &deferred) == -EINVAL);
    empty.size = sizeof(empty);
    CHECK(pagepool_read_stats(pool, &empty) == 0 && constant.size == sizeof(constant));
}

/* A range over the packets of a batch, in the order of its pages. */
static void packets(const cpp::unique_batch &batch)
{
    const cpp::packets range(batch);
    std::size_t seen = 0;
    for (unsigned char *packet : range) {
        CHECK(packet != nullptr && packet == range[seen]);
        packet[0] = static_cast<unsigned char>(++seen);
    }
    CHECK(seen == 32 && range.size() == 32 && range[31][0] == 32 && range[0][0] == 1);
    cpp::unique_buf last(pagepool_batch_pop(batch.get()));
    CHECK(pagepool_buf_packet(last.get()) == range[31] && cpp::packets(batch).size() == 31);
    const cpp::packets none(nullptr);
    CHECK(none.begin() == none.end() && none.size() == 0 && pagepool_last_errno() == EINVAL);
}

/* A clone holds the page of its packet, on any thread; the pool has it back with the last of them. */
static void stack_packets(pagepool *pool)
{
    pagepool_skb_cache *cache = nullptr;
    pagepool_skb *made = nullptr, *clone = nullptr;
    CHECK(pagepool_skb_cache_create(8, &cache) == 0);
    cpp::unique_skb_cache held(cache);
    cpp::unique_buf buf(pagepool_alloc_page(pool));
    CHECK(pagepool_skb_from_buf(cache, buf.get(), 64, 60, &made) == 0);
    (void)buf.release(); /* the packet has it */
    cpp::unique_skb skb(made);
    CHECK(pagepool_skb_clone(skb.get(), &clone) == 0);
    std::thread([](cpp::unique_skb) {}, cpp::unique_skb(clone)).join();
    CHECK(pagepool_skb_is_cloned(made) == 0 && pagepool_skb_len(made) == 60);
    skb.reset();
    CHECK(pagepool_skb_len(made) == 0 && pagepool_last_errno() == ESTALE);
    held.reset();
    CHECK(pagepool_skb_cache_put(cache) == -ESTALE);
    pagepool_buffer_locations at = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    CHECK(pagepool_read_buffer_locations(pool, &at) == 0 && at.out == 0);
}

static void buffers(pagepool *pool)
{
    {
        cpp::unique_buf buf(pagepool_alloc_page(pool));
        cpp::unique_buf moved = std::move(buf);
        CHECK(!buf && moved && cpp::view(moved).size == 4096);
    }
    CHECK(cpp::stats(pool).recycle_cached == 1);
    cpp::unique_buf elsewhere(pagepool_alloc_page(pool));
    std::thread([](cpp::unique_buf) {}, std::move(elsewhere)).join();
    CHECK(cpp::stats(pool).recycle_ring == 1);

    {
        pagepool_batch *made = nullptr;
        CHECK(pagepool_batch_create(&made) == 0);
        cpp::unique_batch batch(made);
        CHECK(pagepool_batch_alloc(batch.get(), pool, 32) == 32 && pagepool_inflight(pool) >= 32);
        packets(batch);
    }
    pagepool_buffer_locations at = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    CHECK(pagepool_read_buffer_locations(pool, &at) == 0 && at.out == 0);

    std::vector<pagepool_buf *> some(32);
    CHECK(pagepool_alloc_bulk(pool, some.data(), some.size()) == 32);
    const std::vector<pagepool_buf *> fixed = some;
    unsigned char fill = 0;
    for (cpp::view page : cpp::views(fixed.data(), fixed.size()))
        for (unsigned char &byte : page)
            byte = ++fill;
    CHECK(pagepool_buf_put_bulk(fixed.data(), fixed.size()) == 0);
    CHECK(pagepool_buf_put_bulk(fixed.data(), 1) == -ESTALE);
}

static void batches(pagepool *pool)
{
    const std::uint64_t before = cpp::stats(pool).recycle_cached;
    {
        cpp::batch<16> batch;
        std::size_t bytes = 0;
        CHECK(batch.fill(pool) == 16 && batch.fill(pool) == 16);
        for (cpp::view page : batch)
            bytes += page.size;
        CHECK(bytes == 16 * 4096);
        cpp::unique_buf one = batch.pop();
        CHECK(one && batch.size() == 15);
    }
    CHECK(cpp::stats(pool).recycle_cached == before + 16);
    cpp::batch<2> none;
    CHECK(!none.pop() && none.put() == 0 && none.begin() == none.end());
}

static void exceptions(pagepool *pool)
{
    int thrown = 0;
    CHECK(cpp::must(pagepool_inflight(pool)) > 0 && cpp::must(pagepool_alloc_frag(pool, 100)) != nullptr);
    try {
        cpp::must(pagepool_buf_put(nullptr));
    } catch (const std::system_error &error) {
        thrown += error.code().value() == EINVAL;
    }
    try {
        cpp::must(pagepool_alloc_frag(pool, 0));
    } catch (const std::system_error &error) {
        thrown += error.code().value() == pagepool_last_errno() && pagepool_last_errno() > 0;
    }
    CHECK(thrown == 2);
}

int main()
{
    pagepool_arena_params arena_params = PAGEPOOL_ARENA_PARAMS_INIT;
    pagepool_params params = PAGEPOOL_PARAMS_INIT;
    pagepool_arena *arena = nullptr;
    pagepool *made = nullptr;
    arena_params.max_bytes = 8 << 20;
    CHECK(pagepool_arena_create(&arena_params, &arena) == 0);
    cpp::unique_arena held(arena);
    params.arena = arena;
    CHECK(pagepool_create(&params, &made) == 0 && pagepool_bind(made) == 0);
    {
        cpp::unique_pool pool(made);
        structs(pool.get());
        buffers(pool.get());
        batches(pool.get());
        stack_packets(pool.get());
        exceptions(pool.get());
    }
    CHECK(pagepool_bind(made) == -ESTALE); /* unique_pool destroyed it */
    std::puts("ok");
}
