/*
 * DPDK's mempool and its packet buffers with the two-core work of `pagepool-bench across`, which compiles this
 * file and runs it.
 *
 *     ./dpdk -l 0,1 --no-pci --in-memory
 *
 * The first lcore gets objects and hands them over in bursts of 32, through a ring of 1024 pointers. Each
 * end of the ring caches the other's index. The second lcore puts them. Both pools are the default ones
 * (ring_mp_mc): 4095 objects, with a cache of 512 objects on each lcore. An object of the mempool has 2048
 * bytes. A packet buffer (struct rte_mbuf) has its description of 128 bytes, 128 of headroom and 2048 of data.
 *
 * Each line of standard input orders one measurement: "PACKETS BULK TOUCH REPEATS OBJECTS". With PACKETS 1 the
 * objects are packet buffers. BULK is 1 or 32 objects per call. With TOUCH 1 the first lcore writes the third
 * word of each object, or of its data, and the second reads it. Standard output gets one line: nanoseconds
 * per object for each repetition, as the second lcore measures them. One repetition before them warms up.
 * Only the work is between two time stamps.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_pause.h>

#define SLOTS 1024u
#define BURST 32u
#define OBJECTS 4095u
#define OBJECT_BYTES 2048u
#define CACHE 512u
#define MOST_REPEATS 64u
#define APART __attribute__((aligned(128)))
#define INLINE inline __attribute__((always_inline))

struct order {
    unsigned packets, bulk, touch, repeats, objects;
};

/* The producer's line, the consumer's line, the slots. */
static struct {
    APART _Atomic uint64_t filled;
    uint64_t emptied_seen;
    APART _Atomic uint64_t emptied;
    uint64_t filled_seen;
    APART void *slots[SLOTS];
} handover;

static struct {
    APART _Atomic unsigned begun;
    APART _Atomic unsigned ended;
} gate;

static APART double ns[MOST_REPEATS];
static struct rte_mempool *mempool, *packet_pool;
static volatile uint64_t looked_at;

static INLINE int push(void *const *burst)
{
    uint64_t at = atomic_load_explicit(&handover.filled, memory_order_relaxed);
    if (at + BURST - handover.emptied_seen > SLOTS) {
        handover.emptied_seen = atomic_load_explicit(&handover.emptied, memory_order_acquire);
        if (at + BURST - handover.emptied_seen > SLOTS)
            return 0;
    }
    memcpy(&handover.slots[at % SLOTS], burst, BURST * sizeof(*burst));
    atomic_store_explicit(&handover.filled, at + BURST, memory_order_release);
    return 1;
}

static INLINE int pop(void **burst)
{
    uint64_t at = atomic_load_explicit(&handover.emptied, memory_order_relaxed);
    if (handover.filled_seen - at < BURST) {
        handover.filled_seen = atomic_load_explicit(&handover.filled, memory_order_acquire);
        if (handover.filled_seen - at < BURST)
            return 0;
    }
    memcpy(burst, &handover.slots[at % SLOTS], BURST * sizeof(*burst));
    atomic_store_explicit(&handover.emptied, at + BURST, memory_order_release);
    return 1;
}

static INLINE void get(void **burst, unsigned bulk, unsigned packets)
{
    if (!packets) {
        while (rte_mempool_get_bulk(mempool, burst, bulk) != 0)
            rte_pause();
    } else if (bulk == 1) {
        while ((*burst = rte_pktmbuf_alloc(packet_pool)) == NULL)
            rte_pause();
    } else {
        while (rte_pktmbuf_alloc_bulk(packet_pool, (struct rte_mbuf **)burst, bulk) != 0)
            rte_pause();
    }
}

static INLINE void put(void **burst, unsigned bulk, unsigned packets)
{
    if (!packets)
        rte_mempool_put_bulk(mempool, burst, bulk);
    else if (bulk == 1)
        rte_pktmbuf_free(*burst);
    else
        rte_pktmbuf_free_bulk((struct rte_mbuf **)burst, bulk);
}

/* The third word of an object, or of a packet's data. */
static INLINE volatile uint64_t *word(void *object, unsigned packets)
{
    return (volatile uint64_t *)(packets ? rte_pktmbuf_mtod((struct rte_mbuf *)object, void *) : object) + 2;
}

