/* Packets for stacks: chains of pool memory and lent memory, clones on other threads, and every buffer home,
 * once. */
#include <pthread.h>
#include <string.h>

#include <pagepool_skb.h>

#include "check.h"

enum { PACKETS = 64, LENT = 3000 };

/* Fragments have a pool of their own: those that end on other threads are counted when the owner looks. */
static struct pagepool *pool, *frags;
static struct pagepool_skb_cache *cache;

/* Memory that C lends, and counts when it comes back. */
static int lent_home;

static void take_back(void *arg, void *start, size_t len)
{
    CHECK(arg == start && len == LENT);
    __atomic_add_fetch(&lent_home, 1, __ATOMIC_RELAXED);
    free(start);
}

static uint8_t *lend(uint8_t fill)
{
    uint8_t *memory = malloc(LENT);
    CHECK(memory != NULL);
    memset(memory, fill, LENT);
    return memory;
}

static struct pagepool_buf *filled(uint8_t fill)
{
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    CHECK(buf != NULL);
    memset(pagepool_buf_data(buf), fill, 4096);
    return buf;
}

static int64_t out(void)
{
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    CHECK(pagepool_read_buffer_locations(pool, &places) == 0);
    return (int64_t)places.out;
}

/* A head of 60 bytes behind 64 of headroom, 1500 bytes of a page, 500 of a fragment, 3000 of C's. */
static struct pagepool_skb *chain(void)
{
    struct pagepool_skb *skb;
    uint8_t *lent = lend(4);
    CHECK(pagepool_skb_from_buf(cache, filled(1), 64, 60, &skb) == 0);
    CHECK(pagepool_skb_add_buf(skb, filled(2), 100, 1500) == 0);
    struct pagepool_buf *frag = pagepool_alloc_frag(frags, 500);
    memset(pagepool_buf_data(frag), 3, 500);
    CHECK(pagepool_skb_add_buf(skb, frag, 0, 500) == 0);
    CHECK(pagepool_skb_add_memory(skb, lent, LENT, take_back, lent) == 0);
    return skb;
}

static void contents(struct pagepool_skb *skb)
{
    const size_t lens[] = {60, 1500, 500, LENT};
    struct iovec iov[18];
    CHECK(pagepool_skb_len(skb) == 5060 && pagepool_skb_nr_frags(skb) == 3);
    CHECK(pagepool_skb_iovec(skb, iov, 18) == 4 && pagepool_skb_iovec(skb, NULL, 0) == 4);
    for (int i = 0; i < 4; i++) {
        CHECK(iov[i].iov_len == lens[i]);
        for (size_t at = 0; at < lens[i]; at++)
            CHECK(((uint8_t *)iov[i].iov_base)[at] == i + 1);
    }
    uint8_t across[4];
    CHECK(pagepool_skb_copy_bits(skb, 1558, across, 4) == 0 && !memcmp(across, "\2\2\3\3", 4));
    CHECK(pagepool_skb_copy_bits(skb, 5059, across, 2) == -EINVAL &&
        pagepool_skb_copy_bits(skb, 5060, NULL, 0) == 0);
}

