/* In bulk: what the inline functions do themselves, and what they leave to the library, gives the same. */
#include <pthread.h>
#include <string.h>

#include "check.h"

#define MOST 200

static struct pagepool *pool;

static uint64_t out(void)
{
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    CHECK(pagepool_read_buffer_locations(pool, &places) == 0);
    return places.out;
}

static uint64_t refused_twice(struct pagepool_buf *const *bufs, size_t n)
{
    uint64_t refused = 0;
    for (size_t i = 0; i < n; i++)
        refused += pagepool_buf_put(bufs[i]) == -ESTALE && pagepool_buf_data(bufs[i]) == NULL;
    return refused;
}

/* Every buffer is another one, has the bytes that its address says, and returns once. */
static void as_many_as(size_t n)
{
    struct pagepool_buf *bufs[MOST];
    void *data[MOST];
    CHECK(pagepool_alloc_bulk_data(pool, bufs, data, n) == n && out() == n);
    for (size_t i = 0; i < n; i++) {
        CHECK(data[i] == pagepool_buf_data(bufs[i]) && pagepool_buf_len(bufs[i]) == 4096);
        memcpy(data[i], &i, sizeof(i));
    }
    for (size_t i = 0; i < n; i++)
        CHECK(memcmp(data[i], &i, sizeof(i)) == 0);
    CHECK(pagepool_buf_put_bulk(bufs, n) == 0 && out() == 0);
    CHECK(refused_twice(bufs, n) == n && pagepool_buf_put_bulk(bufs, n) == -ESTALE && out() == 0);
    CHECK(pagepool_alloc_bulk(pool, bufs, n) == n && out() == n);
    CHECK(pagepool_buf_put_bulk(bufs, n) == 0 && out() == 0);
}

/* One that is no buffer does not keep the others from returning, wherever it stands. */
static void with_one_bad(size_t n, struct pagepool_buf *bad, int error)
{
    struct pagepool_buf *bufs[64], *mixed[64];
    for (size_t at = 0; at < n; at++) {
        CHECK(pagepool_alloc_bulk(pool, bufs, n) == n);
        memcpy(mixed, bufs, sizeof(mixed));
        mixed[at] = bad;
        CHECK(pagepool_buf_put_bulk(mixed, n) == error && out() == 1);
        CHECK(pagepool_buf_put(bufs[at]) == 0 && out() == 0);
        CHECK(refused_twice(bufs, n) == n);
    }
}

/* A buffer that stands twice returns once. */
static void twice(size_t n)
{
    struct pagepool_buf *bufs[64];
    for (size_t from = 1; from < n; from++) {
        CHECK(pagepool_alloc_bulk(pool, bufs, n) == n);
        struct pagepool_buf *left = bufs[from];
        bufs[from] = bufs[from - 1];
        CHECK(pagepool_buf_put_bulk(bufs, n) == -ESTALE && out() == 1);
        CHECK(pagepool_buf_put_bulk(&left, 1) == 0 && out() == 0);
    }
}

static void no_arrays(void)
{
    struct pagepool_buf *buf;
    void *data;
    CHECK(pagepool_alloc_bulk(pool, NULL, 4) == 0 && pagepool_last_errno() == EINVAL);
    CHECK(pagepool_alloc_bulk_data(pool, NULL, &data, 1) == 0 && pagepool_last_errno() == EINVAL);
    CHECK(pagepool_alloc_bulk_data(pool, &buf, NULL, 1) == 0 && pagepool_last_errno() == EINVAL);
    CHECK(pagepool_alloc_bulk(pool, &buf, 0) == 0 && pagepool_alloc_bulk_data(pool, &buf, &data, 0) == 0);
    CHECK(pagepool_buf_put_bulk(NULL, 1) == -EINVAL && pagepool_buf_put_bulk(&buf, 0) == 0);
    CHECK(out() == 0);
    /* An array may be a literal. */
    struct pagepool_buf *one = pagepool_alloc_page(pool), *other = pagepool_alloc_page(pool);
    CHECK(pagepool_buf_put_bulk((struct pagepool_buf *[]){one, other}, 2) == 0 && out() == 0);
}

