/*
 * pagepool for C++11 and later: handles that release themselves, and ranges over buffers. docs/c-api.md is
 * the guide. pagepool.h has a global struct `pagepool`, so a program that includes either header cannot have
 * a namespace or another class of that name; the namespace here is pagepool_cpp. Everything is inline, over
 * the functions of pagepool.h. Only pagepool_cpp::must throws.
 */

#ifndef PAGEPOOL_HPP
#define PAGEPOOL_HPP

#include <cstddef>
#include <memory>
#include <system_error>
#include <type_traits>

#include <pagepool.h>

namespace pagepool_cpp {

/** Releases the handle of a unique_ptr. pagepool_destroy requires the pool's owner, or a pool without one. */
struct deleter {
    void operator()(struct pagepool *pool) const noexcept { pagepool_destroy(pool); }
    void operator()(struct pagepool_arena *arena) const noexcept { pagepool_arena_put(arena); }
    void operator()(struct pagepool_domain *domain) const noexcept { pagepool_domain_put(domain); }
    void operator()(struct pagepool_buf *buf) const noexcept { (void)pagepool_buf_put(buf); }
    void operator()(struct pagepool_batch *batch) const noexcept { (void)pagepool_batch_destroy(batch); }
    void operator()(struct pagepool_shared *shared) const noexcept { pagepool_shared_put(shared); }
    void operator()(struct pagepool_page_ref *page) const noexcept { pagepool_page_ref_put(page); }
    void operator()(struct pagepool_shutdown *shutdown) const noexcept { pagepool_shutdown_put(shutdown); }
    void operator()(struct pagepool_deferred_user *user) const noexcept { pagepool_deferred_user_put(user); }
};

/* These types are never complete, because a handle is a token; unique_ptr accepts that. */
using unique_pool = std::unique_ptr<struct pagepool, deleter>;
using unique_arena = std::unique_ptr<pagepool_arena, deleter>;
using unique_domain = std::unique_ptr<pagepool_domain, deleter>;
using unique_buf = std::unique_ptr<pagepool_buf, deleter>;
using unique_batch = std::unique_ptr<pagepool_batch, deleter>;
using unique_shared = std::unique_ptr<pagepool_shared, deleter>;
using unique_page_ref = std::unique_ptr<pagepool_page_ref, deleter>;
using unique_shutdown = std::unique_ptr<pagepool_shutdown, deleter>;
using unique_deferred_user = std::unique_ptr<pagepool_deferred_user, deleter>;

/** The bytes of a buffer, from `data` to `data + size`. For memory that the CPU cannot read, or a bad handle,
 * `data` is NULL and `size` 0. */
struct view {
    struct pagepool_buf *buf;
    unsigned char *data;
    std::size_t size;

    explicit view(struct pagepool_buf *of) noexcept
        : buf(of), data(static_cast<unsigned char *>(pagepool_buf_data(of))),
          size(data == nullptr ? 0 : pagepool_buf_len(of))
    {
    }
    explicit view(const unique_buf &of) noexcept : view(of.get()) {}
    unsigned char *begin() const noexcept { return data; }
    unsigned char *end() const noexcept { return data + size; }
};

/** A range over an array of buffers, which stays the caller's:
 * `for (pagepool_cpp::view v : pagepool_cpp::views(bufs, n))`. */
class views {
  public:
    class iterator {
      public:
        explicit iterator(struct pagepool_buf *const *at) noexcept : at_(at) {}
        view operator*() const noexcept { return view(*at_); }
        iterator &operator++() noexcept
        {
            ++at_;
            return *this;
        }
        bool operator==(const iterator &other) const noexcept { return at_ == other.at_; }
        bool operator!=(const iterator &other) const noexcept { return at_ != other.at_; }

      private:
        struct pagepool_buf *const *at_;
    };

    views(struct pagepool_buf *const *bufs, std::size_t n) noexcept : bufs_(bufs), n_(n) {}
    iterator begin() const noexcept { return iterator(bufs_); }
    iterator end() const noexcept { return iterator(bufs_ + n_); }
    std::size_t size() const noexcept { return n_; }

