/* Every misuse that can be refused is, with the errno that the header says, and nothing is damaged. */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "check.h"

static struct pagepool *the_pool;
static struct pagepool_buf *the_buf;

static uint64_t bits(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

#define TOKEN(type, number) ((struct type *)(uintptr_t)(number))
#define REFUSED(call) refused((call), #call, __LINE__)

/* -EINVAL or -ESTALE, and a sentence. */
static void refused(int64_t got, const char *call, int line)
{
    if ((got != -EINVAL && got != -ESTALE) || pagepool_last_error()[0] == '\0') {
        fprintf(stderr, "misuse.c:%d: %s gave %lld\n", line, call, (long long)got);
        exit(1);
    }
}

static struct pagepool_batch *the_batch;

static void no_buffer(struct pagepool_buf *buf)
{
    struct pagepool_page_ref *page_ref;
    struct pagepool_shared *shared;
    struct pagepool_raw raw;
    struct pagepool_buf *parts[2];
    REFUSED(pagepool_buf_put(buf));
    REFUSED((pagepool_buf_put)(buf));
    REFUSED(pagepool_buf_put_ring(buf));
    REFUSED(pagepool_buf_put_sync(buf, 64));
    REFUSED(pagepool_buf_put_bulk(&buf, 1));
    REFUSED(pagepool_buf_put_ring_bulk(&buf, 1));
    REFUSED(pagepool_batch_push(the_batch, buf));
    REFUSED(pagepool_recycle_direct(the_pool, buf));
    REFUSED(pagepool_buf_page_ref(buf, &page_ref));
    REFUSED(pagepool_buf_share(buf, &shared));
    REFUSED(pagepool_buf_into_raw(buf, &raw));
    REFUSED(pagepool_buf_split(buf, 64, &parts[0], &parts[1]));
    REFUSED(pagepool_buf_is_frag(buf));
    REFUSED(pagepool_buf_sync_for_cpu(buf, 0, 64));
    REFUSED(pagepool_buf_sync_for_device(buf, 0, 64));
    CHECK(pagepool_buf_data(buf) == NULL && pagepool_buf_packet(buf) == NULL);
    CHECK(pagepool_buf_len(buf) == 0 && pagepool_buf_packet_capacity(buf) == 0 &&
        pagepool_buf_offset(buf) == SIZE_MAX);
    CHECK(pagepool_buf_dma_addr(buf) == UINT64_MAX && pagepool_buf_page_index(buf) == UINT32_MAX);
}

static void no_pool(struct pagepool *pool)
{
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    struct pagepool_shutdown *shutdown;
    struct pagepool_buf *bufs[4];
    void *data[4] = {NULL};
    size_t size = 100;
    REFUSED(pagepool_bind(pool));
    REFUSED(pagepool_unbind(pool));
    REFUSED(pagepool_destroy(pool));
    REFUSED(pagepool_destroy_watched(pool, &shutdown));
    REFUSED(pagepool_update_nid(pool, 0));
    REFUSED(pagepool_nid_changed(pool, 0));
    REFUSED(pagepool_read_stats(pool, &stats));
    REFUSED(pagepool_read_buffer_locations(pool, &places));
    REFUSED(pagepool_inflight(pool));
    REFUSED(pagepool_wake_fd(pool));
    REFUSED(pagepool_acknowledge_wake(pool));
    REFUSED(pagepool_low_water_mark(pool));
    REFUSED(pagepool_shrink(pool, 0));
    REFUSED(pagepool_ask_to_shrink(pool, 0));
    REFUSED(pagepool_put_addr(pool, 4096));
    REFUSED(pagepool_tag(pool, "tag"));
    REFUSED(pagepool_set_tag(pool, -1));
    CHECK(pagepool_base(pool, NULL) == NULL);
    CHECK(pagepool_alloc_page(pool) == NULL && (pagepool_alloc_page)(pool) == NULL);
    CHECK(pagepool_alloc_frag(pool, 100) == NULL && pagepool_alloc(pool, &size) == NULL);
    CHECK(pagepool_alloc_bulk(pool, bufs, 4) == 0 && pagepool_from_raw(pool, 4096) == NULL);
    CHECK(pagepool_alloc_bulk_data(pool, bufs, data, 4) == 0 && data[0] == NULL);
    CHECK(pagepool_batch_alloc(the_batch, pool, 4) == 0);
    REFUSED(-pagepool_last_errno());
}

static void no_batch(struct pagepool_batch *batch)
{
    void *packets[4];
    REFUSED(pagepool_batch_put(batch));
    REFUSED(pagepool_batch_destroy(batch));
    REFUSED(pagepool_batch_push(batch, the_buf));
    CHECK(pagepool_batch_alloc(batch, the_pool, 4) == 0 && pagepool_batch_len(batch) == 0);
    CHECK(pagepool_batch_pop(batch) == NULL && pagepool_batch_packets(batch, packets, 4) == 0);
    REFUSED(-pagepool_last_errno());
}

/* NULL, and numbers that are near a handle or nowhere near one. */
static void made_up(struct pagepool *pool, struct pagepool_buf *buf, struct pagepool_arena *arena)
{
    const uint64_t numbers[] = {0, 1, 2, 15, 16, 17, 4096, 0xdeadbeef, UINT64_MAX, UINT64_MAX - 14,
        1ull << 63, bits(&pool)};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        no_buffer(TOKEN(pagepool_buf, numbers[i]));
        no_pool(TOKEN(pagepool, numbers[i]));
        no_batch(TOKEN(pagepool_batch, numbers[i]));
        REFUSED(pagepool_arena_put(TOKEN(pagepool_arena, numbers[i])));
        REFUSED(pagepool_page_ref_put(TOKEN(pagepool_page_ref, numbers[i])));
        REFUSED(pagepool_shared_put(TOKEN(pagepool_shared, numbers[i])));
        REFUSED(pagepool_shared_try_unique(TOKEN(pagepool_shared, numbers[i]), &buf));
        REFUSED(pagepool_domain_put(TOKEN(pagepool_domain, numbers[i])));
        REFUSED(pagepool_shutdown_put(TOKEN(pagepool_shutdown, numbers[i])));
        REFUSED(pagepool_shutdown_put_addr(TOKEN(pagepool_shutdown, numbers[i]), 4096));
    }
    for (uint64_t add = 1; add <= 64; add++) {
        no_buffer(TOKEN(pagepool_buf, bits(buf) + add));
        no_pool(TOKEN(pagepool, bits(pool) + add));
        no_batch(TOKEN(pagepool_batch, bits(the_batch) + add));
    }
    for (int bit = 0; bit < 64; bit++) {
        REFUSED(pagepool_buf_put(TOKEN(pagepool_buf, bits(buf) ^ 1ull << bit)));
        REFUSED((pagepool_buf_put)(TOKEN(pagepool_buf, bits(buf) ^ 1ull << bit)));
        CHECK(pagepool_buf_data(TOKEN(pagepool_buf, bits(buf) ^ 1ull << bit)) == NULL);
        REFUSED(pagepool_unbind(TOKEN(pagepool, bits(pool) ^ 1ull << bit)));
        no_batch(TOKEN(pagepool_batch, bits(the_batch) ^ 1ull << bit));
    }
    /* Places that no page ever had, in lives that never were. */
    for (uint64_t place = 0; place < 1 << 16; place += 7)
        REFUSED(pagepool_buf_put(TOKEN(pagepool_buf, place << 4 | 1)));
    no_buffer(TOKEN(pagepool_buf, bits(pool))); /* handles of another kind */
    no_buffer(TOKEN(pagepool_buf, bits(arena)));
    no_pool(TOKEN(pagepool, bits(buf)));
    no_pool(TOKEN(pagepool, bits(arena)));
    no_batch(TOKEN(pagepool_batch, bits(pool)));
    no_buffer(TOKEN(pagepool_buf, bits(the_batch)));
}

