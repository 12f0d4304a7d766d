/* Under a limit on memory the calls that make something say -ENOMEM; none of them ends the process. */
#include <string.h>
#include <sys/resource.h>

#include "check.h"

int main(void)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct rlimit limit = {200 << 20, 200 << 20};
    struct pagepool *pool;
    int made = 0, refused;
    params.arena = arena_of(16 << 20);
    params.max_lanes = 64;
    params.lane_size = params.ring_size = 1 << 14;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    while ((refused = pagepool_create(&params, &pool)) == 0 && made < 1000) {
        made++;
        CHECK(pagepool_bind(pool) == 0);
    }
    CHECK(refused == -ENOMEM && made > 0 && strstr(pagepool_last_error(), "no memory"));
    puts("ok");
    return 0;
}
