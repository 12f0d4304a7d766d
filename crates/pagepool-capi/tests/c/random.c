/*
 * Two threads make random calls with random handles for a bounded number of steps: right ones, stale ones,
 * ones of another kind or that the other thread has, with bits turned, made up. Nothing may crash; afterwards
 * every buffer comes home, no page is there twice, and the counters balance.
 *
 * Left out is what the header says is the caller's to keep: asking about a buffer of a pool that is being
 * freed, so the pools that come and go keep their live handles to one thread.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "check.h"

#ifdef V
#define STEPS 10000 /* per thread: valgrind takes thirty times as long for each */
#else
#define STEPS 100000 /* per thread */
#endif
#define PLACES 256

struct worker {
    uint64_t state;                  /* of its random numbers */
    uint64_t seen[8 * STEPS];        /* every handle and address that it was given */
    size_t count;
};

static struct pagepool_arena *arena, *small; /* the small one for pools that come and go */
static struct pagepool *pools[2];
static uint64_t bag[PLACES], addrs[PLACES]; /* shared: either thread may take what the other put there */
/* of pools that ended: used as they are, for turned by a bit they may be right */
static uint64_t gone[PLACES];
static struct worker workers[2];

static uint64_t random_number(struct worker *me)
{
    me->state ^= me->state << 13;
    me->state ^= me->state >> 7;
    me->state ^= me->state << 17;
    return me->state;
}

static uint64_t taken_from(struct worker *me, uint64_t *from)
{
    return __atomic_load_n(&from[random_number(me) % PLACES], __ATOMIC_RELAXED);
}

/* Whatever a call gave; what it pushes out of the bag goes home, so that the arena does not run dry. */
static void keep(struct worker *me, uint64_t *in, uint64_t given)
{
    if (given == 0)
        return;
    if (me->count < sizeof(me->seen) / sizeof(*me->seen))
        me->seen[me->count++] = given;
    uint64_t old = __atomic_exchange_n(&in[random_number(me) % PLACES], given, __ATOMIC_RELAXED);
    if (in == bag)
        pagepool_buf_put((struct pagepool_buf *)(uintptr_t)old);
    else if (pagepool_put_addr(pools[0], old) != 0)
        pagepool_put_addr(pools[1], old);
}

static void *any(struct worker *me)
{
    uint64_t handle = taken_from(me, bag), ended = taken_from(me, gone);
    switch (random_number(me) % 16) {
    case 4:
    case 5:
        return (void *)(uintptr_t)ended;
    case 0:
        return (void *)(uintptr_t)random_number(me);
    case 1:
        return (void *)(uintptr_t)(handle ^ 1ull << random_number(me) % 64);
    case 2:
        return (void *)(uintptr_t)(handle + random_number(me) % 64 - 32);
    case 3:
        return (void *)(uintptr_t)(random_number(me) % 100);
    default:
        return (void *)(uintptr_t)handle;
    }
}

static struct pagepool *any_pool(struct worker *me)
{
    return random_number(me) % 8 != 0 ? pools[random_number(me) % 2] : any(me);
}

static uint64_t any_addr(struct worker *me)
{
    return random_number(me) % 8 != 0 ? taken_from(me, addrs) + random_number(me) % 128 : random_number(me);
}

/* A handle that is over. */
static void over(struct worker *me, void *handle)
{
    __atomic_store_n(&gone[random_number(me) % PLACES], (uint64_t)(uintptr_t)handle, __ATOMIC_RELAXED);
}

#define KEEP(given) keep(me, bag, (uint64_t)(uintptr_t)(given))

static void allocate(struct worker *me)
{
    size_t size = random_number(me) % 5000;
    struct pagepool_buf *bufs[8] = {NULL};
    switch (random_number(me) % 4) {
    case 0:
        KEEP(pagepool_alloc_frag(any_pool(me), size));
        break;
    case 1:
        KEEP(pagepool_alloc(any_pool(me), &size));
        break;
    case 2:
        pagepool_alloc_bulk(any_pool(me), bufs, 1 + random_number(me) % 8);
        for (int i = 0; i < 8; i++)
            KEEP(bufs[i]);
        break;
    default:
        KEEP(pagepool_alloc_page(any_pool(me)));
    }
}

static void give_back(struct worker *me)
{
    struct pagepool_buf *bufs[8];
    for (int i = 0; i < 8; i++)
        bufs[i] = any(me);
    switch (random_number(me) % 8) {
    case 0:
        pagepool_buf_put_ring(any(me));
        break;
    case 1:
        pagepool_buf_put_bulk(bufs, random_number(me) % 8);
        break;
    case 2:
        pagepool_buf_put_ring_bulk(bufs, random_number(me) % 8);
        break;
    case 3:
        pagepool_buf_put_sync(any(me), random_number(me) % 9000);
        break;
    case 4:
        pagepool_recycle_direct(any_pool(me), any(me));
        break;
    case 5:
        (pagepool_buf_put)(any(me));
        break;
    default:
        pagepool_buf_put(any(me));
    }
}

