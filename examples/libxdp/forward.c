/*
 * Forwards packets between two interfaces over AF_XDP, with libxdp's sockets. A pool allocates the UMEM's
 * frames.
 *
 *     cc -O2 forward.c $(pkg-config --cflags --libs pagepool libxdp libbpf) -o forward
 *     ./forward veth0 veth1            # until its standard input ends
 *
 * A frame is a page. It leaves the pool as an address for a fill ring, arrives on a receive ring, goes to the
 * other interface's transmit ring unchanged, and returns to the pool by the address on a completion ring.
 * pool_frames.h is the part to copy; -DPLAIN uses array_frames.h instead, for comparison. If PAGEPOOL_RUN
 * names a folder, `pagepool show` and `doctor` see the pool and the sockets (shown_socket.h).
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <xdp/libxdp.h>
#include <xdp/xsk.h>

#include "../ticks.h"
#ifdef PLAIN
#define ALLOCATOR "array"
#define WHY ""
#include "array_frames.h"
#else
#define ALLOCATOR "pool"
#define WHY pagepool_last_error()
#include "pool_frames.h"
#include "shown_socket.h"
#endif

enum { FRAMES = 8192, RING = 2048, BATCH = 64 };

struct port {
    struct xsk_socket *socket;
    struct xsk_ring_prod fill, tx;
    struct xsk_ring_cons rx, comp;
    uint64_t filled, received, sent, completed;
#ifndef PLAIN
    struct shown_socket shown;
#endif
};

static struct port ports[2];
static struct frames frames;
static uint64_t dropped;

static void must(int64_t done, const char *what)
{
    if (done < 0) {
        fprintf(stderr, "%s: %s; %s\n", what, strerror((int)-done), WHY);
        exit(1);
    }
}

/* ---- The rings ---- */

static void refill(struct port *port)
{
    uint64_t addrs[BATCH], begin;
    uint32_t at = 0, n = xsk_prod_nb_free(&port->fill, BATCH);
    if (n < BATCH)
        return; /* wait until a whole batch fits */
    begin = ticks();
    n = (uint32_t)frames_take(&frames, addrs, BATCH);
    count_call(&takes, begin, n);
    if (n == 0 || xsk_ring_prod__reserve(&port->fill, n, &at) != n)
        return;
    for (uint32_t i = 0; i < n; i++)
        *xsk_ring_prod__fill_addr(&port->fill, at + i) = addrs[i];
    xsk_ring_prod__submit(&port->fill, n);
    port->filled += n;
}

/* Returns sent frames to the allocator, once at least `least` are in flight. */
static void complete(struct port *port, uint64_t least)
{
    uint64_t addrs[BATCH], begin;
    uint32_t at = 0, n;
    if (port->sent - port->completed < least || (n = xsk_ring_cons__peek(&port->comp, BATCH, &at)) == 0)
        return;
    for (uint32_t i = 0; i < n; i++)
        addrs[i] = *xsk_ring_cons__comp_addr(&port->comp, at + i);
    xsk_ring_cons__release(&port->comp, n);
    port->completed += n;
    begin = ticks();
    must(frames_return(&frames, addrs, n), "return");
    count_call(&returns, begin, n);
}

/* Sends received frames through the other port. Drops frames that do not fit the transmit ring. */
static uint32_t forward(struct port *from, struct port *to)
{
    uint32_t in = 0, out = 0, n = xsk_ring_cons__peek(&from->rx, BATCH, &in);
    uint32_t room = n == 0 ? 0 : xsk_prod_nb_free(&to->tx, n), fits = room < n ? room : n;
    if (fits > 0 && xsk_ring_prod__reserve(&to->tx, fits, &out) != fits)
        fits = 0;
    for (uint32_t i = 0; i < fits; i++)
        *xsk_ring_prod__tx_desc(&to->tx, out + i) = *xsk_ring_cons__rx_desc(&from->rx, in + i);
    for (uint32_t i = fits; i < n; i++, dropped++)
        must(frames_return(&frames, &(uint64_t){xsk_ring_cons__rx_desc(&from->rx, in + i)->addr}, 1),
            "return");
    xsk_ring_cons__release(&from->rx, n);
    xsk_ring_prod__submit(&to->tx, fits);
    from->received += n;
    to->sent += fits;
    return n;
}

