/* Publishes, and ends in the way that its argument names. Whether the file stays is seen from outside. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void *ends(void *unused)
{
    (void)unused;
    exit(0);
}

static void publishes(void)
{
    CHECK(pagepool_publish("exit") == 0);
    struct pagepool *pool = pool_over(arena_of(1 << 20));
    CHECK(pagepool_bind(pool) == 0 && pagepool_alloc_page(pool) != NULL); /* out when it ends */
}

/* Waits for a child that ends by exit(3), and looks that the file is there. */
static void waits(pid_t child)
{
    int status = 0;
    char file[512];
    snprintf(file, sizeof(file), "%s/exit.%d.pagepool", getenv("PAGEPOOL_RUN"), (int)getpid());
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(access(file, F_OK) == 0);
}

/* The library as a plug-in's, which goes before the program does. */
static void unloads(const char *library)
{
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    int (*publish)(const char *) = NULL;
    if (loaded != NULL)
        *(void **)&publish = dlsym(loaded, "pagepool_publish");
    if (publish == NULL || publish("exit") != 0 || dlclose(loaded) != 0) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "return";
    if (argc > 2) {
        unloads(argv[2]);
        return 0;
    }
    publishes();
    if (strcmp(how, "return") == 0)
        return 0;
    if (strcmp(how, "failure") == 0)
        exit(3);
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, ends, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    if (strcmp(how, "fork") == 0) {
        pid_t child = fork();
        if (child == 0)
            exit(0);
        waits(child);
        return 0;
    }
    if (strcmp(how, "clone") == 0) { /* runs no hooks of fork(2) */
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0)
            exit(0);
        waits(child);
        return 0;
    }
    if (strcmp(how, "unpublish") == 0)
        return pagepool_unpublish();
    if (strcmp(how, "_exit") == 0)
        _exit(0);
    if (strcmp(how, "abort") == 0)
        abort();
    raise(SIGKILL);
    return 1;
}
