/* Fails, shortens or dies in the Nth call of one kind below one directory; preloaded into an unmodified Python.
 *
 * Nothing happens until failnth_arm is called, which also starts the count anew, so that a warm process can
 * fork one child for each case. A file counts when its path lies below the armed directory.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum mode { FAIL, SHORT, KILL_BEFORE, KILL_AFTER };

struct fault {
    char call[16];
    int first;
    int last;
    int mode;
    int error;
    atomic_int seen;
    atomic_int fired;
};

static char directory[PATH_MAX];
static struct fault faults[2];
static int armed;

void failnth_arm(const char *below, int slot, const char *call, int first, int count, int mode, int error)
{
    struct fault *fault = &faults[slot];
    snprintf(directory, sizeof directory, "%s/", below);
    snprintf(fault->call, sizeof fault->call, "%s", call);
    fault->first = first;
    fault->last = count < 0 ? INT_MAX : first + count - 1;
    fault->mode = mode;
    fault->error = error;
    atomic_store(&fault->seen, 0);
    atomic_store(&fault->fired, 0);
    armed = 1;
}

int failnth_fired(int slot)
{
    return atomic_load(&faults[slot].fired);
}

static int inside(const char *path)
{
    size_t length = strlen(directory);
    return strncmp(path, directory, length) == 0 || (strlen(path) == length - 1 && strncmp(path, directory, length - 1) == 0);
}

static int fd_inside(int fd)
{
    char link[64], path[PATH_MAX];
    ssize_t length;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return inside(path);
}

static int path_inside(int at, const char *path)
{
    if (path[0] == '/')
        return inside(path);
    return at != AT_FDCWD && fd_inside(at);
}

/* The fault that this call must suffer, or NULL. Counts the call. */
static struct fault *due(const char *call)
{
    for (int slot = 0; slot < 2; slot++) {
        struct fault *fault = &faults[slot];
        if (strcmp(fault->call, call) != 0)
            continue;
        int number = atomic_fetch_add(&fault->seen, 1) + 1;
        if (number >= fault->first && number <= fault->last) {
            atomic_fetch_add(&fault->fired, 1);
            return fault;
        }
    }
    return NULL;
}

#define REAL(type, name, ...)                               \
    static type (*real)(__VA_ARGS__);                       \
    if (!real)                                              \
        real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* Runs the real call as the fault demands; SHORT means nothing to a call that moves no bytes. */
#define SUFFER(fault, type, call_it)        \
    do {                                    \
        type result;                        \
        if (!(fault) || (fault)->mode == SHORT) \
            return call_it;                 \
        if ((fault)->mode == FAIL) {        \
            errno = (fault)->error;         \
            return -1;                      \
        }                                   \
        if ((fault)->mode == KILL_BEFORE)   \
            raise(SIGKILL);                 \
        result = call_it;                   \
        raise(SIGKILL);                     \
        return result;                      \
    } while (0)

ssize_t write(int fd, const void *bytes, size_t size)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    struct fault *fault = armed && fd_inside(fd) ? due("write") : NULL;
    if (fault && fault->mode == SHORT && size > 1)
        return real(fd, bytes, size / 2);
    if (fault && fault->mode == KILL_BEFORE && size > 1) {
        real(fd, bytes, size / 2);
        raise(SIGKILL);
    }
    SUFFER(fault, ssize_t, real(fd, bytes, size));
}

#define ON_FD(symbol, call)                                              \
    int symbol(int fd)                                                   \
    {                                                                    \
        REAL(int, #symbol, int);                                         \
        struct fault *fault = armed && fd_inside(fd) ? due(call) : NULL; \
        SUFFER(fault, int, real(fd));                                    \
    }
ON_FD(fsync, "fsync")
ON_FD(fdatasync, "fdatasync")

#define TRUNCATE(symbol, offset)                                                \
    int symbol(int fd, offset size)                                             \
    {                                                                           \
        REAL(int, #symbol, int, offset);                                        \
        struct fault *fault = armed && fd_inside(fd) ? due("ftruncate") : NULL; \
        SUFFER(fault, int, real(fd, size));                                     \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define TWO_PATHS(symbol, call)                                                             \
    int symbol(const char *from, const char *to)                                            \
    {                                                                                       \
        REAL(int, #symbol, const char *, const char *);                                     \
        struct fault *fault = armed && path_inside(AT_FDCWD, to) ? due(call) : NULL;        \
        SUFFER(fault, int, real(from, to));                                                 \
    }
TWO_PATHS(rename, "rename")
TWO_PATHS(link, "link")

int renameat(int at, const char *from, int to_at, const char *to)
{
    REAL(int, "renameat", int, const char *, int, const char *);
    struct fault *fault = armed && path_inside(to_at, to) ? due("rename") : NULL;
    SUFFER(fault, int, real(at, from, to_at, to));
}

int linkat(int at, const char *from, int to_at, const char *to, int flags)
{
    REAL(int, "linkat", int, const char *, int, const char *, int);
    struct fault *fault = armed && path_inside(to_at, to) ? due("link") : NULL;
    SUFFER(fault, int, real(at, from, to_at, to, flags));
}

int unlink(const char *path)
{
    REAL(int, "unlink", const char *);
    struct fault *fault = armed && path_inside(AT_FDCWD, path) ? due("unlink") : NULL;
    SUFFER(fault, int, real(path));
}

int unlinkat(int at, const char *path, int flags)
{
    REAL(int, "unlinkat", int, const char *, int);
    struct fault *fault = armed && path_inside(at, path) ? due("unlink") : NULL;
    SUFFER(fault, int, real(at, path, flags));
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, "mkdir", const char *, mode_t);
    struct fault *fault = armed && path_inside(AT_FDCWD, path) ? due("mkdir") : NULL;
    SUFFER(fault, int, real(path, mode));
}

int mkdirat(int at, const char *path, mode_t mode)
{
    REAL(int, "mkdirat", int, const char *, mode_t);
    struct fault *fault = armed && path_inside(at, path) ? due("mkdir") : NULL;
    SUFFER(fault, int, real(at, path, mode));
}

static mode_t mode_of(int flags, va_list arguments)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(symbol)                                                                                       \
    int symbol(const char *path, int flags, ...)                                                           \
    {                                                                                                      \
        REAL(int, #symbol, const char *, int, ...);                                                        \
        va_list arguments;                                                                                 \
        va_start(arguments, flags);                                                                        \
        mode_t mode = mode_of(flags, arguments);                                                           \
        va_end(arguments);                                                                                 \
        struct fault *fault = armed && flags & O_CREAT && path_inside(AT_FDCWD, path) ? due("open") : NULL; \
        SUFFER(fault, int, real(path, flags, mode));                                                       \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(symbol)                                                                               \
    int symbol(int at, const char *path, int flags, ...)                                             \
    {                                                                                                \
        REAL(int, #symbol, int, const char *, int, ...);                                             \
        va_list arguments;                                                                           \
        va_start(arguments, flags);                                                                  \
        mode_t mode = mode_of(flags, arguments);                                                     \
        va_end(arguments);                                                                           \
        struct fault *fault = armed && flags & O_CREAT && path_inside(at, path) ? due("open") : NULL; \
        SUFFER(fault, int, real(at, path, flags, mode));                                             \
    }
OPENAT(openat)
OPENAT(openat64)