static void *of_another_thread(void *unused)
{
    struct pagepool_buf *bufs[4];
    void *data[4] = {NULL};
    size_t size = 100;
    (void)unused;
    CHECK(pagepool_bind(the_pool) == -EPERM && pagepool_unbind(the_pool) == -EPERM);
    CHECK(pagepool_destroy(the_pool) == -EPERM);
    CHECK(pagepool_update_nid(the_pool, 0) == -EPERM && pagepool_wake_fd(the_pool) == -EPERM);
    CHECK(pagepool_recycle_direct(the_pool, the_buf) == -EPERM && pagepool_shrink(the_pool, 0) == -EPERM);
    CHECK(pagepool_alloc_page(the_pool) == NULL && strstr(pagepool_last_error(), "not bound to this thread"));
    CHECK(pagepool_alloc_frag(the_pool, 100) == NULL && pagepool_alloc(the_pool, &size) == NULL &&
        size == 100);
    CHECK(pagepool_alloc_bulk(the_pool, bufs, 4) == 0);
    CHECK(pagepool_alloc_bulk_data(the_pool, bufs, data, 4) == 0 && pagepool_last_errno() == EPERM);
    return NULL;
}

static void sizes(struct pagepool_arena *arena)
{
    const size_t bad[] = {0, 4097, 1 << 20, SIZE_MAX, SIZE_MAX - 7, (size_t)1 << 63};
    struct pagepool_arena_params arena_params = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_arena *no_arena = NULL;
    struct pagepool *none = NULL;
    struct pagepool_buf *none_of = NULL;
    void *data[4] = {NULL};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        size_t size = bad[i];
        CHECK(pagepool_alloc_frag(the_pool, size) == NULL && strstr(pagepool_last_error(), "size is"));
        CHECK(pagepool_alloc(the_pool, &size) == NULL && size == bad[i]);
    }
    CHECK(pagepool_alloc(the_pool, NULL) == NULL);
    CHECK(pagepool_alloc_bulk(the_pool, NULL, 4) == 0);
    CHECK(pagepool_alloc_bulk_data(the_pool, NULL, data, 4) == 0 && pagepool_last_errno() == EINVAL);
    CHECK(pagepool_alloc_bulk_data(the_pool, &none_of, NULL, 1) == 0 && pagepool_last_errno() == EINVAL);
    CHECK(none_of == NULL);
    REFUSED(pagepool_buf_put_bulk(NULL, 4));
    REFUSED(pagepool_buf_put_bulk(&the_buf, SIZE_MAX));
    CHECK(pagepool_buf_put_bulk(NULL, 0) == 0);
    REFUSED(pagepool_read_stats(the_pool, NULL));
    REFUSED(pagepool_create(NULL, &none));
    REFUSED(pagepool_create(&params, &none)); /* no arena */
    REFUSED(pagepool_create(&params, NULL));
    params.arena = arena;
    params.size = 4 * sizeof(params) + 1;
    REFUSED(pagepool_create(&params, &none));
    params.size = 3;
    REFUSED(pagepool_create(&params, &none));