static void wake(struct port *port)
{
    if (xsk_prod_nb_free(&port->tx, RING) < RING && xsk_ring_prod__needs_wakeup(&port->tx))
        /* Ignores errors: the next round tries again. */
        sendto(xsk_socket__fd(port->socket), NULL, 0, MSG_DONTWAIT, NULL, 0);
    if (xsk_ring_prod__needs_wakeup(&port->fill))
        recvfrom(xsk_socket__fd(port->socket), NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

/* Publishes how many frames wait at the port. */
static void show(const struct port *port)
{
#ifndef PLAIN
    shown_socket_set(port->shown, port->filled - port->received, port->sent - port->completed,
        port->received, port->completed);
#else
    (void)port;
#endif
}

static uint32_t poll_ports(uint64_t least)
{
    uint32_t moved = 0;
    for (int side = 0; side < 2; side++) {
        complete(&ports[side], least);
        refill(&ports[side]);
        moved += forward(&ports[side], &ports[!side]);
        wake(&ports[!side]);
    }
    return moved;
}

/* ---- Start and end ---- */

static struct xsk_umem *open_ports(char **names)
{
    const struct xsk_umem_config umem_config = {RING, RING, FRAME_BYTES, 0, 0};
    const struct xsk_socket_config config = {RING, RING, {0}, 0, XDP_USE_NEED_WAKEUP | XDP_COPY};
    struct xsk_umem *umem;
    libbpf_set_print(NULL);
    libxdp_set_print(NULL);
    setenv("LIBXDP_SKIP_DISPATCHER", "1", 1); /* only libxdp's program, and nothing in the BPF file system */
    must(xsk_umem__create(&umem, frames.memory, frames.bytes, &ports[0].fill, &ports[0].comp, &umem_config),
        "UMEM");
    for (int side = 0; side < 2; side++) {
        struct port *port = &ports[side];
        must(xsk_socket__create_shared(&port->socket, names[side], 0, umem, &port->rx, &port->tx,
            &port->fill, &port->comp, &config), names[side]);
        for (int i = 0; i < RING / BATCH; i++)
            refill(port);
#ifndef PLAIN
        port->shown = shown_socket(frames.pool, names[side], 0);
#endif
        show(port);
    }
    return umem;
}

/* Returns how many frames are missing: neither free nor in the kernel. */
static int64_t close_ports(struct xsk_umem *umem)
{
    int64_t expected = 0, in_kernel;
    for (int i = 0; i < 10000 && (ports[0].sent != ports[0].completed || ports[1].sent != ports[1].completed);
        i++) {
        poll_ports(1); /* wait for frames that are being sent */
        poll(NULL, 0, 1);
    }
    for (int side = 0; side < 2; side++) {
        struct port *port = &ports[side];
        expected += (int64_t)(port->filled - port->received + port->sent - port->completed);
        xsk_socket__delete(port->socket);
    }
    must(xsk_umem__delete(umem), "UMEM");
    must(in_kernel = frames_close(&frames), "frames");
    return expected - in_kernel;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: forward INTERFACE INTERFACE\n");
        return 2;
    }
#ifndef PLAIN
    if (getenv("PAGEPOOL_RUN") != NULL)
        must(pagepool_publish("forward"), "publish"); /* before the pool is created */
#endif
    must(frames_open(&frames, FRAMES), "frames");
    struct xsk_umem *umem = open_ports(argv + 1);
    struct pollfd fds[3] = {
        {xsk_socket__fd(ports[0].socket), POLLIN, 0},
        {xsk_socket__fd(ports[1].socket), POLLIN, 0},
        {0, POLLIN, 0}};
    puts("ready");
    fflush(stdout);
    takes.n = takes.units = takes.ticks = 0; /* without the first fill */
    for (uint32_t rounds = 0; fds[2].revents == 0; rounds++) {
        const uint32_t moved = poll_ports(BATCH);
        if (moved == 0 || rounds % 1024 == 0)
            for (int side = 0; side < 2; side++)
                show(&ports[side]);
        if (moved == 0)
            poll(fds, 3, 100);
    }
    const uint64_t received = ports[0].received + ports[1].received, nanoseconds = thread_ns();
    const int64_t missing = close_ports(umem);
    printf("forwarded %llu, dropped %llu, missing %lld; ", (unsigned long long)(received - dropped),
        (unsigned long long)dropped, (long long)missing);
    print_cost("frame", ALLOCATOR, received, nanoseconds);
    return missing != 0;
}
