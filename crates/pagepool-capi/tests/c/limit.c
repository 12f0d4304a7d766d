/* Under a limit on memory the calls that make something say -ENOMEM; none of them ends the process. */
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

int main(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct rlimit limit = {200 << 20, 200 << 20};
    struct pagepool *pool, *two[2];
    int made = 0, refused;
    params.arena = arena_of(16 << 20);
    params.max_lanes = 64;
    params.lane_size = params.ring_size = 1 << 14;
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
