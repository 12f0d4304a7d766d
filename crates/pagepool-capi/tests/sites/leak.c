/* Publishes, leaks a page by each function that allocates, and ends without any handler of its end: what its
 * file says of the places is compared with the marks here. Also compiled as C++. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef __cplusplus
#include <pagepool.hpp>
#else
#include <pagepool.h>
#endif

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, pagepool_last_error()); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define LEAK __attribute__((noinline)) static void

#ifdef PAGEPOOL_NO_INLINE
#define LAST __attribute__((noinline, optimize("no-optimize-sibling-calls"))) static
#else
#define LAST __attribute__((noinline)) static
#endif

static struct pagepool_buf *leaked[9];
static size_t leaks;
static void *data[2];
static uint64_t addrs[2];

LEAK leak_page(struct pagepool *pool)
{
    leaked[leaks++] = pagepool_alloc_page(pool); /* mark: leak_page */
}

/* The call is the last thing that the function does: compilers make a jump of those. */
LAST struct pagepool_buf *leak_last(struct pagepool *pool)
{
    return pagepool_alloc_page(pool); /* mark: leak_last */
}

LEAK leak_frag(struct pagepool *pool)
{
    leaked[leaks++] = pagepool_alloc_frag(pool, 3000); /* mark: leak_frag */
}

LEAK leak_any(struct pagepool *pool)
{
    size_t size = 3000;
    leaked[leaks++] = pagepool_alloc(pool, &size); /* mark: leak_any */
}

LEAK leak_bulk(struct pagepool *pool)
{
    leaks += pagepool_alloc_bulk(pool, leaked + leaks, 1); /* mark: leak_bulk */
}

LEAK leak_bulk_data(struct pagepool *pool)
{
    leaks += pagepool_alloc_bulk_data(pool, leaked + leaks, data, 1); /* mark: leak_bulk_data */
}

LEAK leak_addr(struct pagepool *pool)
{
    leaks += pagepool_alloc_addr_bulk(pool, addrs, 1); /* mark: leak_addr */
}

LEAK leak_batch(struct pagepool *pool)
{
    struct pagepool_batch *batch;
    CHECK(pagepool_batch_create(&batch) == 0);
    leaks += pagepool_batch_alloc(batch, pool, 1); /* mark: leak_batch */
}

#ifdef __cplusplus
/* Its mangled name has the name of our namespace. */
LEAK leak_cxx_batch(pagepool_cpp::batch<1> &batch, struct pagepool *pool)
{
    leaks += batch.fill(pool); /* mark: leak_cxx_batch */
}
#endif

int main(void)
{
    struct pagepool_arena_params arena_params = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_arena *arena = NULL;
    struct pagepool_domain *domain = NULL;
    struct pagepool *pool = NULL;
    CHECK(pagepool_publish("leak") == 0);
    arena_params.max_bytes = 4 << 20;
    CHECK(pagepool_arena_create(&arena_params, &arena) == 0);
    CHECK(pagepool_domain_identity("leak", &domain) == 0);
    params.arena = arena;
    params.domains = &domain;
    params.n_domains = 1;
    params.holders = PAGEPOOL_HOLDERS_STACKS;
    params.one_stack_in = 1;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    leak_page(pool);
    leaked[leaks++] = leak_last(pool);
    leak_frag(pool);
    leak_any(pool);
    leak_bulk(pool);
    leak_bulk_data(pool);
    leak_addr(pool);
    leak_batch(pool);
#ifdef __cplusplus
    leak_cxx_batch(*new pagepool_cpp::batch<1>, pool);
    CHECK(leaks == 9);
#else
    CHECK(leaks == 8);
#endif
    _exit(0);
}