static void ref_and_share(struct worker *me)
{
    struct pagepool_page_ref *page_ref = NULL;
    struct pagepool_shared *shared = NULL;
    struct pagepool_buf *buf = NULL, *rest = NULL;
    switch (random_number(me) % 10) {
    case 0:
        pagepool_buf_page_ref(any(me), &page_ref);
        break;
    case 1:
        pagepool_buf_share(any(me), &shared);
        break;
    case 2:
        pagepool_shared_clone(any(me), &shared);
        break;
    case 3:
        pagepool_shared_page_ref(any(me), &page_ref);
        break;
    case 4:
        pagepool_page_ref_data(any(me));
        pagepool_shared_len(any(me));
        break;
    case 5:
        pagepool_shared_put(any(me));
        break;
    case 6:
        pagepool_shared_try_unique(any(me), &buf);
        break;
    case 7:
        pagepool_buf_split(any(me), random_number(me) % 5000, &buf, &rest);
        break;
    default:
        pagepool_page_ref_put(any(me));
    }
    KEEP(page_ref);
    KEEP(shared);
    KEEP(buf);
    KEEP(rest);
}

static void addresses(struct worker *me)
{
    struct pagepool_raw raw;
    uint64_t some[4];
    for (int i = 0; i < 4; i++)
        some[i] = any_addr(me);
    switch (random_number(me) % 4) {
    case 0:
        if (pagepool_buf_into_raw(any(me), &raw) == 0)
            keep(me, addrs, raw.addr);
        break;
    case 1:
        KEEP(pagepool_from_raw(any_pool(me), any_addr(me)));
        break;
    case 2:
        pagepool_put_addr_bulk(any_pool(me), some, random_number(me) % 4);
        break;
    default:
        pagepool_put_addr(any_pool(me), any_addr(me));
    }
}

static void look(struct worker *me)
{
    struct pagepool_buf *buf = any(me);
    pagepool_buf_data(buf);
    pagepool_buf_len(buf);
    pagepool_buf_offset(buf);
    pagepool_buf_dma_addr(buf);
    pagepool_buf_page_index(buf);
    pagepool_buf_packet(buf);
    pagepool_buf_sync_for_cpu(buf, random_number(me) % 9000, random_number(me));
    pagepool_buf_sync_for_device(any(me), random_number(me), random_number(me) % 9000);
    pagepool_buf_set_tag(any_pool(me), any(me), (int)(random_number(me) % 4) - 1);
    pagepool_buf_dma_addr_in(buf, any(me));
}

/* Calls about pools and other things; never one that would end what the test needs to the end. */
static void manage(struct worker *me)
{
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    struct pagepool *no_pool = any(me);
    char text[256];
    pagepool_read_stats(any_pool(me), &stats);
    pagepool_read_buffer_locations(any_pool(me), &places);
    pagepool_inflight(any_pool(me));
    pagepool_update_nid(any_pool(me), (int)(random_number(me) % 3) - 1);
    pagepool_shrink(any_pool(me), random_number(me) % 200);
    pagepool_ask_to_shrink(any_pool(me), random_number(me) % 200);
    pagepool_tag(any_pool(me), "tag");
    if (no_pool != pools[0] && no_pool != pools[1])
        pagepool_destroy(no_pool);
    pagepool_domain_put(any(me));
    pagepool_shutdown_wait(any(me), 0);
    pagepool_shutdown_put_addr(any(me), any_addr(me));
    pagepool_arena_describe(any(me), text, random_number(me) % sizeof(text));
    pagepool_dump(text, random_number(me) % sizeof(text));
}

static void owners_change(struct worker *me)
{
    if (random_number(me) % 4 == 0)
        pagepool_unbind(any_pool(me));
    else
        pagepool_bind(any_pool(me));
}

/* A pool that ends with a page, a fragment and a page reference out; its handles are stale once they are
 * where both threads find them. */
