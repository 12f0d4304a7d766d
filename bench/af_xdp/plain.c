// SPDX-License-Identifier: MIT OR Apache-2.0
/* plain.c - AF_XDP with only libxdp's ring functions: no pool, no table, no check of what the kernel returns.
 *
 *   plain drop|echo IF         returns each buffer to the fill ring that it came from
 *   plain forward IF IF        forwards between two interfaces over one UMEM
 *
 * Runs until its standard input ends. Then prints TSC cycles per packet as JSON, counting only bursts that
 * received packets. cc -O3 -march=native plain.c -lxdp -lbpf */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <x86intrin.h>
#include <xdp/xsk.h>

enum { RING = 2048, FRAME = 4096, PER_PORT = 2 * RING, BURST = 64, PORTS = 2 };

struct port {
	struct xsk_socket *socket;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons rx, done;
	unsigned on_tx; /* sent, not yet completed */
};

static struct xsk_umem *umem;
static char *memory;
static struct port ports[PORTS];
static uint64_t rx_ticks, rx_packets;

/* Whether standard input ended. Every loop checks, because the parent may be gone. */
static int input_ended(void)
{
	static unsigned calls;
	struct pollfd in = {.fd = 0, .events = POLLIN};

	return !(++calls % 65536) && poll(&in, 1, 0) > 0;
}

/* Call this while a ring is full. */
static void ring_full(void)
{
	if (input_ended()) {
		fprintf(stderr, "a ring stayed full\n");
		exit(1);
	}
}

static void check(int error, const char *what)
{
	if (error) {
		fprintf(stderr, "%s: %s\n", what, strerror(error < 0 ? -error : error));
		exit(1);
	}
}

static void open_port(int n, const char *link)
{
	struct port *p = &ports[n];
	struct xsk_umem_config memory_config = {
		.fill_size = PER_PORT, .comp_size = RING, .frame_size = FRAME};
	struct xsk_socket_config config = {
		.rx_size = RING, .tx_size = RING, .bind_flags = XDP_USE_NEED_WAKEUP | XDP_COPY};
	uint64_t size = (uint64_t)PORTS * PER_PORT * FRAME;
	uint32_t at;

	if (!n) {
		memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		check(memory == MAP_FAILED ? errno : 0, "mmap");
		check(xsk_umem__create(&umem, memory, size, &p->fill, &p->done, &memory_config), "umem");
	}
	check(xsk_socket__create_shared(&p->socket, link, 0, umem, &p->rx, &p->tx, &p->fill, &p->done, &config),
	      link);
	check(xsk_ring_prod__reserve(&p->fill, RING, &at) != RING, "fill");
	for (uint64_t i = 0; i < RING; i++)
		*xsk_ring_prod__fill_addr(&p->fill, at + i) = ((uint64_t)n * PER_PORT + i) * FRAME;
	xsk_ring_prod__submit(&p->fill, RING);
}

/* Receives a burst and returns its buffers at once. */
static unsigned drop(struct port *p)
{
	uint32_t from, to;
	uint64_t start = __rdtsc();
	unsigned got = xsk_ring_cons__peek(&p->rx, BURST, &from);

	if (!got)
		return 0;
	while (xsk_ring_prod__reserve(&p->fill, got, &to) != got)
		ring_full();
	for (unsigned i = 0; i < got; i++)
		*xsk_ring_prod__fill_addr(&p->fill, to + i) =
			xsk_umem__extract_addr(xsk_ring_cons__rx_desc(&p->rx, from + i)->addr);
	xsk_ring_prod__submit(&p->fill, got);
	xsk_ring_cons__release(&p->rx, got);
	rx_ticks += __rdtsc() - start;
	rx_packets += got;
	return got;
}

/* Returns the buffers that `out` has sent to the fill ring of `in`, where they came from. */
static unsigned complete(struct port *out, struct port *in)
{
	uint32_t from, to;
	unsigned done;

	if (!out->on_tx)
		return 0;
	if (xsk_ring_prod__needs_wakeup(&out->tx))
		sendto(xsk_socket__fd(out->socket), NULL, 0, MSG_DONTWAIT, NULL, 0);
	done = xsk_ring_cons__peek(&out->done, BURST, &from);
	if (!done)
		return 0;
	while (xsk_ring_prod__reserve(&in->fill, done, &to) != done)
		ring_full();
	for (unsigned i = 0; i < done; i++)
		*xsk_ring_prod__fill_addr(&in->fill, to + i) = *xsk_ring_cons__comp_addr(&out->done, from + i);
	xsk_ring_prod__submit(&in->fill, done);
	xsk_ring_cons__release(&out->done, done);
	out->on_tx -= done;
	return done;
}

static void swap_addresses(char *frame)
{
	char first[6];
	memcpy(first, frame, 6);
	memcpy(frame, frame + 6, 6);
	memcpy(frame + 6, first, 6);
}

/* Sends a burst from `in` through `out`. */
static unsigned send_on(struct port *in, struct port *out, int swap)
{
	uint32_t from, to;
	uint64_t start = __rdtsc();
	unsigned got = xsk_ring_cons__peek(&in->rx, BURST, &from);

	if (!got)
		return 0;
	while (xsk_ring_prod__reserve(&out->tx, got, &to) != got)
		complete(out, in), ring_full();
	for (unsigned i = 0; i < got; i++) {
		const struct xdp_desc *d = xsk_ring_cons__rx_desc(&in->rx, from + i);
		struct xdp_desc *o = xsk_ring_prod__tx_desc(&out->tx, to + i);
		if (swap)
			swap_addresses(memory + d->addr);
		o->addr = d->addr;
		o->len = d->len;
		o->options = 0;
	}
	xsk_ring_prod__submit(&out->tx, got);
	xsk_ring_cons__release(&in->rx, got);
	out->on_tx += got;
	rx_ticks += __rdtsc() - start;
	rx_packets += got;
	return got;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int two = !strcmp(what, "forward"), echo = !strcmp(what, "echo");

	if (argc < 3 + two) {
		fprintf(stderr, "usage: plain drop|echo IF, or plain forward IF IF\n");
		return 2;
	}
	for (int i = 0; i <= two; i++)
		open_port(i, argv[2 + i]);
	while (!input_ended()) {
		if (two) {
			send_on(&ports[0], &ports[1], 0), send_on(&ports[1], &ports[0], 0);
			complete(&ports[1], &ports[0]), complete(&ports[0], &ports[1]);
		} else if (echo) {
			send_on(&ports[0], &ports[0], 1), complete(&ports[0], &ports[0]);
		} else {
			drop(&ports[0]);
		}
	}
	printf("{\"receive\":%.1f}\n", (double)rx_ticks / (double)(rx_packets ? rx_packets : 1));
	for (int i = 0; i <= two; i++)
		xsk_socket__delete(ports[i].socket);
	return 0;
}
