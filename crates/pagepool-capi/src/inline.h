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
#define pagepool_no_cache_ pagepool_no_cache_@LAYOUT@_
#define pagepool_no_view_ pagepool_no_view_@LAYOUT@_
#define pagepool_here_ pagepool_here_@LAYOUT@_
#define pagepool_nowhere_ pagepool_nowhere_@LAYOUT@_
#define pagepool_there_ pagepool_there_@LAYOUT@_
#define pagepool_missed_ pagepool_missed_@LAYOUT@_
#define pagepool_noted_ pagepool_noted_@LAYOUT@_

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
    pagepool_tables_ = pagepool_inline_tables(0x@LAYOUT@);
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
