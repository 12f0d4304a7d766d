/* pagepool_open: a pool with memory of its own, which ends with it; an error leaves nothing behind. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

enum { PAGES = 1024, PAGE = 4096 };

static const uint64_t BYTES = (uint64_t)PAGES * PAGE;

/* Whether the address is mapped in this process. */
static int is_mapped(void *at)
{
    unsigned char in_core[16];
    errno = 0;
    return mincore(at, PAGE, in_core) == 0 || errno != ENOMEM;
}

/* Pools of this process, those that ended and wait for buffers among them. */
static int pools(void)
{
    char text[65536];
    int lines = 0;
    CHECK(pagepool_dump(text, sizeof(text)) < (int64_t)sizeof(text));
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    return lines;
}

/* The receive loop's calls, over all of the memory. */
static void pages_are_offsets(void)
{
    static uint64_t addrs[PAGES + 1];
    static char seen[PAGES];
    struct pagepool_buffer_locations at = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    struct pagepool *pool;
    uint64_t bytes = 0;
    CHECK(pagepool_open(BYTES, 0, &pool) == 0);
    char *base = pagepool_base(pool, &bytes);
    CHECK(base != NULL && bytes == BYTES && pagepool_base(pool, NULL) == base);
    size_t n = pagepool_alloc_addr_bulk(pool, addrs, PAGES + 1);
    CHECK(n == PAGES); /* all of it is committed, and no page is kept back */
    for (size_t i = 0; i < n; i++) {
        CHECK(addrs[i] % PAGE == 0 && addrs[i] < BYTES && !seen[addrs[i] / PAGE]);
        seen[addrs[i] / PAGE] = 1;
        memset(base + addrs[i], (int)i, PAGE);
    }
    CHECK(pagepool_put_addr_bulk(pool, addrs, n) == 0);
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    CHECK((char *)pagepool_buf_data(buf) == base + pagepool_buf_dma_addr(buf) && pagepool_buf_put(buf) == 0);
    CHECK(pagepool_read_buffer_locations(pool, &at) == 0 && at.out == 0);
    CHECK(is_mapped(base) && is_mapped(base + BYTES - PAGE));
    CHECK(pagepool_destroy(pool) == 0 && !is_mapped(base) && !is_mapped(base + BYTES - PAGE));
    CHECK(pagepool_base(pool, &bytes) == NULL && pagepool_last_errno() == ESTALE && bytes == BYTES);
}

/* The memory stays as long as a buffer, and goes with the last one. */
static void a_buffer_outlives_its_pool(void)
{
    struct pagepool *pool;
    CHECK(pagepool_open(BYTES, 0, &pool) == 0);
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    char *base = pagepool_base(pool, NULL);
    CHECK(pagepool_destroy(pool) == 0 && is_mapped(base));
    memset(pagepool_buf_data(buf), 1, PAGE);
    CHECK(pagepool_buf_put(buf) == 0 && pools() == 0 && !is_mapped(base));
}

static void *put(void *buf)
{
    CHECK(pagepool_buf_put(buf) == 0);
    return NULL;
}

static void other_threads_return(void)
{
    struct pagepool *pool;
    pthread_t thread;
    CHECK(pagepool_open(BYTES, PAGEPOOL_BACKING_ANONYMOUS_4K, &pool) == 0);
    CHECK(pthread_create(&thread, NULL, put, pagepool_alloc_page(pool)) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pagepool_unbind(pool) == 0 && pagepool_bind(pool) == 0 && pagepool_destroy(pool) == 0);
}

/* Each kind, also on a machine without huge pages. */
static void kinds(void)
{
    const uint32_t any[] = {PAGEPOOL_BACKING_DEFAULT, PAGEPOOL_BACKING_ANONYMOUS_4K,
        PAGEPOOL_BACKING_TRANSPARENT_HUGE, PAGEPOOL_BACKING_HUGE_2M};
    struct pagepool *pool;
    for (size_t i = 0; i < sizeof(any) / sizeof(*any); i++) {
        CHECK(pagepool_open(BYTES, any[i], &pool) == 0);
        struct pagepool_buf *buf = pagepool_alloc_page(pool);
        memset(pagepool_buf_data(buf), 1, PAGE);
        CHECK(pagepool_buf_put(buf) == 0 && pagepool_destroy(pool) == 0);
    }
}

static uint64_t address_space(void)
{
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm != NULL && fscanf(statm, "%lu", &pages) == 1 && fclose(statm) == 0);
    return (uint64_t)pages * PAGE;
}

/* Few machines have so many pages of 1 GiB. */
static void huge_or_nothing(void)
{
    const uint64_t much = 16ull << 30, before = address_space();
    struct pagepool *pool = NULL;
    if (pagepool_open(much, PAGEPOOL_BACKING_HUGE_1G | PAGEPOOL_HUGE_OR_FAIL, &pool) == 0) {
        CHECK(pagepool_destroy(pool) == 0);
        puts("SKIP huge_or_nothing: this machine has 16 huge pages of 1 GiB");
        return;
    }
    CHECK(pool == NULL && pagepool_last_error()[0] != '\0' && pools() == 0);
    CHECK(address_space() < before + much);
}

/* A pool over an arena tells of the arena's memory. */
static void the_base_of_an_arena(void)
{
    struct pagepool_arena *arena = arena_of(BYTES);
    struct pagepool_arena_params params = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_params of_device = PAGEPOOL_PARAMS_INIT;
    struct pagepool *pool = pool_over(arena);
    uint64_t bytes = 0;
    CHECK(pagepool_base(pool, &bytes) == pagepool_arena_base(arena) && bytes == BYTES);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_arena_put(arena) == 0);
    params.backing = PAGEPOOL_BACKING_DEVICE;
    CHECK(pagepool_arena_create(&params, &arena) == 0);
    of_device.arena = arena;
    CHECK(pagepool_create(&of_device, &pool) == 0);
    CHECK(pagepool_base(pool, &bytes) == NULL && pagepool_last_errno() == EOPNOTSUPP && bytes == BYTES);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_arena_put(arena) == 0);
}

/* More than there can be at the same time. */
static void pools_come_and_go(void)
{
    struct pagepool *pool;
    for (int i = 0; i < 4200; i++)
        CHECK(pagepool_open(PAGE, PAGEPOOL_BACKING_ANONYMOUS_4K, &pool) == 0 && pagepool_destroy(pool) == 0);
}

int main(void)
{
    may_take_huge_pages();
    pages_are_offsets();
    a_buffer_outlives_its_pool();
    other_threads_return();
    kinds();
    huge_or_nothing();
    the_base_of_an_arena();
    pools_come_and_go();
    puts("ok");
    return 0;
}