static void a_pool_comes_and_goes(struct worker *me)
{
    struct pagepool *pool = pool_over(small);
    struct pagepool_shutdown *shutdown;
    struct pagepool_page_ref *page_ref;
    CHECK(pagepool_bind(pool) == 0);
    for (int i = 0; i < 100; i++) { /* of a pool whose buffers nobody else returned yet */
        struct pagepool_buf *buf = pagepool_alloc_page(pool);
        pagepool_buf_put(any(me));
        CHECK(pagepool_buf_put(buf) == 0 && pagepool_buf_put(buf) == -ESTALE);
    }
    struct pagepool_buf *page = pagepool_alloc_page(pool), *frag = pagepool_alloc_frag(pool, 100);
    CHECK(page != NULL && frag != NULL && pagepool_buf_page_ref(page, &page_ref) == 0);
    CHECK(pagepool_destroy_watched(pool, &shutdown) == 0 &&
        pagepool_shutdown_wait(shutdown, 0) == -ETIMEDOUT);
    CHECK(pagepool_buf_put(page) == 0 && pagepool_buf_put(frag) == 0 && pagepool_page_ref_put(page_ref) == 0);
    CHECK(pagepool_shutdown_wait(shutdown, 0) == 0 && pagepool_shutdown_put(shutdown) == 0);
    CHECK(pagepool_buf_put(page) == -ESTALE && pagepool_buf_put(frag) == -ESTALE);
    over(me, pool);
    over(me, page);
    over(me, frag);
    over(me, page_ref);
    over(me, shutdown);
}

static void *work(void *which)
{
    struct worker *me = which;
    static void (*const often[])(struct worker *) = {allocate, allocate, give_back, give_back, ref_and_share,
        addresses, look};
    pagepool_bind(pools[me - workers]); /* refused where the other one took it meanwhile */
    for (int step = 0; step < STEPS; step++) {
        often[random_number(me) % (sizeof(often) / sizeof(*often))](me);
        if (step % 64 == 0)
            manage(me);
        if (step % 256 == 0)
            owners_change(me);
        if (step % 1024 == 0)
            a_pool_comes_and_goes(me);
    }
    return NULL;
}

/* What either thread was ever given goes back, in whatever form it is by now. */
static void all_goes_home(void)
{
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < workers[i].count; at++) {
            void *given = (void *)(uintptr_t)workers[i].seen[at];
            pagepool_page_ref_put(given);
            pagepool_shared_put(given);
            pagepool_buf_put(given);
            pagepool_put_addr(pools[0], workers[i].seen[at]);
            pagepool_put_addr(pools[1], workers[i].seen[at]);
        }
}

/* Every page that the arena has can be had, once. */
static void no_page_is_there_twice(struct pagepool *pool)
{
    static struct pagepool_buf *bufs[8192];
    static unsigned char had[8192];
    memset(had, 0, sizeof(had));
    size_t n = pagepool_alloc_bulk(pool, bufs, 8192);
    CHECK(n > 0 && n < 8192);
    for (size_t i = 0; i < n; i++) {
        uint32_t page = pagepool_buf_page_index(bufs[i]);
        CHECK(page < 8192 && !had[page]);
        had[page] = 1;
    }
    CHECK(pagepool_buf_put_bulk(bufs, n) == 0);
}

static void make_pools(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_domain *domain;
    CHECK(pagepool_domain_identity("nic0", &domain) == 0);
    small = arena_of(4 << 20);
    params.arena = arena = arena_of(16 << 20);
    params.domains = &domain;
    params.n_domains = 1;
    params.tagging = 1;
    for (int i = 0; i < 2; i++)
        CHECK(pagepool_create(&params, &pools[i]) == 0);
    for (int i = 0; i < PLACES; i++)
        bag[i] = (uint64_t)(uintptr_t)(i % 3 == 0 ? (void *)arena : i % 3 == 1 ? (void *)domain
            : (void *)pools[i % 2]);
}

static void run_with(uint64_t seed)
{
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    pthread_t threads[2];
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    make_pools();
    for (int i = 0; i < 2; i++) {
        workers[i].state = seed + (uint64_t)i * 0x9e3779b97f4a7c15 + 1;
        workers[i].count = 0;
        CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    all_goes_home();
    for (int i = 0; i < 2; i++) {
        CHECK(pagepool_bind(pools[i]) == 0);
        no_page_is_there_twice(pools[i]);
        CHECK(pagepool_read_buffer_locations(pools[i], &places) == 0 && places.out == 0);
        CHECK(pagepool_read_stats(pools[i], &stats) == 0);
        CHECK((int64_t)(stats.hold - stats.release) == pagepool_inflight(pools[i]));
        CHECK(pagepool_destroy(pools[i]) == 0);
        CHECK(pagepool_destroy(pools[i]) == -ESTALE);
    }
    CHECK(pagepool_arena_pages_out(arena) == 0 && pagepool_arena_put(arena) == 0);
    CHECK(pagepool_arena_pages_out(small) == 0 && pagepool_arena_put(small) == 0);
}

/* With an argument: that seed alone, to see again what it found. PAGEPOOL_RANDOM_SEEDS=1 chooses one more. */
int main(int argc, char **argv)
{
    const char *random_seeds = getenv("PAGEPOOL_RANDOM_SEEDS");
    if (argc > 1) {
        run_with(strtoull(argv[1], NULL, 0));
        return 0;
    }
    run_with(1);
    run_with(random_seeds != NULL && strcmp(random_seeds, "1") == 0 ? (uint64_t)time(NULL) : 2);
    puts("ok");
    return 0;
}