#define BAD(field, value)                                             \
    do {                                                              \
        struct pagepool_params bad_params = PAGEPOOL_PARAMS_INIT;     \
        bad_params.arena = arena;                                     \
        bad_params.field = (value);                                   \
        REFUSED(pagepool_create(&bad_params, &none));                 \
        CHECK(strstr(pagepool_last_error(), #field) && none == NULL); \
    } while (0)
    BAD(order, 11);
    BAD(order, UINT32_MAX);
    BAD(cache_size, 1025);
    BAD(refill, 300);
    BAD(nid, PAGEPOOL_NODE(250)); /* which the arena does not have */
    BAD(nid, 1);
    CHECK(strstr(pagepool_last_error(), "nid is 1, but must be PAGEPOOL_NODE(1)"));
    BAD(nid, PAGEPOOL_NODE(256));
    BAD(nid, 100000);
    BAD(nid, -77);
    BAD(nid, PAGEPOOL_NODE_LOCAL); /* which is for arenas */
    BAD(colour, 2);
    BAD(frag_align, 3);
    BAD(max_lanes, 65);
    BAD(lane_size, 3);
    BAD(headroom, 4096);
    BAD(max_len, UINT32_MAX);
    BAD(n_domains, SIZE_MAX / 2);
    REFUSED(pagepool_arena_create(NULL, &no_arena));
    REFUSED(pagepool_arena_create(&arena_params, NULL));
    arena_params.max_bytes = 4095;
    REFUSED(pagepool_arena_create(&arena_params, &no_arena));
    arena_params.max_bytes = UINT64_MAX;
    REFUSED(pagepool_arena_create(&arena_params, &no_arena));
    arena_params.max_bytes = UINT64_MAX & ~4095ull;
    REFUSED(pagepool_arena_create(&arena_params, &no_arena));
    arena_params.max_bytes = 1 << 20;
    arena_params.node = 1;
    REFUSED(pagepool_arena_create(&arena_params, &no_arena));
    CHECK(strstr(pagepool_last_error(), "node is 1, but must be PAGEPOOL_NODE(1)"));
    arena_params.node = 0;
    arena_params.backing = 99;
    REFUSED(pagepool_arena_create(&arena_params, &no_arena));
    arena_params.backing = PAGEPOOL_BACKING_CALLER; /* and no memory */
    REFUSED(pagepool_arena_create(&arena_params, &no_arena));
    CHECK(no_arena == NULL);
}

/* Each is refused with the argument's name, and `*pool` is as it was. */
static void opened_wrongly(void)
{
    const uint64_t bad_bytes[] = {0, 1, 4095, 4097, UINT64_MAX, UINT64_MAX & ~4095ull, 1ull << 63};
    const uint32_t bad_kinds[] = {PAGEPOOL_BACKING_MEMFD, PAGEPOOL_BACKING_MEMFD_HUGE,
        PAGEPOOL_BACKING_CALLER, PAGEPOOL_BACKING_DEVICE, 9, 255, 512, UINT32_MAX,
        PAGEPOOL_BACKING_ANONYMOUS_4K | PAGEPOOL_HUGE_OR_FAIL,
        PAGEPOOL_BACKING_MEMFD | PAGEPOOL_HUGE_OR_FAIL};
    struct pagepool *none = NULL;
    REFUSED(pagepool_open(1 << 20, 0, NULL));
    for (size_t i = 0; i < sizeof(bad_bytes) / sizeof(*bad_bytes); i++) {
        REFUSED(pagepool_open(bad_bytes[i], 0, &none));
        CHECK(strncmp(pagepool_last_error(), "bytes is", 8) == 0 && none == NULL);
    }
    REFUSED(pagepool_open(3 << 20, PAGEPOOL_BACKING_HUGE_2M, &none)); /* no whole huge pages */
    CHECK(strstr(pagepool_last_error(), "a multiple of 2 MiB") && none == NULL);
    for (size_t i = 0; i < sizeof(bad_kinds) / sizeof(*bad_kinds); i++) {
        REFUSED(pagepool_open(1 << 20, bad_kinds[i], &none));
        CHECK(strncmp(pagepool_last_error(), "kind is", 7) == 0 && none == NULL);
    }
}

static void twice(struct pagepool *pool)
{
    struct pagepool_buf *page = pagepool_alloc_page(pool), *frag = pagepool_alloc_frag(pool, 100);
    struct pagepool_buf *both[2];
    struct pagepool_page_ref *page_ref;
    struct pagepool_shared *shared, *clone;
    CHECK(pagepool_buf_put(page) == 0 && pagepool_buf_put(page) == -ESTALE);
    no_buffer(page);
    struct pagepool_buf *again = pagepool_alloc_page(pool); /* the same page, in another life */
    CHECK(again != page && pagepool_buf_put(page) == -ESTALE);
    CHECK(pagepool_buf_page_ref(again, &page_ref) == 0 && pagepool_page_ref_put(page_ref) == 0 &&
        pagepool_page_ref_put(page_ref) == -ESTALE);
    CHECK(pagepool_buf_share(again, &shared) == 0 && pagepool_shared_clone(shared, &clone) == 0);
    no_buffer(again);
    CHECK(pagepool_shared_put(shared) == 0 && pagepool_shared_put(shared) == -ESTALE &&
        pagepool_shared_put(clone) == 0);
    CHECK(pagepool_shared_data(clone) == NULL && pagepool_shared_len(clone) == 0);
    CHECK(pagepool_buf_put(frag) == 0 && pagepool_buf_put(frag) == -ESTALE);
    both[0] = both[1] = pagepool_alloc_page(pool);
    CHECK(pagepool_buf_put_bulk(both, 2) == -ESTALE);
    both[0] = both[1] = pagepool_alloc_page(pool);
    CHECK(pagepool_buf_put_ring_bulk(both, 2) == -ESTALE);
    both[0] = pagepool_alloc_page(pool);
    CHECK(pagepool_buf_put_ring(both[0]) == 0 && pagepool_buf_put_ring(both[0]) == -ESTALE);
}

/* Addresses that are out. */
static uint64_t in_hand[100];

/* A thread that does not own the pool returns one address of those in hand, and gets no others. */
static void *address_elsewhere(void *pool)
{
    uint64_t none = 7;
    CHECK(pagepool_alloc_addr_bulk(pool, &none, 1) == 0 && pagepool_last_errno() == EPERM && none == 7);
    uint64_t twice[2] = {in_hand[0], in_hand[0]};
    CHECK(pagepool_put_addr_bulk(pool, twice, 2) == -ESTALE);
    CHECK(pagepool_put_addr_bulk(the_pool, &in_hand[1], 1) == -EINVAL);
    return NULL;
}

/* Of bulk calls what is wrong is refused, and nothing else; also once another thread returned an address. */
static void many_addresses(struct pagepool *pool)
{
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    pthread_t thread;
    CHECK(pagepool_alloc_addr_bulk(pool, NULL, 1) == 0 && pagepool_last_errno() == EINVAL);
    CHECK(pagepool_alloc_addr_bulk(the_pool, in_hand, 1) == 0 && pagepool_last_errno() == EOPNOTSUPP);
    CHECK(pagepool_put_addr_bulk(pool, NULL, 1) == -EINVAL && pagepool_put_addr_bulk(pool, NULL, 0) == 0);
    for (int alone = 1; alone >= 0; alone--) {
        CHECK(pagepool_alloc_addr_bulk(pool, in_hand, 100) == 100);
        if (!alone) {
            CHECK(pthread_create(&thread, NULL, address_elsewhere, pool) == 0);
            CHECK(pthread_join(thread, NULL) == 0);
        }
        uint64_t first = in_hand[0];
        in_hand[0] = alone ? first : UINT64_MAX; /* the error is that of the first that fails */
        uint64_t left_out = in_hand[70];
        in_hand[70] = in_hand[3]; /* twice, in two pieces of 64 */
        in_hand[99] += 4095;      /* the last byte of a page */
        CHECK(pagepool_put_addr_bulk(the_pool, in_hand, 100) == -EINVAL); /* another pool: nothing changes */
        CHECK(pagepool_put_addr_bulk(pool, in_hand, 100) == (alone ? -ESTALE : -EINVAL));
        CHECK(pagepool_put_addr_bulk(pool, in_hand + 1, 99) == -ESTALE && pagepool_put_addr(pool, first) < 0);
        CHECK(pagepool_read_buffer_locations(pool, &places) == 0 && places.out == 1);
        CHECK(pagepool_put_addr_bulk(pool, &left_out, 1) == 0);
    }
}

static void addresses(struct pagepool_arena *arena)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_domain *domain;
    struct pagepool *pool;
    struct pagepool_raw raw;
    CHECK(pagepool_domain_identity("nic0", &domain) == 0);
    params.arena = arena;
    params.domains = &domain;
    params.n_domains = 1;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    CHECK(pagepool_domain_put(domain) == 0 && pagepool_domain_put(domain) == -ESTALE);
    struct pagepool_buf *page = pagepool_alloc_page(pool);
    uint64_t addr = pagepool_buf_dma_addr(page);
    CHECK(addr == bits(pagepool_buf_data(page)));
    CHECK(pagepool_put_addr(pool, addr) == -ESTALE); /* out, but not as an address */
    CHECK(pagepool_buf_into_raw(page, &raw) == 0 && raw.addr == addr && raw.len == 4096);
    no_buffer(page);
    CHECK(pagepool_put_addr(pool, 0) == -EINVAL && pagepool_put_addr(pool, UINT64_MAX) == -EINVAL);
    CHECK(pagepool_put_addr(pool, bits(&raw)) == -EINVAL);
    CHECK(pagepool_put_addr(the_pool, addr) == -EINVAL); /* another pool */
    CHECK(pagepool_put_addr(pool, addr + 256) == 0);     /* anywhere in the buffer */
    CHECK(pagepool_put_addr(pool, addr) == -ESTALE && pagepool_from_raw(pool, addr) == NULL);
    many_addresses(pool);
    CHECK(pagepool_destroy(pool) == 0);
    CHECK(pagepool_alloc_addr_bulk(pool, &addr, 1) == 0 && pagepool_last_errno() == ESTALE);
    CHECK(pagepool_put_addr_bulk(pool, &addr, 1) == -ESTALE);
}

