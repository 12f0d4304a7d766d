// Counts the packets that dpdk-testpmd's net_vhost moves, per window of time. A library for LD_PRELOAD.
//
// WINDOWS_FILE    the result goes here, once there are enough windows: packets per second that a tenth and
//                 a half of the windows exceed, and the number of windows
// WINDOWS_COUNT   windows to count, after WARM others
// WINDOWS_SENT    count what net_vhost sends; without it, what it receives
//
// A window in which the back end or the program had to leave its CPU has a low figure. The highest tenth has
// none of those, even on a machine with other work. testpmd must use DPDK's shared libraries, and
// have one worker.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WINDOW_NS 200000
#define WARM 500
#define MOST 50000

typedef uint16_t receive_fn(int, uint16_t, void *, void **, uint16_t);
typedef uint16_t send_fn(int, uint16_t, void **, uint16_t);

static receive_fn *real_receive;
static send_fn *real_send;
static const char *file;
static int count_sent;
static double rates[MOST];
static int wanted, windows;
static uint64_t start, packets;

static int find(struct dl_phdr_info *object, size_t size, void *unused) {
    (void)size, (void)unused;
    if (!strstr(object->dlpi_name, "librte_vhost.so"))
        return 0;
    void *library = dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    real_receive = (receive_fn *)dlsym(library, "rte_vhost_dequeue_burst");
    real_send = (send_fn *)dlsym(library, "rte_vhost_enqueue_burst");
    return 1;
}

static void prepare(void) {
    const char *number = getenv("WINDOWS_COUNT");
    file = getenv("WINDOWS_FILE");
    count_sent = getenv("WINDOWS_SENT") != NULL;
    wanted = number ? atoi(number) : 0;
    dl_iterate_phdr(find, NULL);
    if (!real_receive || !real_send || !file || wanted < 1 || wanted > MOST) {
        fprintf(stderr, "windows.so: needs librte_vhost.so, WINDOWS_FILE, WINDOWS_COUNT to %d\n", MOST);
        exit(1);
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Writes a file of another name first: whoever waits for the file finds all of it.
static void report(void) {
    char other[4096];
    qsort(rates, wanted, sizeof *rates, compare);
    if (snprintf(other, sizeof other, "%s.part", file) >= (int)sizeof other)
        return;
    FILE *out = fopen(other, "w");
    if (!out)
        return;
    fprintf(out, "%.0f %.0f %d\n", rates[wanted - 1 - wanted / 10], rates[wanted / 2], wanted);
    if (fclose(out) == 0)
        rename(other, file);
}

static void count(uint16_t moved) {
    struct timespec time;
    if (windows == WARM + wanted)
        return;
    clock_gettime(CLOCK_MONOTONIC, &time);
    uint64_t now = (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
    packets += moved;
    if (now - start < WINDOW_NS)
        return;
    // Nothing moves before the program is there.
    if (packets > 0 && start > 0) {
        if (windows >= WARM)
            rates[windows - WARM] = packets * 1e9 / (now - start);
        if (++windows == WARM + wanted)
            report();
    }
    start = now, packets = 0;
}

uint16_t rte_vhost_dequeue_burst(int device, uint16_t queue, void *pool, void **into, uint16_t most) {
    if (!real_receive)
        prepare();
    uint16_t got = real_receive(device, queue, pool, into, most);
    if (!count_sent)
        count(got);
    return got;
}

uint16_t rte_vhost_enqueue_burst(int device, uint16_t queue, void **from, uint16_t most) {
    if (!real_send)
        prepare();
    uint16_t sent = real_send(device, queue, from, most);
    if (count_sent)
        count(sent);
    return sent;
}
