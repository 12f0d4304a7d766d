/*
 * A child of fork ends by exit(), whatever other threads of its parent were doing in the library. The parent
 * publishes its pools, and only it can take that back. $PAGEPOOL_RUN is a folder of this test.
 */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { CHILDREN = 500, POOLS = 4, SECONDS = 60 };

static volatile int ended;

/* Inside the library nearly always, under the locks of all pools in turn. */
static void *look_at_all_pools(void *arg)
{
    (void)arg;
    while (!ended)
        CHECK(pagepool_dump(NULL, 0) > 0);
    return NULL;
}

/* Forks; a child that hangs is ended by a signal. */
static pid_t fork_child(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        alarm(SECONDS);
    return child;
}

static void wait_for(pid_t child)
{
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        fprintf(stderr, "a child hung for %d s\n", SECONDS);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void fork_and_exit(void)
{
    pid_t child = fork_child();
    if (child == 0)
        exit(0);
    wait_for(child);
}

static pid_t parent;
static int busy = 1;

static int in_use(void *arg, uint64_t cookie)
{
    (void)cookie;
    CHECK(getpid() == parent);
    return *(int *)arg;
}

static void called(void *arg)
{
    (void)arg;
    CHECK(getpid() == parent);
}

/* A pool that has ended while a buffer of it waits for its user. */
static struct pagepool_shutdown *ended_pool(struct pagepool_arena *arena)
{
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    struct pagepool_deferred_user_ops ops = {sizeof(ops), &busy, in_use, called, called};
    struct pagepool_deferred_user *user;
    struct pagepool_shutdown *shutdown = NULL;
    struct pagepool *pool;
    params.arena = arena;
    params.defer_capacity = 4;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    CHECK(pagepool_deferred_user_create(pool, &ops, &user) == 0);
    CHECK(pagepool_defer(pool, user, pagepool_alloc_page(pool), 0) == 0);
    CHECK(pagepool_deferred_user_put(user) == 0 && pagepool_destroy_watched(pool, &shutdown) == 0);
    return shutdown;
}

/* Nor does a call with the handle of such a pool: it is refused. */
static void a_child_has_no_ended_pool(struct pagepool_shutdown *shutdown)
{
    pid_t child = fork_child();
    if (child == 0) {
        CHECK(pagepool_shutdown_wait(shutdown, 0) == -EPERM && pagepool_last_errno() == EPERM);
        CHECK(pagepool_shutdown_report(shutdown, NULL, 0) == -EPERM);
        CHECK(pagepool_shutdown_put_addr(shutdown, 0) == -EPERM && pagepool_shutdown_put(shutdown) == -EPERM);
        exit(0);
    }
    wait_for(child);
}

/* The files that are published. One that is being made has a dot before its name. */
static int published_files(void)
{
    const char *path = getenv("PAGEPOOL_RUN");
    DIR *folder = path ? opendir(path) : NULL;
    int files = 0;
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        files += entry->d_name[0] != '.';
    closedir(folder);
    return files;
}

static void a_child_leaves_the_file_of_its_parent(void)
{
    pid_t child = fork_child();
    if (child == 0) {
        CHECK(pagepool_publish("child") == -EBUSY && pagepool_unpublish() == -ENOENT);
        CHECK(strstr(pagepool_last_error(), "the process that forked this one") != NULL);
        CHECK(pagepool_unpublish() == -ENOENT);
        exit(0);
    }
    wait_for(child);
    CHECK(published_files() == 1);
}

/* A child may make pools of its own, where its parent had one thread; a thread that ends unbinds them. None
 * of its calls runs a callback of a pool that ended in the parent. */
static void *bind_and_end(void *pool)
{
    CHECK(pagepool_bind(pool) == 0);
    return NULL;
}

static void a_child_has_pools_of_its_own(void)
{
    pid_t child = fork_child();
    if (child == 0) {
        struct pagepool_arena *arena = arena_of(4 << 20);
        struct pagepool *pool = pool_over(arena);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, bind_and_end, pool) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(pagepool_bind(pool) == 0 && pagepool_destroy(pool) == 0 && pagepool_arena_put(arena) == 0);
        exit(0);
    }
    wait_for(child);
}

int main(void)
{
    CHECK(pagepool_publish("fork") == 0);
    struct pagepool_arena *arena = arena_of(16 << 20);
    struct pagepool *pools[POOLS];
    pthread_t other;
    for (int i = 0; i < POOLS; i++) {
        pools[i] = pool_over(arena);
        CHECK(pagepool_bind(pools[i]) == 0);
    }
    parent = getpid();
    struct pagepool_shutdown *shutdown = ended_pool(arena);
    a_child_leaves_the_file_of_its_parent();
    a_child_has_pools_of_its_own();
    a_child_has_no_ended_pool(shutdown);
    busy = 0;
    CHECK(pagepool_shutdown_wait(shutdown, 0) == 0 && pagepool_shutdown_put(shutdown) == 0);
    CHECK(pthread_create(&other, NULL, look_at_all_pools, NULL) == 0);
    for (int i = 0; i < CHILDREN; i++)
        fork_and_exit();
    ended = 1;
    CHECK(pthread_join(other, NULL) == 0);
    for (int i = 0; i < POOLS; i++)
        CHECK(pagepool_destroy(pools[i]) == 0);
    CHECK(pagepool_arena_put(arena) == 0);
    CHECK(pagepool_unpublish() == 0 && pagepool_unpublish() == -ENOENT);
    puts("ok");
    return 0;
}
