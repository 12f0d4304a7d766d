/* Two threads return the same buffers at the same time, one of them the owner, which returns without an
 * atomic operation until the other begins: each buffer returns once. */
#include <pthread.h>
#include <string.h>

#include "check.h"

#define N 48
#ifdef V
#define ROUNDS 30 /* under valgrind threads take turns */
#else
#define ROUNDS 3000
#endif

static struct pagepool *pool;
static struct pagepool_buf *bufs[N];
static pthread_barrier_t step;
static int bulk, begins_at;

/* One by one, and how many of them. */
static int put_from(int first)
{
    int done = 0;
    for (int i = 0; i < N; i++) {
        int error = pagepool_buf_put(bufs[(first + i) % N]);
        CHECK(error == 0 || error == -ESTALE);
        done += error == 0;
    }
    return done;
}

static void *other(void *done)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&step);
        *(int *)done = put_from(begins_at);
        pthread_barrier_wait(&step);
    }
    return NULL;
}

/* All are out, then in, and none is there twice. */
static void nothing_is_damaged(void)
{
    struct pagepool_buffer_locations places = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    struct pagepool_buf *all[1024];
    char seen[4096] = {0};
    CHECK(pagepool_read_buffer_locations(pool, &places) == 0 && places.out == 0);
    size_t n = pagepool_alloc_bulk(pool, all, 1024);
    CHECK(n >= N);
    for (size_t i = 0; i < n; i++)
        CHECK(seen[pagepool_buf_page_index(all[i])]++ == 0);
    CHECK(pagepool_buf_put_bulk(all, n) == 0);
}

static void round_of(struct pagepool_arena *arena, int round, const int *others)
{
    pool = pool_over(arena);
    CHECK(pagepool_bind(pool) == 0);
    for (int again = 0; again < 3; again++) { /* the last time by the inline functions */
        CHECK(pagepool_alloc_bulk(pool, bufs, N) == N);
        if (again < 2)
            CHECK(pagepool_buf_put_bulk(bufs, N) == 0);
    }
    bulk = round % 2;
    begins_at = round % N;
    pthread_barrier_wait(&step);
    for (volatile int wait = round * 7 % 997; wait > 0; wait--)
        ;
    int mine = bulk ? pagepool_buf_put_bulk(bufs, N) : put_from(0);
    pthread_barrier_wait(&step);
    if (bulk)
        CHECK(mine == 0 || mine == -ESTALE);
    else
        CHECK(mine + *others == N);
    nothing_is_damaged();
    CHECK(pagepool_destroy(pool) == 0);
}

int main(void)
{
    struct pagepool_arena *arena = arena_of(4 << 20);
    int others = 0, raced = 0;
    pthread_t thread;
    CHECK(pthread_barrier_init(&step, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, other, &others) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        round_of(arena, round, &others);
        raced += others > 0 && others < N;
    }
    CHECK(pthread_join(thread, NULL) == 0 && pthread_barrier_destroy(&step) == 0);
    CHECK(pagepool_arena_put(arena) == 0);
    printf("%d of %d rounds: both threads returned some\n", raced, ROUNDS);
    return 0;
}