static void ends_move(void)
{
    struct pagepool_skb *skb = chain();
    void *at;
    contents(skb);
    CHECK(pagepool_skb_headroom(skb) == 64 && pagepool_skb_tailroom(skb) == 0 &&
        pagepool_skb_head_len(skb) == 60);
    CHECK(pagepool_skb_truesize(skb) > 4096 * 2 + 512 + LENT);
    CHECK(pagepool_skb_push(skb, 14, &at) == 0 && at == pagepool_skb_data(skb) &&
        pagepool_skb_len(skb) == 5074);
    CHECK(pagepool_skb_push(skb, 51, &at) == -ENOSPC && pagepool_skb_append(skb, 1, &at) == -ENOSPC);
    CHECK(pagepool_skb_pull(skb, 14) == 0 && pagepool_skb_pull(skb, 5061) == -EINVAL);
    contents(skb);
    CHECK(pagepool_skb_make_linear(skb, 100) == 0 && pagepool_skb_head_len(skb) == 100);
    CHECK(((uint8_t *)pagepool_skb_data(skb))[99] == 2);
    CHECK(pagepool_skb_pull(skb, 2070) == 0 && pagepool_skb_nr_frags(skb) == 1 && lent_home == 0 &&
        out() == 1);
    CHECK(pagepool_skb_trim(skb, 0) == 0 && lent_home == 1 && pagepool_skb_len(skb) == 0);
    CHECK(pagepool_skb_append(skb, 10, &at) == 0 && pagepool_skb_len(skb) == 10);
    CHECK(pagepool_skb_put(skb) == 0 && pagepool_skb_put(skb) == -ESTALE && out() == 0);
    lent_home = 0;
}

static void *read_and_free(void *skbs)
{
    for (int i = 0; i < PACKETS; i++) {
        struct pagepool_skb *skb = ((struct pagepool_skb **)skbs)[i];
        contents(skb);
        CHECK(pagepool_skb_put(skb) == 0);
    }
    return NULL;
}

static void clones_share(void)
{
    struct pagepool_skb *skbs[PACKETS], *clones[2][PACKETS];
    pthread_t threads[2];
    for (int i = 0; i < PACKETS; i++) {
        skbs[i] = chain();
        CHECK(pagepool_skb_is_cloned(skbs[i]) == 0);
        for (int c = 0; c < 2; c++)
            CHECK(pagepool_skb_clone(skbs[i], &clones[c][i]) == 0);
        CHECK(pagepool_skb_is_cloned(skbs[i]) == 1);
    }
    for (int c = 0; c < 2; c++)
        CHECK(pthread_create(&threads[c], NULL, read_and_free, clones[c]) == 0);
    read_and_free(skbs);
    for (int c = 0; c < 2; c++)
        CHECK(pthread_join(threads[c], NULL) == 0);
    CHECK(lent_home == PACKETS && out() == 0);
    lent_home = 0;
}

/* Two threads free the same packets at the same time: each packet is freed once. */
struct race {
    struct pagepool_skb *skbs[PACKETS];
    int freed[2];
    pthread_barrier_t start;
};

static void race_to_free(struct race *race, int who)
{
    pthread_barrier_wait(&race->start);
    for (int i = 0; i < PACKETS; i++) {
        int done = pagepool_skb_put(race->skbs[i]);
        CHECK(done == 0 || done == -ESTALE || done == -EBUSY);
        race->freed[who] += done == 0;
    }
}

static void *race_elsewhere(void *race)
{
    race_to_free(race, 1);
    return NULL;
}

static void freed_once(void)
{
    for (int round = 0; round < 20; round++) {
        struct race race = {.freed = {0, 0}};
        pthread_t thread;
        for (int i = 0; i < PACKETS; i++)
            race.skbs[i] = chain();
        CHECK(pthread_barrier_init(&race.start, NULL, 2) == 0);
        CHECK(pthread_create(&thread, NULL, race_elsewhere, &race) == 0);
        race_to_free(&race, 0);
        CHECK(pthread_join(thread, NULL) == 0 && pthread_barrier_destroy(&race.start) == 0);
        CHECK(race.freed[0] + race.freed[1] == PACKETS && lent_home == PACKETS && out() == 0);
        lent_home = 0;
    }
}