/* Fragments, pages with a reference and those of another pool are for the library. */
static void of_other_kinds(struct pagepool *another)
{
    struct pagepool_buf *bufs[8];
    struct pagepool_page_ref *reference;
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    CHECK(pagepool_alloc_bulk(pool, bufs, 4) == 4 && pagepool_alloc_bulk(another, bufs + 4, 2) == 2);
    bufs[6] = pagepool_alloc_frag(pool, 512);
    bufs[7] = pagepool_alloc_page(pool);
    CHECK(pagepool_buf_page_ref(bufs[2], &reference) == 0);
    CHECK(pagepool_buf_put_bulk(bufs, 8) == 0 && refused_twice(bufs, 8) == 8);
    CHECK(pagepool_page_ref_put(reference) == 0 && out() == 0);
    CHECK(pagepool_read_buffer_locations(another, &places) == 0 && places.out == 0);
}

/* More than there are: as many as there are, and the rest of the array is unchanged. */
static void more_than_there_are(void)
{
    static struct pagepool_buf *bufs[2048];
    size_t all = 0, got;
    while ((got = pagepool_alloc_bulk(pool, bufs + all, 48)) == 48)
        all += got;
    CHECK(pagepool_last_errno() == ENOMEM && bufs[all + got] == NULL && out() == all + got);
    all += got;
    for (size_t from = 0; from < all; from += 61)
        CHECK(pagepool_buf_put_bulk(bufs + from, from + 61 < all ? 61 : all - from) == 0);
    CHECK(out() == 0 && refused_twice(bufs, all) == all);
}

static void *elsewhere(void *bufs)
{
    struct pagepool_buf *none[4];
    CHECK(pagepool_buf_put_bulk(bufs, 16) == 0);
    CHECK(pagepool_alloc_bulk(pool, none, 4) == 0 && pagepool_last_errno() == EPERM);
    return NULL;
}

static void on_another_thread(void)
{
    struct pagepool_buf *bufs[16];
    pthread_t thread;
    CHECK(pagepool_alloc_bulk(pool, bufs, 16) == 16);
    CHECK(pthread_create(&thread, NULL, elsewhere, bufs) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(refused_twice(bufs, 16) == 16 && out() == 0);
}

/* The first gives the thread a lane; the others return through it. */
static struct pagepool_buf *sent[17];
static int result;

static void *put_sent(void *unused)
{
    CHECK(pagepool_buf_put(sent[0]) == 0);
    result = pagepool_buf_put_bulk(sent + 1, 16);
    return unused;
}

/* One that is no buffer, or NULL for one that stands twice, keeps no other from returning elsewhere. */
static void with_one_bad_elsewhere(struct pagepool_buf *bad, int error)
{
    struct pagepool_buf *bufs[17];
    for (size_t at = 1; at < 17; at++) {
        pthread_t thread;
        CHECK(pagepool_alloc_bulk(pool, bufs, 17) == 17);
        memcpy(sent, bufs, sizeof(sent));
        sent[at] = bad != NULL ? bad : sent[at % 16 + 1];
        CHECK(pthread_create(&thread, NULL, put_sent, NULL) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(result == error && out() == 1);
        CHECK(pagepool_buf_put(bufs[at]) == 0 && out() == 0 && refused_twice(bufs, 17) == 17);
    }
}

static void all_of_it(struct pagepool *another, struct pagepool_buf *stale)
{
    for (size_t n = 1; n <= 70; n++)
        as_many_as(n);
    as_many_as(MOST);
    with_one_bad(32, NULL, -EINVAL);
    with_one_bad(9, stale, -ESTALE);
    with_one_bad(7, (struct pagepool_buf *)pool, -EINVAL);
    twice(33);
    no_arrays();
    of_other_kinds(another);
    more_than_there_are();
}

int main(void)
{
    struct pagepool_arena *arena = arena_of(4 << 20), *other_arena = arena_of(4 << 20);
    struct pagepool *another = pool_over(other_arena);
    pool = pool_over(arena);
    CHECK(pagepool_bind(another) == 0 && pagepool_bind(pool) == 0);
    struct pagepool_buf *stale = pagepool_alloc_page(pool);
    CHECK(pagepool_buf_put(stale) == 0);
    all_of_it(another, stale);
    on_another_thread(); /* returns here continue without a lock */
    with_one_bad_elsewhere(stale, -ESTALE);
    with_one_bad_elsewhere((struct pagepool_buf *)pool, -EINVAL);
    with_one_bad_elsewhere(NULL, -ESTALE);
    all_of_it(another, stale);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_destroy(another) == 0);
    CHECK(pagepool_arena_put(arena) == 0 && pagepool_arena_put(other_arena) == 0);
    return 0;
}
