/* Three threads return the same buffers at the same time, the owner among them: each buffer returns once.
 * Two calls may give 0 for one buffer; then the owner refuses one, and counts it. */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "check.h"

#define N 48
#define OTHERS 2
#ifdef V
#define ROUNDS 20 /* under valgrind threads take turns */
#else
#define ROUNDS 3000
#endif

static struct pagepool *pool;
static struct pagepool_buf *bufs[N];
static int begun, ended;    /* rounds; of the others each counts each */
static int done[OTHERS], alone, in_bulk, begins_at, refused_in_all;

static void wait_until(int *what, int is)
{
    for (int spins = 0; __atomic_load_n(what, __ATOMIC_ACQUIRE) < is; spins++)
        if (spins % 64 == 63)
            sched_yield();
}

/* One by one; gives how many returned here. */
static int put_from(int first)
{
    int puts = 0;
    for (int i = 0; i < N; i++) {
        int error = pagepool_buf_put(bufs[(first + i) % N]);
        CHECK(error == 0 || error == -ESTALE);
        puts += error == 0;
    }
    return puts;
}

static int put_in_bulk(void)
{
    int error = pagepool_buf_put_bulk(bufs, N);
    CHECK(error == 0 || error == -ESTALE);
    return 0;
}

static void *other(void *at)
{
    int me = *(int *)at;
    for (int round = 1; round <= ROUNDS; round++) {
        wait_until(&begun, round);
        done[me] = alone && me != 0 ? 0 : in_bulk & 1 << me ? put_in_bulk() : put_from(begins_at * me);
        __atomic_add_fetch(&ended, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* None is out. As many as there are, N at least, can be allocated, and none twice. Gives how many returns the
 * owner refused. */
static int nothing_is_damaged(void)
{
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    struct pagepool_buf *all[1024];
    char seen[4096] = {0};
    CHECK(pagepool_read_buffer_locations(pool, &places) == 0 && places.out == 0);
    size_t n = pagepool_alloc_bulk(pool, all, 1024);
    CHECK(n >= N);
    for (size_t i = 0; i < n; i++)
        CHECK(seen[pagepool_buf_page_index(all[i])]++ == 0);
    CHECK(n == 1024 && pagepool_alloc_page(pool) == NULL); /* the owner has taken all messages */
    CHECK(pagepool_read_stats(pool, &stats) == 0);
    CHECK(pagepool_buf_put_bulk(all, n) == 0);
    return (int)stats.returned_twice;
}

/* Whether several threads returned some. */
static int round_of(struct pagepool_arena *arena, int round)
{
    pool = pool_over(arena);
    CHECK(pagepool_bind(pool) == 0);
    for (int before = 0; before < 2; before++) /* so that the inline functions serve the last time */
        CHECK(pagepool_alloc_bulk(pool, bufs, N) == N && pagepool_buf_put_bulk(bufs, N) == 0);
    CHECK(pagepool_alloc_bulk(pool, bufs, N) == N);
    in_bulk = round % 8;
    alone = round % 3 == 0; /* one other thread */
    begins_at = round * 5 % N;
    __atomic_store_n(&begun, round, __ATOMIC_RELEASE);
    for (volatile int wait = round * 7 % 499; wait > 0; wait--)
        ;
    int mine = in_bulk & 4 ? put_in_bulk() : put_from(round % 2 ? 0 : begins_at);
    wait_until(&ended, OTHERS * round);
    int refused = nothing_is_damaged();
    refused_in_all += refused;
    if (in_bulk == 0)
        CHECK(mine + done[0] + done[1] - refused == N);
    CHECK(pagepool_destroy(pool) == 0);
    return in_bulk == 0 && mine < N && done[0] < N && done[1] < N;
}

int main(void)
{
    struct pagepool_arena *arena = arena_of(4 << 20);
    pthread_t threads[OTHERS];
    int numbers[OTHERS], raced = 0;
    for (int at = 0; at < OTHERS; at++) {
        numbers[at] = at;
        CHECK(pthread_create(&threads[at], NULL, other, &numbers[at]) == 0);
    }
    for (int round = 1; round <= ROUNDS; round++)
        raced += round_of(arena, round);
    for (int at = 0; at < OTHERS; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    CHECK(pagepool_arena_put(arena) == 0);
    printf("%d of %d rounds one by one: several threads returned some\n", raced, ROUNDS / 8);
    printf("%d returns gave 0 and were refused later\n", refused_in_all);
    return 0;
}
