#define _GNU_SOURCE
/* pagepool_publish: the file is there while the process publishes, only for its user, and goes with it. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static char folder[64];
static char file[160];

/* The mode of the published file; 0 if there is none. */
static mode_t mode_of_file(void)
{
    struct stat found;
    snprintf(file, sizeof(file), "%s/c-test.%d.pagepool", folder, (int)getpid());
    return stat(file, &found) == 0 ? found.st_mode & 0777 : 0;
}

static void refused(void)
{
    CHECK(pagepool_unpublish() == -ENOENT && strstr(pagepool_last_error(), "call pagepool_publish first"));
    CHECK(pagepool_publish(NULL) == -EINVAL && pagepool_publish("") == -EINVAL);
    CHECK(pagepool_publish("../passwd") == -EINVAL && strstr(pagepool_last_error(), "letters, digits"));
    CHECK(setenv("PAGEPOOL_RUN", "relative", 1) == 0 && pagepool_publish("c-test") == -EINVAL);
    CHECK(chmod(folder, 0777) == 0 && setenv("PAGEPOOL_RUN", folder, 1) == 0);
    CHECK(pagepool_publish("c-test") == -EINVAL && strstr(pagepool_last_error(), "no other user may write"));
    CHECK(chmod(folder, 0700) == 0 && mode_of_file() == 0);
}

/* What the file has from a place on, as a number. */
static uint64_t number_at(off_t at)
{
    uint64_t number = 0;
    int fd = open(file, O_RDONLY);
    CHECK(fd >= 0 && pread(fd, &number, sizeof(number), at) == sizeof(number) && close(fd) == 0);
    return number;
}

/* Whether the file has a number anywhere. */
static int has_number(uint64_t number)
{
    uint64_t words[512];
    ssize_t got;
    int found = 0, fd = open(file, O_RDONLY);
    CHECK(fd >= 0);
    while (!found && (got = read(fd, words, sizeof(words))) > 0)
        for (size_t at = 0; at < (size_t)got / sizeof(*words); at++)
            found |= words[at] == number;
    CHECK(close(fd) == 0);
    return found;
}

/* What the inline functions do is counted in the file, as what the library does. */
static void counters_are_there(struct pagepool *pool)
{
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    struct pagepool_buf *bufs[32];
    for (int i = 0; i < 54321; i++)
        CHECK(pagepool_buf_put(pagepool_alloc_page(pool)) == 0);
    for (int i = 0; i < 100; i++)
        CHECK(pagepool_alloc_bulk(pool, bufs, 32) == 32 && pagepool_buf_put_bulk(bufs, 32) == 0);
    CHECK(pagepool_read_stats(pool, &stats) == 0);
    CHECK(stats.alloc_fast > 50000 && stats.recycle_cached > stats.alloc_fast);
    CHECK(has_number(stats.alloc_fast) && has_number(stats.recycle_cached));
    CHECK(!has_number(stats.recycle_cached + 1));
}

/* A pool that a child of fork has as well, and breaks there. */
static void a_child_changes_nothing(struct pagepool *pool)
{
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    uint64_t last_sign = number_at(56);
    int status = 0;
    pid_t child = fork();
    CHECK(buf != NULL && child >= 0);
    if (child == 0) {
        pagepool_buf_put(buf);
        pagepool_destroy(pool);
        pagepool_sign_of_life();
        exit(pagepool_publish("child") == -EBUSY ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(number_at(56) == last_sign && pagepool_buf_put(buf) == 0);
    pagepool_sign_of_life();
    CHECK(number_at(56) > last_sign);
}

/* The row of the entry table that has a text, or -1. */
static off_t place_of(const char *text)
{
    static char bytes[2 << 20];
    int fd = open(file, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t got = pread(fd, bytes, sizeof(bytes), 0);
    CHECK(got > 0 && close(fd) == 0);
    const char *found = memmem(bytes, (size_t)got, text, strlen(text));
    return found == NULL ? -1 : (off_t)(found - bytes);
}

/* What the program shows beside its pools, with counters that it sets. */
static void entries(struct pagepool *pool)
{
    const char *const counters[] = {"in_rx", "in_tx"};
    struct pagepool_entry_params params = PAGEPOOL_ENTRY_PARAMS_INIT;
    params.kind = "socket";
    params.name = "entry-of-c:0";
    params.params = "ifindex=1\nqueue=0";
    params.pool = pool;
    params.counters = counters;
    params.n_counters = 2;
    int entry = pagepool_publish_entry(&params);
    CHECK(entry > 0 && place_of("entry-of-c:0") > 0 && place_of("ifindex=1\nqueue=0\n") > 0);
    CHECK(pagepool_entry_set(entry, 0, 0xfeedface12345678) == 0 && has_number(0xfeedface12345678));
    CHECK(pagepool_entry_set(entry, 1, 7) == 0 && pagepool_entry_set(entry, 2, 7) == -EINVAL);
    CHECK(strstr(pagepool_last_error(), "counter is 2, but must be below 2"));
    CHECK(pagepool_entry_put(entry) == 0 && pagepool_entry_put(entry) == -ESTALE);
    CHECK(pagepool_entry_set(entry, 0, 1) == -ESTALE && pagepool_entry_set(-1, 0, 1) == -EINVAL);
    CHECK(pagepool_entry_put(entry + 1) == -EINVAL && pagepool_publish_entry(NULL) == -EINVAL);
    params.kind = "pool";
    CHECK(pagepool_publish_entry(&params) == -EINVAL && strstr(pagepool_last_error(), "automatically"));
    params.kind = "a kind of 17 bytes";
    CHECK(pagepool_publish_entry(&params) == -EINVAL && strstr(pagepool_last_error(), "up to 16 bytes"));
    params.kind = NULL;
    CHECK(pagepool_publish_entry(&params) == -EINVAL && strstr(pagepool_last_error(), "kind is NULL"));
    params.kind = "socket";
    params.pool = (struct pagepool *)(uintptr_t)5;
    CHECK(pagepool_publish_entry(&params) == -EINVAL);
    params.pool = NULL;
    CHECK((entry = pagepool_publish_entry(&params)) > 0); /* stays until the end */
}

int main(void)
{
    const char *parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof(folder), "%s/pagepool-c-XXXXXX", parent);
    CHECK(mkdtemp(folder) != NULL);
    refused();
    CHECK(pagepool_publish("c-test") == 0 && mode_of_file() == 0600);
    CHECK(pagepool_publish("again") == -EBUSY);
    CHECK(memcmp((uint64_t[]){number_at(0)}, "PAGEPOOL", 8) == 0 && number_at(24) == (uint64_t)getpid());
    struct pagepool_arena *arena = arena_of(1 << 20);
    struct pagepool *pool = pool_over(arena);
    CHECK(pagepool_bind(pool) == 0);
    counters_are_there(pool);
    a_child_changes_nothing(pool);
    entries(pool);
    CHECK(pagepool_unpublish() == 0 && mode_of_file() == 0 && pagepool_unpublish() == -ENOENT);
    struct pagepool_entry_params params = PAGEPOOL_ENTRY_PARAMS_INIT;
    params.kind = "late";
    CHECK(pagepool_publish_entry(&params) == -ENOENT);
    pagepool_sign_of_life();
    CHECK(pagepool_buf_put(pagepool_alloc_page(pool)) == 0);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_arena_put(arena) == 0);
    CHECK(rmdir(folder) == 0);
    return 0;
}
