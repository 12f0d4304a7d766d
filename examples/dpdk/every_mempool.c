/*
 * For tests, with LD_PRELOAD. A mempool that requests one of DPDK's ring drivers gets the driver that
 * EVERY_MEMPOOL names. Freeing a mempool prints how many of its objects are missing. So all of DPDK's own
 * tests run over a driver.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mempool.h>

int rte_mempool_set_ops_byname(struct rte_mempool *mp, const char *name, void *config)
{
    int (*real)(struct rte_mempool *, const char *, void *) = dlsym(RTLD_NEXT, "rte_mempool_set_ops_byname");
    const char *instead = getenv("EVERY_MEMPOOL");
    return real(mp, instead != NULL && strncmp(name, "ring_", 5) == 0 ? instead : name, config);
}

void rte_mempool_free(struct rte_mempool *mp)
{
    void (*real_free)(struct rte_mempool *) = dlsym(RTLD_NEXT, "rte_mempool_free");
    if (mp != NULL)
        fprintf(stderr, "every_mempool: %s: %u missing\n", mp->name,
            mp->populated_size - rte_mempool_avail_count(mp));
    real_free(mp);
}