  private:
    struct pagepool_buf *const *bufs_;
    std::size_t n_;
};

/** The packet addresses of a pagepool_batch, from pagepool_batch_packets:
 * `for (unsigned char *packet : pagepool_cpp::packets(batch))`. Empty if that call fails. The addresses are
 * valid until pages leave the batch. A packet has room for the `max_len` of the pool. */
class packets {
  public:
    class iterator {
      public:
        explicit iterator(void *const *at) noexcept : at_(at) {}
        unsigned char *operator*() const noexcept { return static_cast<unsigned char *>(*at_); }
        iterator &operator++() noexcept
        {
            ++at_;
            return *this;
        }
        bool operator==(const iterator &other) const noexcept { return at_ == other.at_; }
        bool operator!=(const iterator &other) const noexcept { return at_ != other.at_; }

      private:
        void *const *at_;
    };

    explicit packets(struct pagepool_batch *batch) noexcept : n_(pagepool_batch_packets(batch, at_, most)) {}
    explicit packets(const unique_batch &batch) noexcept : packets(batch.get()) {}
    iterator begin() const noexcept { return iterator(at_); }
    iterator end() const noexcept { return iterator(at_ + n_); }
    std::size_t size() const noexcept { return n_; }
    unsigned char *operator[](std::size_t i) const noexcept { return static_cast<unsigned char *>(at_[i]); }

  private:
    enum : std::size_t { most = 64 }; /* pages that a batch may have */
    void *at_[most];
    std::size_t n_;
};

/** Up to `N` buffers with handles; its destructor returns them together. For whole pages of one pool a
 * unique_batch with `packets` costs less. */
template <std::size_t N> class batch {
  public:
    batch() noexcept : bufs_(), n_(0) {}
    batch(const batch &) = delete;
    batch &operator=(const batch &) = delete;
    ~batch() { put(); }

    /** Allocates until the batch is full. Returns how many buffers it has now. Thread: owner of the pool. */
    std::size_t fill(struct pagepool *pool) noexcept
    {
        n_ += pagepool_alloc_bulk(pool, bufs_ + n_, N - n_);
        return n_;
    }
    /** Returns all buffers to their pools, on any thread. */
    int put() noexcept
    {
        const std::size_t n = n_;
        n_ = 0;
        return n == 0 ? 0 : pagepool_buf_put_bulk(bufs_, n);
    }
    /** Removes the last buffer and returns it; empty if there is none. */
    unique_buf pop() noexcept { return unique_buf(n_ == 0 ? nullptr : bufs_[--n_]); }
    std::size_t size() const noexcept { return n_; }
    views::iterator begin() const noexcept { return views::iterator(bufs_); }
    views::iterator end() const noexcept { return views::iterator(bufs_ + n_); }

  private:
    struct pagepool_buf *bufs_[N];
    std::size_t n_;
};

/** The counters of a pool; all 0 if the handle is bad. */
inline pagepool_stats stats(struct pagepool *pool) noexcept
{
    pagepool_stats now = PAGEPOOL_STATS_INIT;
    (void)pagepool_read_stats(pool, &now);
    return now;
}

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
/** Throws std::system_error with the text of pagepool_last_error if a call failed; otherwise returns its
 * result. Only calls inside it throw: `pagepool_cpp::must(pagepool_bind(pool))`. */
template <typename T> T must(T done)
{
    static_assert(std::is_signed<T>::value, "an unsigned result is no error: check pagepool_last_errno");
    if (done < 0)
        throw std::system_error(static_cast<int>(-done), std::generic_category(), pagepool_last_error());
    return done;
}

/** Throws std::system_error if a call returned NULL; otherwise returns its handle or address. */
template <typename T> T *must(T *made)
{
    if (made == nullptr)
        throw std::system_error(pagepool_last_errno(), std::generic_category(), pagepool_last_error());
    return made;
}
#endif

} // namespace pagepool_cpp

#endif
