/*
 * Receives COUNT packets over AF_XDP, with libxdp's socket. A pool allocates the UMEM's frames.
 *
 *     cc -O2 receive.c $(pkg-config --cflags --libs pagepool libxdp libbpf) -o receive
 *     ./receive veth0 1000
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pagepool.h>
#include <xdp/libxdp.h>
#include <xdp/xsk.h>

enum { FRAMES = 4096, RING = 2048, BATCH = 64, PAGE = 4096 };

static void must(int64_t done, const char *what)
{
    if (done >= 0)
        return;
    fprintf(stderr, "%s: %s; %s\n", what, strerror((int)-done), pagepool_last_error());
    exit(1);
}

/* Puts up to BATCH pages of the pool on the fill ring, as device addresses. */
static uint32_t refill(struct pagepool *pool, struct xsk_ring_prod *fill)
{
    uint64_t addrs[BATCH];
    uint32_t at = 0, n = xsk_prod_nb_free(fill, BATCH) < BATCH ? 0 : BATCH;
    n = (uint32_t)pagepool_alloc_addr_bulk(pool, addrs, n);
    if (n == 0 || xsk_ring_prod__reserve(fill, n, &at) != n)
        return 0; /* the ring has no room, or the pool no page */
    for (uint32_t i = 0; i < n; i++)
        *xsk_ring_prod__fill_addr(fill, at + i) = addrs[i];
    xsk_ring_prod__submit(fill, n);
    return n;
}

int main(int argc, char **argv)
{
    const struct xsk_umem_config umem_config = {RING, RING, PAGE, 0, 0};
    const struct xsk_socket_config config = {RING, RING, {0}, 0, XDP_COPY};
    struct pagepool_buffer_locations at = PAGEPOOL_BUFFER_LOCATIONS_INIT;
    struct pagepool *pool;
    void *memory;
    struct xsk_ring_prod fill = {0}; /* libxdp sets only some of the members */
    struct xsk_ring_cons rx = {0}, comp = {0};
    struct xsk_umem *umem;
    struct xsk_socket *xsk;
    uint32_t filled = 0;
    uint64_t size = 0, packets = 0, bytes = 0, count = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;

    if (argc != 3)
        return fprintf(stderr, "usage: receive INTERFACE COUNT\n"), 2;
    libxdp_set_print(NULL);
    libbpf_set_print(NULL);
    setenv("LIBXDP_SKIP_DISPATCHER", "1", 1); /* only libxdp's program, and nothing in the BPF file system */

    /* 1. A pool with memory of its own. This thread allocates, and addresses are offsets in the memory. */
    must(pagepool_open((uint64_t)FRAMES * PAGE, 0, &pool), "pool");
    /* 2. The UMEM and the socket, on queue 0. */
    memory = pagepool_base(pool, &size);
    must(xsk_umem__create(&umem, memory, size, &fill, &comp, &umem_config), "UMEM");
    must(xsk_socket__create(&xsk, argv[1], 0, umem, &rx, NULL, &config), argv[1]);
    struct pollfd ready = {xsk_socket__fd(xsk), POLLIN, 0};
    for (uint32_t n; (n = refill(pool, &fill)) > 0; filled += n)
        continue;
    printf("ready, %u frames on the fill ring\n", filled);
    fflush(stdout);

    /* 3. The loop. */
    while (packets < count) {
        uint64_t addrs[BATCH];
        uint32_t at = 0, n = xsk_ring_cons__peek(&rx, BATCH, &at);
        for (uint32_t i = 0; i < n; i++) {
            const struct xdp_desc *packet = xsk_ring_cons__rx_desc(&rx, at + i);
            addrs[i] = packet->addr; /* the packet is at memory + addr */
            bytes += packet->len;
        }
        xsk_ring_cons__release(&rx, n);
        /* Drop the packets. To keep one, or to hand it to another thread, call pagepool_from_raw instead. */
        must(pagepool_put_addr_bulk(pool, addrs, n), "put_addr");
        packets += n;
        refill(pool, &fill);
        if (n == 0)
            poll(&ready, 1, 100);
    }

    xsk_socket__delete(xsk);
    must(xsk_umem__delete(umem), "UMEM");
    for (uint64_t addr = 0; addr < size; addr += PAGE)
        pagepool_put_addr_bulk(pool, &addr, 1); /* fails unless the kernel had the frame */
    must(pagepool_read_buffer_locations(pool, &at), "buffer_locations");
    must(pagepool_destroy(pool), "pool");
    printf("%llu packets, %llu bytes, %llu buffers missing\n", (unsigned long long)packets,
        (unsigned long long)bytes, (unsigned long long)at.out);
    return at.out != 0;
}
