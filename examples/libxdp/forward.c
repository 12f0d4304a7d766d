/*
 * Forwards packets between two interfaces over AF_XDP, with libxdp's sockets. A pool is the allocator of the
 * UMEM's frames.
 *
 *     cc -O2 forward.c $(pkg-config --cflags --libs pagepool libxdp libbpf) -o forward
 *     ./forward veth0 veth1            # until its standard input ends
 *
 * A frame is a page. It leaves the pool as an address for a fill ring, arrives on a receive ring, goes to the
 * other interface's transmit ring unchanged, and returns to the pool by the address on a completion ring.
 * `--allocator stack` does the same with an array of free addresses, for comparison.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include <pagepool.h>
#include <xdp/libxdp.h>
#include <xdp/xsk.h>

enum { FRAMES = 8192, RING = 2048, BATCH = 64, PAGE = 4096 };

struct port {
    struct xsk_socket *socket;
    struct xsk_ring_prod fill, tx;
    struct xsk_ring_cons rx, comp;
    uint64_t filled, received, sent, completed;
};

static struct port ports[2];
static uint64_t dropped;

static void must(int64_t done, const char *what)
{
    if (done < 0) {
        fprintf(stderr, "%s: %s; %s\n", what, strerror((int)-done), pagepool_last_error());
        exit(1);
    }
}

/* ---- The allocator: addresses in the UMEM, many at a time ---- */

static struct pagepool_arena *arena;
static struct pagepool *pool; /* NULL: the stack below */
static uint64_t stack[FRAMES];
static size_t on_stack;

static void make_pool(void)
{
    struct pagepool_arena_params arena_params = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_domain *umem;
    arena_params.max_bytes = (uint64_t)FRAMES * PAGE;
    arena_params.commit_all = 1; /* a UMEM is registered whole */
    must(pagepool_arena_create(&arena_params, &arena), "arena");
    must(pagepool_domain_offset("umem", &umem), "domain"); /* a device address is the offset in the arena */
    params.arena = arena;
    params.name = "umem";
    params.domains = &umem;
    params.n_domains = 1;
    must(pagepool_create(&params, &pool), "pool");
    must(pagepool_domain_put(umem), "domain");
    must(pagepool_bind(pool), "bind");
}

static size_t take_frames(uint64_t *addrs, size_t n)
{
    if (pool != NULL)
        return pagepool_alloc_addr_bulk(pool, addrs, n);
    n = n < on_stack ? n : on_stack;
    on_stack -= n;
    memcpy(addrs, &stack[on_stack], n * sizeof(*addrs));
    return n;
}

static void return_frames(const uint64_t *addrs, size_t n)
{
    if (pool != NULL) {
        /* an address may lie anywhere in its frame */
        must(pagepool_put_addr_bulk(pool, addrs, n), "put_addr");
        return;
    }
    for (size_t i = 0; i < n; i++)
        stack[on_stack++] = addrs[i] & ~(uint64_t)(PAGE - 1);
}

/* ---- The rings ---- */

static uint64_t processor_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The time in take_frames and return_frames, in ticks of the CPU's counter. */
static uint64_t allocator_ticks;

static uint64_t ticks(void)
{
    uint64_t now;
#if defined(__x86_64__)
    now = __builtin_ia32_rdtsc();
#else
    __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(now));
#endif
    return now;
}

static void refill(struct port *port)
{
    uint64_t addrs[BATCH], begin;
    uint32_t at = 0, n = xsk_prod_nb_free(&port->fill, BATCH);
    if (n < BATCH)
        return; /* wait until a whole batch fits */
    begin = ticks();
    n = (uint32_t)take_frames(addrs, BATCH);
    allocator_ticks += ticks() - begin;
    if (n == 0 || xsk_ring_prod__reserve(&port->fill, n, &at) != n)
        return;
    for (uint32_t i = 0; i < n; i++)
        *xsk_ring_prod__fill_addr(&port->fill, at + i) = addrs[i];
    xsk_ring_prod__submit(&port->fill, n);
    port->filled += n;
}

/* Returns sent frames to the allocator, once at least `least` are under way. */
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
    return_frames(addrs, n);
    allocator_ticks += ticks() - begin;
}

/* Sends received frames out on the other side, and drops those that its transmit ring has no room for. */
static uint32_t forward(struct port *from, struct port *to)
{
    uint32_t in = 0, out = 0, n = xsk_ring_cons__peek(&from->rx, BATCH, &in);
    uint32_t room = n == 0 ? 0 : xsk_prod_nb_free(&to->tx, n), fits = room < n ? room : n;
    if (fits > 0 && xsk_ring_prod__reserve(&to->tx, fits, &out) != fits)
        fits = 0;
    for (uint32_t i = 0; i < fits; i++)
        *xsk_ring_prod__tx_desc(&to->tx, out + i) = *xsk_ring_cons__rx_desc(&from->rx, in + i);
    for (uint32_t i = fits; i < n; i++, dropped++)
        return_frames(&(uint64_t){xsk_ring_cons__rx_desc(&from->rx, in + i)->addr}, 1);
    xsk_ring_cons__release(&from->rx, n);
    xsk_ring_prod__submit(&to->tx, fits);
    from->received += n;
    to->sent += fits;
    return n;
}

