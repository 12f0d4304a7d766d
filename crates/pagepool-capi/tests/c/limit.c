/* Under a limit on memory the calls that make something say -ENOMEM; none of them ends the process. */
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"

/* Takes all memory that malloc gives, in pieces that are linked, and gives it back. */
static void **exhaust(void)
{
    void **all = NULL;
    for (size_t size = 64 << 20; size >= sizeof(void *); size /= 2)
        for (void **piece; (piece = malloc(size)) != NULL; all = piece)
            *piece = all;
    return all;
}

static void give_back(void **all)
{
    while (all != NULL) {
        void **next = *all;
        free(all);
        all = next;
    }
}

/* A pool whose end cannot be watched for want of memory is as it was. */
static void a_pool_that_cannot_be_ended(struct pagepool *pool, struct pagepool *other)
{
    struct pagepool_shutdown *shutdown, *none = NULL;
    CHECK(pagepool_destroy_watched(other, &shutdown) == 0 && pagepool_shutdown_put(shutdown) == 0);
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    CHECK(buf != NULL);
    void **all = exhaust();
    int refused = pagepool_destroy_watched(pool, &none);
    int put = pagepool_buf_put(buf);
    buf = pagepool_alloc_page(pool);
    give_back(all);
    CHECK(refused == -ENOMEM && none == NULL && put == 0 && buf != NULL && pagepool_buf_put(buf) == 0);
    CHECK(pagepool_destroy_watched(pool, &shutdown) == 0 && pagepool_shutdown_wait(shutdown, 0) == 0);
    CHECK(pagepool_shutdown_put(shutdown) == 0);
}

enum { RETURNERS = 8, EACH = (1 << 14) - 1, KIB = 1 << 10 };

static struct pagepool_buf *out[RETURNERS][EACH];
static pthread_barrier_t all_have_lanes;

static void *give_all_back(void *bufs)
{
    CHECK(pagepool_buf_put(*(struct pagepool_buf **)bufs) == 0);
    (void)pthread_barrier_wait(&all_have_lanes); /* so no thread gets the lane of one that ended */
    for (int i = 1; i < EACH; i++)
        CHECK(pagepool_buf_put(((struct pagepool_buf **)bufs)[i]) == 0);
    return NULL;
}

static uint64_t address_space(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%lu", &pages) == 1 && fclose(file) == 0);
    return (uint64_t)pages * 4096;
}

/* The end of a pool with 131,064 pages in its lanes, or fragments of 2048 pages, is refused as a whole, or
 * works, at any limit. */
static void a_pool_with_full_lanes(int frags)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct rlimit before, limit;
    struct pagepool_shutdown *shutdown = NULL;
    struct pagepool *pool;
    pthread_t threads[RETURNERS];
    int done = -ENOMEM;
    struct pagepool_arena *arena = arena_of(640 << 20);
    params.arena = arena;
    params.max_lanes = 16;
    params.lane_size = 1 << 14;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    for (int i = 0; i < RETURNERS; i++) {
        CHECK(frags || pagepool_alloc_bulk(pool, out[i], EACH) == EACH);
        for (int at = 0; frags && at < EACH; at++)
            CHECK((out[i][at] = pagepool_alloc_frag(pool, 64)) != NULL);
    }
    CHECK(pthread_barrier_init(&all_have_lanes, NULL, RETURNERS) == 0);
    for (int i = 0; i < RETURNERS; i++)
        CHECK(pthread_create(&threads[i], NULL, give_all_back, out[i]) == 0);
    for (int i = 0; i < RETURNERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    for (uint64_t room = 300 * KIB; done == -ENOMEM && room < 64 * KIB * KIB; room += 100 * KIB) {
        limit = before;
        limit.rlim_cur = address_space() + room;
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
        done = pagepool_destroy_watched(pool, &shutdown);
        CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    }
    CHECK(done == 0);
    CHECK(pagepool_shutdown_wait(shutdown, 0) == 0 && pagepool_shutdown_put(shutdown) == 0);
    CHECK(pagepool_arena_put(arena) == 0);
}

int main(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct rlimit limit;
    struct pagepool *pool, *two[2];
    int made = 0, refused;
    /* Another arena of malloc has address space that the limit no longer counts. */
    CHECK(mallopt(M_ARENA_MAX, 1) == 1 && mallopt(M_MMAP_THRESHOLD, 128 << 10) == 1);
    a_pool_with_full_lanes(1);
    a_pool_with_full_lanes(0);
    params.arena = arena_of(16 << 20);
    params.max_lanes = 64;
    params.lane_size = params.ring_size = 1 << 14;
    limit.rlim_cur = limit.rlim_max = address_space() + (200 << 20);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    pool = NULL;
    for (int i = 0; i < 100; i++)
        CHECK(pagepool_open(1 << 30, 0, &pool) == -ENOMEM && pool == NULL);
    while ((refused = pagepool_create(&params, &pool)) == 0 && made < 1000) {
        two[made & 1] = pool; /* any two */
        made++;
        CHECK(pagepool_bind(pool) == 0);
    }
    CHECK(refused == -ENOMEM && made > 1 && strstr(pagepool_last_error(), "no memory"));
    a_pool_that_cannot_be_ended(two[0], two[1]);
    puts("ok");
    return 0;
}
