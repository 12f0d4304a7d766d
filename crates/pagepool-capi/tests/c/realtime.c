/* The first return to a pool by a thread with real-time priority, on the CPU of the pool's owner: it waits
 * for the owner to finish the return that it was interrupted in, and lets it run. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { POOLS = 300 };

/* What a first return may use of its CPU, whatever else the machine does. It used almost a second, after
 * which the kernel stops real-time threads. */
static const int64_t LIMIT_NS = 500 * 1000000;

static struct pagepool_buf *volatile handed_over;
static volatile int64_t longest_ns;

/* What this thread has used of its CPU. */
static int64_t cpu_ns(void)
{
    struct timespec used;
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

static void *return_each(void *arg)
{
    (void)arg;
    for (int i = 0; i < POOLS; i++) {
        struct timespec moment = {0, 100000 + i * 7919 % 100000};
        while (handed_over == NULL)
            nanosleep(&moment, NULL);
        nanosleep(&moment, NULL); /* wakes up at any instruction of the owner */
        int64_t began = cpu_ns();
        CHECK(pagepool_buf_put(handed_over) == 0);
        int64_t used = cpu_ns() - began;
        longest_ns = used > longest_ns ? used : longest_ns;
        handed_over = NULL;
    }
    return NULL;
}

/* A thread with real-time priority on the CPU of this one; 0, or why there cannot be one. */
static int start(pthread_t *thread)
{
    struct sched_param priority = {.sched_priority = 10};
    pthread_attr_t attr;
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(sched_getcpu(), &cpu);
    CHECK(sched_setaffinity(0, sizeof(cpu), &cpu) == 0 && pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED) == 0);
    CHECK(pthread_attr_setschedpolicy(&attr, SCHED_FIFO) == 0);
    CHECK(pthread_attr_setschedparam(&attr, &priority) == 0);
    return pthread_create(thread, &attr, return_each, NULL);
}

int main(void)
{
    struct pagepool_arena *arena = arena_of(64 << 20);
    struct pagepool_buf *bulk[64];
    pthread_t thread;
    int refused = start(&thread);
    if (refused != 0) {
        printf("SKIP: no thread with real-time priority: %s\n", strerror(refused));
        return 0;
    }
    alarm(300);
    for (int i = 0; i < POOLS; i++) {
        struct pagepool *pool = pool_over(arena);
        CHECK(pagepool_bind(pool) == 0);
        handed_over = pagepool_alloc_page(pool);
        CHECK(handed_over != NULL);
        /* Every second owner returns in bulk, the longest that the first return of another waits for. */
        while (handed_over != NULL && i % 2 == 0)
            CHECK(pagepool_buf_put(pagepool_alloc_page(pool)) == 0);
        while (handed_over != NULL)
            CHECK(pagepool_alloc_bulk(pool, bulk, 64) == 64 && pagepool_buf_put_bulk(bulk, 64) == 0);
        CHECK(pagepool_destroy(pool) == 0);
        if (longest_ns > LIMIT_NS)
            break;
    }
    printf("a first return used at most %.3f ms of its CPU\n", (double)longest_ns / 1e6);
    CHECK(longest_ns <= LIMIT_NS && pthread_join(thread, NULL) == 0);
    CHECK(pagepool_arena_put(arena) == 0);
    return 0;
}
