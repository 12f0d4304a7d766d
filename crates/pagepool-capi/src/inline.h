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
 */
#if !defined(PAGEPOOL_NO_INLINE) && defined(__GNUC__) && defined(__linux__) && \
    (defined(__x86_64__) || defined(__aarch64__))

struct pagepool_cache_ {
    size_t count, limit, capacity;
    uint32_t pages[1];
};

struct pagepool_view_ {
    uint64_t token, owner, bias, busy;
    uint64_t base, span;
    uint64_t *words;
    struct pagepool_cache_ *cache;
    uint64_t *alloc_fast, *recycle_cached;
    uint64_t rest[22];
};

struct pagepool_row_ {
    struct pagepool_view_ *view;
    uint64_t rest[3];
};

struct pagepool_hint_ {
    struct pagepool_view_ *view;
    uint64_t rest[7];
};

/* Until the library was asked, and where it has another layout: tables in which nothing is found. */
PAGEPOOL_UNUSED_ static struct pagepool_view_ pagepool_no_view_;
PAGEPOOL_UNUSED_ static struct pagepool_hint_ pagepool_no_hint_ = {&pagepool_no_view_, {0}};
PAGEPOOL_UNUSED_ static const struct pagepool_inline_ pagepool_no_tables_ = {&pagepool_no_view_, NULL, &pagepool_no_hint_, 0, 0};
PAGEPOOL_UNUSED_ static const struct pagepool_inline_ *pagepool_tables_ = &pagepool_no_tables_;

__attribute__((constructor)) PAGEPOOL_UNUSED_ static void pagepool_start_(void)
{
    const struct pagepool_inline_ *tables = pagepool_inline_tables(1);
    if (tables != NULL)
        pagepool_tables_ = tables;
}

#define PAGEPOOL_FAST_ __attribute__((unused, always_inline)) static inline
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

PAGEPOOL_FAST_ struct pagepool_buf *pagepool_alloc_page_(struct pagepool *pool)
{
    const struct pagepool_inline_ *tables = pagepool_tables_;
    uint64_t token = (uint64_t)(uintptr_t)pool;
    struct pagepool_view_ *view = (struct pagepool_view_ *)tables->views + ((uint32_t)token >> 4 & tables->view_mask);
    if (PAGEPOOL_LIKELY_(view->owner == pagepool_me_() && view->token == token)) {
        struct pagepool_cache_ *cache = view->cache;
        size_t at = cache->count;
        if (PAGEPOOL_LIKELY_(at != 0)) {
            uint32_t page = cache->pages[at - 1];
            uint32_t life = (uint32_t)view->words[page];
            if (PAGEPOOL_LIKELY_(life != 0)) {
                life += 1;
                view->words[page] = life;
                __atomic_store_n(&cache->count, at - 1, __ATOMIC_RELAXED);
                ++*view->alloc_fast;
                token = (uint64_t)life << 32 | (view->base + ((uint64_t)page << 4));
                return (struct pagepool_buf *)(uintptr_t)token;
            }
        }
    }
    return pagepool_alloc_page(pool);
}

/* The pool that a page is of, by the place in its token, where it is not the one that this thread bound last. */
PAGEPOOL_UNUSED_ __attribute__((noinline)) static struct pagepool_view_ *pagepool_view_of_(uint64_t token)
{
    struct pagepool_row_ *rows = (struct pagepool_row_ *)pagepool_tables_->directory;
    struct pagepool_view_ *view = rows != NULL ? rows[(uint32_t)token >> 16].view : NULL;
    return view != NULL && (uint32_t)token - (uint32_t)view->base < view->span ? view : NULL;
}

/* For the biased owner, who says that it is busy: the page goes into the cache. */
PAGEPOOL_FAST_ int pagepool_put_page_(struct pagepool_view_ *view, uint64_t token, uint32_t page)
{
    struct pagepool_cache_ *cache = view->cache;
    size_t at = cache->count;
    if (PAGEPOOL_LIKELY_(at < cache->limit)) {
        uint32_t other = cache->pages[at], same = other;
        __asm__("" : "+r"(same)); /* equal, and the compiler does not know it: see View::put */
        if (other == page) {
            __asm__ __volatile__("" : "+r"(same));
            page = same;
        }
        if (PAGEPOOL_LIKELY_(view->words[page] == token >> 32 && token >> 32 != 0)) {
            view->words[page] = (uint64_t)0xffffffff << 32 | (uint32_t)((token >> 32) + 1);
            if (same != page)
                cache->pages[at] = page;
            __atomic_store_n(&cache->count, at + 1, __ATOMIC_RELAXED);
            ++*view->recycle_cached;
            return 1;
        }
    }
    return 0;
}

PAGEPOOL_FAST_ int pagepool_buf_put_(struct pagepool_buf *buf)
{
    const struct pagepool_inline_ *tables = pagepool_tables_;
    uint64_t token = (uint64_t)(uintptr_t)buf, me = pagepool_me_();
    struct pagepool_view_ *view = ((struct pagepool_hint_ *)tables->hints)[me >> 12 & tables->hint_mask].view;
    uint32_t far = (uint32_t)token - (uint32_t)view->base;
    if (!PAGEPOOL_LIKELY_(far < view->span)) {
        view = pagepool_view_of_(token);
        if (view == NULL)
            return pagepool_buf_put(buf);
        far = (uint32_t)token - (uint32_t)view->base;
    }
    if (PAGEPOOL_LIKELY_((far & 15) == 0 && view->bias == me)) {
        int done = 0;
        __atomic_store_n(&view->busy, 1, __ATOMIC_RELAXED);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        if (PAGEPOOL_LIKELY_(__atomic_load_n(&view->bias, __ATOMIC_RELAXED) == me))
            done = pagepool_put_page_(view, token, far >> 4);
        __atomic_store_n(&view->busy, 0, __ATOMIC_RELEASE);
        if (PAGEPOOL_LIKELY_(done))
            return 0;
    }
    return pagepool_buf_put(buf);
}

#define pagepool_alloc_page(pool) pagepool_alloc_page_(pool)
#define pagepool_buf_put(buf) pagepool_buf_put_(buf)

#endif