/* Two threads return the same buffers at the same time: of each pair of calls one gives 0, or both do and the
 * owner refuses one. */
static struct pagepool_buf *raced[32768];
static int won[2][20000];
static pthread_barrier_t line;

static void *race(void *which)
{
    int *mine = won[*(int *)which];
    pthread_barrier_wait(&line);
    for (int i = 0; i < 20000; i++)
        mine[i] = pagepool_buf_put(raced[i]);
    return NULL;
}

static void at_the_same_time(void)
{
    struct pagepool_arena *arena = arena_of(128 << 20);
    int numbers[2] = {0, 1};
    for (int round = 0; round < 3; round++) {
        struct pagepool *pool = pool_over(arena);
        pthread_t thread;
        CHECK(pagepool_bind(pool) == 0);
        CHECK(pagepool_alloc_bulk(pool, raced, 20000) == 20000);
        pthread_barrier_init(&line, NULL, 2);
        CHECK(pthread_create(&thread, NULL, race, &numbers[1]) == 0);
        race(&numbers[0]);
        CHECK(pthread_join(thread, NULL) == 0);
        pthread_barrier_destroy(&line);
        uint64_t refused = 0;
        for (int i = 0; i < 20000; i++) {
            CHECK(won[0][i] + won[1][i] == -ESTALE || (won[0][i] == 0 && won[1][i] == 0));
            refused += won[0][i] == won[1][i];
        }
        struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
        CHECK(pagepool_alloc_bulk(pool, raced, 32768) == 32768 && pagepool_alloc_page(pool) == NULL);
        CHECK(pagepool_read_stats(pool, &stats) == 0 && stats.returned_twice == refused);
        CHECK(pagepool_buf_put_bulk(raced, 32768) == 0);
        CHECK(pagepool_destroy(pool) == 0);
        CHECK(pagepool_arena_pages_out(arena) == 0);
    }
    CHECK(pagepool_arena_put(arena) == 0);
}