static void clones_are_not_written(void)
{
    struct pagepool_skb *skb = chain(), *clone;
    struct pagepool_buf *buf = filled(9);
    uint8_t *lent = lend(1);
    void *at;
    CHECK(pagepool_skb_clone(skb, &clone) == 0);
    CHECK(pagepool_skb_push(clone, 4, &at) == -EBUSY && strstr(pagepool_last_error(), "unclone"));
    CHECK(pagepool_skb_add_buf(clone, buf, 0, 10) == -EBUSY && pagepool_buf_len(buf) == 4096);
    CHECK(pagepool_skb_add_memory(clone, lent, LENT, take_back, lent) == -EBUSY && lent_home == 0);
    CHECK(pagepool_skb_cow_head(clone, 128) == 0 && pagepool_skb_push(clone, 4, &at) == 0);
    memset(at, 8, 4);
    contents(skb);
    CHECK(pagepool_skb_pull(clone, 4) == 0);
    contents(clone);
    CHECK(pagepool_skb_put(skb) == 0 && lent_home == 0 && pagepool_skb_unclone(clone) == 0);
    contents(clone);
    CHECK(pagepool_skb_add_memory(clone, lent, LENT, take_back, lent) == 0);
    CHECK(pagepool_skb_put(clone) == 0 && lent_home == 2 && pagepool_buf_put(buf) == 0 && out() == 0);
    lent_home = 0;
}

static void what_is_refused_stays(void)
{
    struct pagepool_buf *buf = filled(1), *more;
    struct pagepool_shared *shared;
    struct pagepool_skb *skb, *other, *many[200];
    struct pagepool_skb_cache *small;
    int local, made = 0;
    CHECK(pagepool_skb_from_buf(cache, buf, 4000, 97, &skb) == -EINVAL &&
        strstr(pagepool_last_error(), "97 bytes at 4000"));
    CHECK(pagepool_skb_from_buf((struct pagepool_skb_cache *)&local, buf, 0, 60, &skb) == -EINVAL);
    CHECK(pagepool_skb_from_buf(cache, buf, 0, 60, NULL) == -EINVAL && pagepool_buf_len(buf) == 4096);
    CHECK(pagepool_skb_alloc(cache, 128, 0, &skb) == 0 && pagepool_skb_headroom(skb) >= 128);
    CHECK(pagepool_skb_add_buf(skb, buf, 4096, 1) == -EINVAL &&
        pagepool_skb_add_buf(skb, buf, 0, 0) == -EINVAL);
    CHECK(pagepool_skb_add_memory(skb, NULL, 1, NULL, NULL) == -EINVAL && pagepool_skb_len(skb) == 0);
    CHECK(pagepool_buf_share(buf, &shared) == 0);
    for (int i = 0; i < 17; i++)
        CHECK(pagepool_skb_add_shared(skb, shared, (size_t)i, 1) == 0);
    CHECK(pagepool_skb_add_shared(skb, shared, 0, 1) == -ENOSPC &&
        strstr(pagepool_last_error(), "17 fragments"));
    CHECK((more = filled(1)) != NULL && pagepool_skb_add_buf(skb, more, 0, 1) == -ENOSPC &&
        pagepool_buf_put(more) == 0);
    CHECK(pagepool_shared_put(shared) == 0 && out() == 1 && pagepool_skb_put(skb) == 0 && out() == 0);

    CHECK(pagepool_skb_len(skb) == 0 && pagepool_skb_data(skb) == NULL &&
        pagepool_skb_is_cloned(skb) == -ESTALE);
    CHECK(pagepool_skb_clone(skb, &other) == -ESTALE && pagepool_skb_iovec(skb, NULL, 0) == -ESTALE);
    /* in the place that the last one had */
    CHECK(pagepool_skb_alloc(cache, 0, 100, &other) == 0 && other != skb);
    CHECK(pagepool_skb_len(skb) == 0 && pagepool_skb_put(skb) == -ESTALE && pagepool_skb_put(other) == 0);
    CHECK(pagepool_skb_put(NULL) == -EINVAL && pagepool_skb_put((struct pagepool_skb *)&local) == -EINVAL);
    CHECK(pagepool_skb_put((struct pagepool_skb *)cache) == -EINVAL &&
        pagepool_skb_put((void *)UINTPTR_MAX) == -EINVAL);

    CHECK(pagepool_skb_cache_create(0, &small) == -EINVAL && pagepool_skb_cache_create(100, &small) == 0);
    while (made < 200 && pagepool_skb_alloc(small, 0, 100, &many[made]) == 0)
        made++;
    CHECK(made == 100 && strstr(pagepool_last_error(), "no free block"));
    buf = filled(1);
    CHECK(pagepool_skb_from_buf(small, buf, 0, 60, &skb) == -ENOBUFS && pagepool_buf_put(buf) == 0);
    CHECK(pagepool_skb_cache_put(small) == 0 && pagepool_skb_cache_put(small) == -ESTALE);
    while (made > 0)
        CHECK(pagepool_skb_put(many[--made]) == 0);
}

