/* A program with two Rust libraries: this one, and another by whichever compiler. */
#include "../c/check.h"

int other_run(void);

int main(void)
{
    struct pagepool_arena *arena = arena_of(8 << 20);
    struct pagepool *pool = pool_over(arena);
    CHECK(other_run() == 101);
    CHECK(pagepool_bind(pool) == 0);
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    CHECK(buf != NULL && other_run() == 101);
    CHECK(pagepool_buf_put(buf) == 0 && pagepool_buf_put(buf) == -ESTALE);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_arena_put(arena) == 0);
    puts("ok");
    return 0;
}