/* Three threads use one batch at the same time: a call has the batch to itself, or is refused. */
static struct pagepool_batch *shared_batch;

enum { SECONDS = 60 };

/* Whether a thread tries again after so many attempts: it makes `least`, then goes on until one of its own
 * succeeds. While another thread is preempted inside its call, all attempts are refused. */
static int goes_on(int attempts, int least, size_t done, time_t since)
{
    if (attempts < least || done > 0)
        return attempts < least;
    CHECK(time(NULL) - since < SECONDS);
    return sched_yield() == 0;
}

static void *use(void *which)
{
    size_t done = 0;
    (void)which;
    pthread_barrier_wait(&line);
    time_t since = time(NULL);
    for (int i = 0; goes_on(i, 4000, done, since); i++) {
        struct pagepool_buf *buf = pagepool_batch_pop(shared_batch);
        int put = pagepool_batch_put(shared_batch);
        CHECK(put == 0 || put == -EBUSY);
        done += put == 0;
        if (buf != NULL && pagepool_batch_push(shared_batch, buf) != 0)
            CHECK(pagepool_buf_put(buf) == 0); /* refused: it is still ours */
    }
    return NULL;
}

static void one_batch_on_three_threads(struct pagepool *pool)
{
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    for (int round = 0; round < 20; round++) {
        pthread_t threads[2];
        size_t got = 0;
        CHECK(pagepool_batch_create(&shared_batch) == 0);
        pthread_barrier_init(&line, NULL, 3);
        for (int i = 0; i < 2; i++)
            CHECK(pthread_create(&threads[i], NULL, use, NULL) == 0);
        pthread_barrier_wait(&line);
        time_t since = time(NULL);
        for (int i = 0; goes_on(i, 2000, got, since); i++)
            got += pagepool_batch_alloc(shared_batch, pool, 8);
        for (int i = 0; i < 2; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        pthread_barrier_destroy(&line);
        CHECK(pagepool_batch_destroy(shared_batch) == 0);
        no_batch(shared_batch);
    }
    CHECK(pagepool_read_buffer_locations(pool, &places) == 0 && places.out == 1); /* the_buf */
}

static void batches(struct pagepool_arena *arena)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_domain *domain;
    struct pagepool_batch *batch, *again;
    struct pagepool_buf *buf;
    struct pagepool *pool;
    void *packet;
    REFUSED(pagepool_batch_create(NULL));
    CHECK(pagepool_domain_identity("nic0", &domain) == 0);
    params.arena = arena;
    params.domains = &domain;
    params.n_domains = 1;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    CHECK(pagepool_domain_put(domain) == 0);
    CHECK(pagepool_batch_create(&batch) == 0 && pagepool_batch_alloc(batch, pool, 1) == 1);
    CHECK(pagepool_batch_packets(batch, &packet, SIZE_MAX) == 0);
    CHECK(pagepool_batch_packets(batch, &packet, 1) == 1);
    CHECK(pagepool_put_addr(pool, bits(packet)) == -ESTALE); /* out, but not as an address */
    buf = pagepool_batch_pop(batch);
    CHECK(pagepool_buf_put(buf) == 0 && pagepool_batch_push(batch, buf) == -ESTALE);
    CHECK(pagepool_batch_alloc(batch, pool, 1) == 1);
    no_buffer(buf); /* its page is in the batch */
    CHECK(pagepool_batch_destroy(batch) == 0);
    no_batch(batch);
    CHECK(pagepool_batch_create(&again) == 0 && again != batch); /* the same row, in another life */
    no_batch(batch);
    CHECK(pagepool_batch_destroy(again) == 0 && pagepool_destroy(pool) == 0);
}

