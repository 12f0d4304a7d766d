/* `pairs plain|data N`: N times a page is allocated and returned by the inline functions, for tests/c.rs,
 * which counts instructions. "data" asks for the address of each page, too. */
#include <string.h>

#include "check.h"

/* What is looked at no compiler leaves out. */
static void look(const void *what)
{
    __asm__ __volatile__("" : : "r"(what) : "memory");
}

static void plain_pairs(struct pagepool *pool, long n)
{
    for (long i = 0; i < n; i++) {
        struct pagepool_buf *buf = pagepool_alloc_page(pool);
        look(buf);
        pagepool_buf_put(buf);
    }
}

static void data_pairs(struct pagepool *pool, long n)
{
    for (long i = 0; i < n; i++) {
        struct pagepool_buf *buf = pagepool_alloc_page(pool);
        look(pagepool_buf_data(buf));
        pagepool_buf_put(buf);
    }
}

int main(int argc, char **argv)
{
    struct pagepool *pool = pool_over(arena_of(4 << 20));
    CHECK(argc == 3 && pagepool_bind(pool) == 0);
    (strcmp(argv[1], "data") == 0 ? data_pairs : plain_pairs)(pool, atol(argv[2]));
    return 0;
}
