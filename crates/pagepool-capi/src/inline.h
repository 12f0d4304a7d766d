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

struct pagepool_view_ {
    uint64_t token, owner, bias, busy;
    uint64_t base, span;
    uint64_t *words;
    size_t *count;
    uint32_t *pages;
    size_t limit;
    uint64_t *alloc_fast, *recycle_cached;
    uint64_t rest[20];
};

struct pagepool_row_ {
    struct pagepool_view_ *view;
    uint64_t rest[3];
};

struct pagepool_hint_ {
    struct pagepool_view_ *view;
    uint64_t rest[7];
};

PAGEPOOL_UNUSED_ static const struct pagepool_inline_ *pagepool_tables_;

__attribute__((constructor)) PAGEPOOL_UNUSED_ static void pagepool_start_(void)
{
    pagepool_tables_ = pagepool_inline_tables(1);
}

#define PAGEPOOL_FAST_ __attribute__((unused, always_inline)) static inline
#define PAGEPOOL_GET_(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define PAGEPOOL_SET_(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

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
    if (__builtin_expect(tables != NULL, 1)) {
        struct pagepool_view_ *view = (struct pagepool_view_ *)tables->views + ((uint32_t)token >> 4) % 4096;
        if (__builtin_expect(PAGEPOOL_GET_(view->owner) == pagepool_me_() && PAGEPOOL_GET_(view->token) == token, 1)) {
            size_t at = PAGEPOOL_GET_(*view->count);
            if (__builtin_expect(at != 0, 1)) {
                uint32_t page = view->pages[at - 1];
                uint32_t life = (uint32_t)PAGEPOOL_GET_(view->words[page]);
                if (__builtin_expect(life != 0, 1)) {
                    PAGEPOOL_SET_(view->words[page], (uint64_t)(life + 1));
                    PAGEPOOL_SET_(*view->count, at - 1);
                    PAGEPOOL_SET_(*view->alloc_fast, *view->alloc_fast + 1);
                    token = (uint64_t)(life + 1) << 32 | (view->base + ((uint64_t)page << 4));
                    return (struct pagepool_buf *)(uintptr_t)token;
                }
            }
        }
    }
    return pagepool_alloc_page(pool);
}

PAGEPOOL_FAST_ int pagepool_buf_put_(struct pagepool_buf *buf)
{
    const struct pagepool_inline_ *tables = pagepool_tables_;
    uint64_t token = (uint64_t)(uintptr_t)buf;
    if (__builtin_expect(tables != NULL, 1)) {
        uint64_t me = pagepool_me_();
        struct pagepool_view_ *view = ((struct pagepool_hint_ *)tables->hints)[(me >> 12) % 256].view;
        uint32_t far = (uint32_t)token - (uint32_t)view->base;
        if (__builtin_expect(far >= view->span, 0)) {
            view = ((struct pagepool_row_ *)tables->directory)[(uint32_t)token >> 16].view;
            if (view == NULL)
                return pagepool_buf_put(buf);
            far = (uint32_t)token - (uint32_t)view->base;
        }
        if (__builtin_expect(PAGEPOOL_GET_(view->bias) == me && far < view->span && (far & 15) == 0, 1)) {
            uint32_t life = (uint32_t)(token >> 32);
            int done = 0;
            PAGEPOOL_SET_(view->busy, 1);
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
            if (__builtin_expect(PAGEPOOL_GET_(view->bias) == me, 1)) {
                size_t at = PAGEPOOL_GET_(*view->count);
                if (__builtin_expect(at < view->limit, 1)) {
                    uint32_t page = far >> 4;
                    uint32_t other = view->pages[at];
                    uint32_t same = other;
                    __asm__("" : "+r"(same)); /* equal, and the compiler does not know it: see View::put */
                    if (other == page) {
                        __asm__ __volatile__("" : "+r"(same));
                        page = same;
                    }
                    if (__builtin_expect(PAGEPOOL_GET_(view->words[page]) == life && (life & 1) == 1 && life != UINT32_MAX, 1)) {
                        PAGEPOOL_SET_(view->words[page], (uint64_t)(life + 1));
                        if (same != page)
                            view->pages[at] = page;
                        PAGEPOOL_SET_(*view->count, at + 1);
                        PAGEPOOL_SET_(*view->recycle_cached, *view->recycle_cached + 1);
                        done = 1;
                    }
                }
            }
            __atomic_store_n(&view->busy, 0, __ATOMIC_RELEASE);
            if (__builtin_expect(done, 1))
                return 0;
        }
    }
    return pagepool_buf_put(buf);
}

#define pagepool_alloc_page(pool) pagepool_alloc_page_(pool)
#define pagepool_buf_put(buf) pagepool_buf_put_(buf)

#endif