int main(void)
{
    struct pagepool_arena *arena = arena_of(16 << 20);
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    pthread_t thread;
    the_pool = pool_over(arena);
    CHECK(pagepool_alloc_page(the_pool) == NULL); /* not bound */
    CHECK(pagepool_unbind(the_pool) == -EPERM);
    CHECK(pagepool_bind(the_pool) == 0 && pagepool_bind(the_pool) == 0);
    the_buf = pagepool_alloc_page(the_pool);
    CHECK(the_buf != NULL);
    CHECK(pagepool_batch_create(&the_batch) == 0);
    made_up(the_pool, the_buf, arena);
    CHECK(pthread_create(&thread, NULL, of_another_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    sizes(arena);
    opened_wrongly();
    twice(the_pool);
    addresses(arena);
    batches(arena);
    at_the_same_time();
    one_batch_on_three_threads(the_pool);
    CHECK(pagepool_buf_put(the_buf) == 0);
    CHECK(pagepool_read_buffer_locations(the_pool, &places) == 0 && places.out == 0);
    struct pagepool_buf *late = pagepool_alloc_page(the_pool);
    CHECK(pagepool_destroy(the_pool) == 0 && pagepool_destroy(the_pool) == -ESTALE);
    no_pool(the_pool);
    CHECK(pagepool_batch_destroy(the_batch) == 0);
    CHECK(pagepool_buf_put(late) == 0 && pagepool_buf_put(late) == -ESTALE);
    CHECK(pagepool_arena_pages_out(arena) == 0);
    CHECK(pagepool_arena_put(arena) == 0 && pagepool_arena_put(arena) == -ESTALE);
    puts("ok");
    return 0;
}