/* The packet outlives the pool's handle; a callback frees another packet, and is told that its own is busy.
 * */
static struct pagepool_skb *own, *another;

static void frees_another(void *arg, void *start, size_t len)
{
    CHECK(arg == NULL && start == (void *)&another && len == sizeof(another));
    CHECK(pagepool_skb_len(own) == 0 && pagepool_skb_put(own) == -EBUSY && pagepool_skb_put(another) == 0);
}

static void callbacks_call_back(void)
{
    struct pagepool_domain *domain;
    another = chain();
    CHECK(pagepool_skb_alloc(cache, 0, 100, &own) == 0);
    CHECK(pagepool_skb_add_memory(own, &another, sizeof(another), frees_another, NULL) == 0);
    CHECK(pagepool_skb_trim(own, 0) == 0 && lent_home == 1 && pagepool_skb_put(own) == 0);
    CHECK(pagepool_domain_identity(NULL, &domain) == 0);
    CHECK(pagepool_skb_dma_addr(own, 0, domain) == UINT64_MAX && pagepool_domain_put(domain) == 0);
}

static void addresses(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_domain *domain;
    struct pagepool_skb *skb;
    CHECK(pagepool_domain_identity("cpu", &domain) == 0);
    struct pagepool_arena *arena = params.arena = arena_of(1 << 20);
    struct pagepool *mapped;
    params.domains = &domain;
    params.n_domains = 1;
    CHECK(pagepool_create(&params, &mapped) == 0 && pagepool_bind(mapped) == 0);
    CHECK(pagepool_skb_from_buf(cache, pagepool_alloc_page(mapped), 256, 60, &skb) == 0);
    CHECK(pagepool_skb_add_buf(skb, pagepool_alloc_page(mapped), 8, 100) == 0);
    struct iovec iov[2];
    CHECK(pagepool_skb_iovec(skb, iov, 2) == 2);
    for (size_t i = 0; i < 2; i++)
        CHECK(pagepool_skb_dma_addr(skb, i, domain) == (uint64_t)(uintptr_t)iov[i].iov_base);
    CHECK(pagepool_skb_dma_addr(skb, 2, domain) == UINT64_MAX && pagepool_domain_put(domain) == 0);
    CHECK(pagepool_destroy(mapped) == 0 && pagepool_arena_pages_out(arena) == 2);
    CHECK(pagepool_skb_put(skb) == 0 && pagepool_arena_pages_out(arena) == 0 &&
        pagepool_arena_put(arena) == 0);
}

int main(void)
{
    struct pagepool_arena *arena = arena_of(16 << 20);
    pool = pool_over(arena);
    frags = pool_over(arena);
    CHECK(pagepool_bind(pool) == 0 && pagepool_bind(frags) == 0 &&
        pagepool_skb_cache_create(1024, &cache) == 0);
    ends_move();
    clones_share();
    freed_once();
    clones_are_not_written();
    what_is_refused_stays();
    callbacks_call_back();
    addresses();
    CHECK(pagepool_skb_cache_put(cache) == 0 && pagepool_destroy(pool) == 0);
    CHECK(pagepool_destroy(frags) == 0 && pagepool_arena_pages_out(arena) == 0 &&
        pagepool_arena_put(arena) == 0);
    return 0;
}