static INLINE void produce(unsigned objects, unsigned bulk, unsigned touch, unsigned packets)
{
    void *burst[BURST];
    for (unsigned done = 0; done < objects; done += BURST) {
        for (unsigned at = 0; at < BURST; at += bulk)
            get(burst + at, bulk, packets);
        if (touch)
            for (unsigned at = 0; at < BURST; at++)
                *word(burst[at], packets) = at;
        while (!push(burst))
            rte_pause();
    }
}

static INLINE void consume(unsigned objects, unsigned bulk, unsigned touch, unsigned packets)
{
    void *burst[BURST];
    for (unsigned done = 0; done < objects; done += BURST) {
        while (!pop(burst))
            rte_pause();
        if (touch) {
            uint64_t sum = 0;
            for (unsigned at = 0; at < BURST; at++)
                sum += *word(burst[at], packets);
            looked_at = sum;
        }
        for (unsigned at = 0; at < BURST; at += bulk)
            put(burst + at, bulk, packets);
    }
}

/* Passes constants: the compiler sees what it would see in a program that does only one of these. */
#define EACH_BULK(side, order, touch, packets)              \
    ((order).bulk == 1 ? side((order).objects, 1, touch, packets) \
                       : side((order).objects, BURST, touch, packets))
#define EACH_TOUCH(side, order, packets) \
    ((order).touch ? EACH_BULK(side, order, 1, packets) : EACH_BULK(side, order, 0, packets))
#define EACH_KIND(side, order) \
    ((order).packets ? EACH_TOUCH(side, order, 1) : EACH_TOUCH(side, order, 0))

static void wait_for(_Atomic unsigned *word, unsigned turn)
{
    while (atomic_load_explicit(word, memory_order_acquire) != turn)
        rte_pause();
}

static int second(void *argument)
{
    const struct order *order = argument;
    double ticks_a_ns = (double)rte_get_tsc_hz() / 1e9;
    for (unsigned turn = 0; turn <= order->repeats; turn++) {
        wait_for(&gate.begun, turn + 1);
        uint64_t begun = rte_rdtsc_precise();
        EACH_KIND(consume, *order);
        uint64_t ended = rte_rdtsc_precise();
        if (turn > 0)
            ns[turn - 1] = (double)(ended - begun) / order->objects / ticks_a_ns;
        atomic_store_explicit(&gate.ended, turn + 1, memory_order_release);
    }
    return 0;
}

static void must(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, rte_strerror(rte_errno));
        exit(1);
    }
}

static void measure(unsigned lcore, struct order order)
{
    atomic_store(&gate.begun, 0);
    atomic_store(&gate.ended, 0);
    must(rte_eal_remote_launch(second, &order, lcore) == 0, "the second lcore");
    for (unsigned turn = 1; turn <= order.repeats + 1; turn++) {
        atomic_store_explicit(&gate.begun, turn, memory_order_release);
        EACH_KIND(produce, order);
        wait_for(&gate.ended, turn);
    }
    rte_eal_wait_lcore(lcore);
    for (unsigned at = 0; at < order.repeats; at++)
        printf("%s%.4f", at ? " " : "", ns[at]);
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct order order;
    must(rte_eal_init(argc, argv) >= 0, "rte_eal_init");
    unsigned lcore = rte_get_next_lcore(-1, 1, 0);
    must(lcore < RTE_MAX_LCORE, "a second lcore");
    mempool = rte_mempool_create("across", OBJECTS, OBJECT_BYTES, CACHE, 0, NULL, NULL, NULL, NULL,
                                 SOCKET_ID_ANY, 0);
    must(mempool != NULL, "rte_mempool_create");
    packet_pool = rte_pktmbuf_pool_create("packets", OBJECTS, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    must(packet_pool != NULL, "rte_pktmbuf_pool_create");
    while (scanf("%u %u %u %u %u", &order.packets, &order.bulk, &order.touch, &order.repeats, &order.objects) == 5) {
        must((order.bulk == 1 || order.bulk == BURST) && order.repeats <= MOST_REPEATS, "an order");
        measure(lcore, order);
    }
    return 0;
}