static void wake(struct port *port)
{
    if (xsk_prod_nb_free(&port->tx, RING) < RING && xsk_ring_prod__needs_wakeup(&port->tx))
        /* An error is no loss: the next turn tries again. */
        sendto(xsk_socket__fd(port->socket), NULL, 0, MSG_DONTWAIT, NULL, 0);
    if (xsk_ring_prod__needs_wakeup(&port->fill))
        recvfrom(xsk_socket__fd(port->socket), NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

static uint32_t turn(uint64_t least)
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
    const struct xsk_umem_config umem_config = {RING, RING, PAGE, 0, 0};
    const struct xsk_socket_config config = {RING, RING, {0}, 0, XDP_USE_NEED_WAKEUP | XDP_COPY};
    void *memory = pool != NULL ? pagepool_arena_base(arena)
                                : mmap(NULL, (size_t)FRAMES * PAGE, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct xsk_umem *umem;
    libbpf_set_print(NULL);
    libxdp_set_print(NULL);
    setenv("LIBXDP_SKIP_DISPATCHER", "1", 1); /* its program alone, and nothing in the BPF file system */
    must(xsk_umem__create(&umem, memory, (uint64_t)FRAMES * PAGE, &ports[0].fill, &ports[0].comp,
        &umem_config), "UMEM");
    for (int side = 0; side < 2; side++) {
        struct port *port = &ports[side];
        must(xsk_socket__create_shared(&port->socket, names[side], 0, umem, &port->rx, &port->tx,
            &port->fill, &port->comp, &config), names[side]);
        for (int i = 0; i < RING / BATCH; i++)
            refill(port);
    }
    return umem;
}

/* After the sockets are closed: takes back the frames that the kernel had. The pool refuses addresses that
 * are not out, so every address is tried. */
static int64_t frames_of_the_kernel(void)
{
    int64_t found = 0;
    for (uint64_t addr = 0; addr < (uint64_t)FRAMES * PAGE; addr += PAGE)
        found += pagepool_put_addr(pool, addr) == 0;
    return found;
}

static int64_t close_ports(struct xsk_umem *umem)
{
    int64_t with_kernel = 0, missing;
    struct pagepool_shutdown *shutdown;
    for (int i = 0; i < 10000 && (ports[0].sent != ports[0].completed || ports[1].sent != ports[1].completed);
        i++) {
        turn(1); /* wait for frames that are being sent */
        poll(NULL, 0, 1);
    }
    for (int side = 0; side < 2; side++) {
        struct port *port = &ports[side];
        with_kernel += (int64_t)(port->filled - port->received + port->sent - port->completed);
        xsk_socket__delete(port->socket);
    }
    must(xsk_umem__delete(umem), "UMEM");
    if (pool == NULL)
        return FRAMES - with_kernel - (int64_t)on_stack;
    missing = with_kernel - frames_of_the_kernel();
    must(pagepool_destroy_watched(pool, &shutdown), "destroy");
    must(pagepool_shutdown_wait(shutdown, 1000000000), "a frame is out");
    must(pagepool_shutdown_put(shutdown), "shutdown");
    must(pagepool_arena_put(arena), "arena");
    return missing;
}

int main(int argc, char **argv)
{
    const int plain = argc == 5 && !strcmp(argv[3], "--allocator") && !strcmp(argv[4], "stack");
    if (argc != 3 && !plain) {
        fprintf(stderr, "usage: forward INTERFACE INTERFACE [--allocator stack]\n");
        return 2;
    }
    if (plain)
        while (on_stack < FRAMES)
            stack[on_stack] = on_stack * PAGE, on_stack++;
    else
        make_pool();
    struct xsk_umem *umem = open_ports(argv + 1);
    struct pollfd fds[3] = {
        {xsk_socket__fd(ports[0].socket), POLLIN, 0},
        {xsk_socket__fd(ports[1].socket), POLLIN, 0},
        {0, POLLIN, 0}};
    puts("ready");
    fflush(stdout);
    allocator_ticks = 0;
    while (fds[2].revents == 0)
        if (turn(BATCH) == 0)
            poll(fds, 3, 100);
    const uint64_t frames = ports[0].received + ports[1].received, nanoseconds = processor_ns();
    const double per = frames > 0 ? (double)frames : 1;
    const int64_t missing = close_ports(umem);
    printf("forwarded %llu, dropped %llu, missing %lld; a frame took %.1f ticks in the allocator (%s), "
           "and %.0f ns in all\n",
           (unsigned long long)(frames - dropped), (unsigned long long)dropped, (long long)missing,
           (double)allocator_ticks / per, plain ? "stack" : "pool", (double)nanoseconds / per);
    return missing != 0;
}
