/* Records the system calls by which a process changes files below one folder, and makes one of them fail.

   Loaded by LD_PRELOAD (see shim.py). Every call of the C library that reads or changes a file below $SHIM_ROOT is
   counted; the one with the number given to shim_fail fails with an error. What changes the disk is written to
   $SHIM_LOG, if that is set, as it succeeds. While the file $SHIM_FULL exists, whatever needs space fails with ENOSPC.

   A record is six numbers of 64 bits (kind, inode, offset, lengths of two names, length of data) and then the names and
   the data. Files are recorded by inode, since a name may be renamed while the file is open. Writes through a shared
   mapping are not calls; the content of such a file is recorded as a whole before it is flushed, renamed or closed.

   Calls within the C library itself do not come by here: the writes of stdio are counted where fwrite, fflush and
   fclose are called, and are not recorded. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, TRUNCATE, SYNC, RENAME, LINK, UNLINK, MKDIR, RMDIR, NOTE, CONTENT };
enum { MAX_MAPPED = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static const char *full;
static int record_to = -1;
static long calls, fail_at, failed;
static int fail_with;
static uint64_t mapped[MAX_MAPPED];
static int mapped_count;

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("SHIM_ROOT"), *log = getenv("SHIM_LOG");
    full = getenv("SHIM_FULL");
    if (folder == NULL || realpath(folder, root) == NULL) return;
    root_length = strlen(root);
    if (log != NULL) record_to = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* For the process itself, by ctypes. */
void shim_fail(long number, int error) {
    pthread_mutex_lock(&lock);
    calls = failed = 0;
    fail_at = number;
    fail_with = error;
    pthread_mutex_unlock(&lock);
}

long shim_failed(void) { return failed; }

static int is_below(const char *path) {
    return root_length && strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || !path[root_length]);
}

static int path_of(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0 && is_below(path);
}

/* The absolute path of a name, of which the last part need not exist. */
static int path_at(int folder, const char *name, char *path) {
    char joined[2 * PATH_MAX], *slash;
    if (!root_length || name == NULL || !*name) return 0;
    if (*name == '/') {
        snprintf(joined, sizeof joined, "%s", name);
    } else {
        char base[PATH_MAX];
        if (folder == AT_FDCWD) {
            if (syscall(SYS_getcwd, base, sizeof base) < 0) return 0;
        } else {
            path_of(folder, base);
        }
        snprintf(joined, sizeof joined, "%s/%s", base, name);
    }
    char last[PATH_MAX] = "", parent[PATH_MAX];
    while ((slash = strrchr(joined, '/')) != NULL && !slash[1] && slash != joined) *slash = 0;
    if (realpath(joined, path) == NULL) {
        if (slash == NULL) return 0;
        snprintf(last, sizeof last, "%s", slash + 1);
        slash[slash == joined] = 0;
        if (realpath(joined, parent) == NULL) return 0;
        snprintf(path, PATH_MAX, "%.*s/%.*s", PATH_MAX / 2, parent, PATH_MAX / 4, last);
    }
    return is_below(path);
}

static uint64_t inode_of(int descriptor) {
    struct stat status;
    return fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

static void put(const void *data, size_t length) {
    const char *next = data;
    while (length) {
        ssize_t done = syscall(SYS_write, record_to, next, length);
        if (done <= 0) abort(); /* half a record would be misread */
        next += done;
        length -= done;
    }
}

static void record(int kind, uint64_t inode, uint64_t offset, const char *name, const char *to, const void *data,
                   size_t length) {
    if (record_to < 0) return;
    int error = errno;
    uint64_t head[6] = {kind, inode, offset, name ? strlen(name) : 0, to ? strlen(to) : 0, length};
    pthread_mutex_lock(&lock);
    put(head, sizeof head);
    put(name, head[3]);
    put(to, head[4]);
    put(data, length);
    pthread_mutex_unlock(&lock);
    errno = error;
}

void shim_note(const char *text) { record(NOTE, 0, 0, text, NULL, NULL, 0); }

static int is_mapped(uint64_t inode) {
    for (int i = 0; i < mapped_count; i++)
        if (mapped[i] == inode) return 1;
    return 0;
}

static void record_content(int descriptor) {
    uint64_t inode = inode_of(descriptor);
    struct stat status;
    if (record_to < 0 || !is_mapped(inode) || fstat(descriptor, &status) != 0 || status.st_size == 0) return;
    void *content = (void *) syscall(SYS_mmap, NULL, status.st_size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (content == MAP_FAILED) return;
    record(CONTENT, inode, 0, NULL, NULL, content, status.st_size);
    syscall(SYS_munmap, content, status.st_size);
}

/* Whether the call that is about to be made has to fail; errno is set then. */
static int fails(int needs_space) {
    if (full != NULL && needs_space && syscall(SYS_faccessat, AT_FDCWD, full, F_OK) == 0) {
        errno = ENOSPC;
        return 1;
    }
    pthread_mutex_lock(&lock);
    calls++;
    int now = fail_at > 0 && calls == fail_at;
    if (now) failed = 1;
    pthread_mutex_unlock(&lock);
    if (now) errno = fail_with;
    return now;
}

/* Opening and closing */

static int open_at(int folder, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    int watched = path_at(folder, name, path);
    struct stat status;
    int is_new = watched && flags & O_CREAT && stat(path, &status) != 0;
    int had_size = watched && !is_new && flags & O_TRUNC && stat(path, &status) == 0;
    if (watched && fails(is_new)) return -1;
    int descriptor = syscall(SYS_openat, folder, name, flags, mode);
    if (descriptor < 0 || !watched || (flags & O_TMPFILE) == O_TMPFILE) return descriptor;
    if (is_new) record(CREATE, inode_of(descriptor), 0, path, NULL, NULL, 0);
    else if (had_size) record(TRUNCATE, inode_of(descriptor), 0, NULL, NULL, NULL, 0);
    return descriptor;
}

#define MODE_OF(flags) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }

int open(const char *name, int flags, ...) { MODE_OF(flags) return open_at(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE_OF(flags) return open_at(AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE_OF(flags) return open_at(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE_OF(flags) return open_at(folder, name, flags, mode); }

FILE *fopen(const char *name, const char *mode) {
    char path[PATH_MAX];
    if (path_at(AT_FDCWD, name, path) && fails(*mode != 'r')) return NULL;
    return REAL(fopen)(name, mode);
}

FILE *fopen64(const char *name, const char *mode) {
    char path[PATH_MAX];
    if (path_at(AT_FDCWD, name, path) && fails(*mode != 'r')) return NULL;
    return REAL(fopen64)(name, mode);
}

int close(int descriptor) {
    char path[PATH_MAX];
    if (root_length && path_of(descriptor, path)) {
        record_content(descriptor);
        if (fails(0)) {
            int error = errno;
            syscall(SYS_close, descriptor); /* Linux closes the file also where it reports an error */
            errno = error;
            return -1;
        }
    }
    return syscall(SYS_close, descriptor);
}

/* Reading and writing */

#define WATCHED(descriptor) (root_length && path_of(descriptor, path))

ssize_t read(int descriptor, void *data, size_t length) {
    char path[PATH_MAX];
    if (WATCHED(descriptor) && fails(0)) return -1;
    return syscall(SYS_read, descriptor, data, length);
}

static ssize_t read_at(int descriptor, void *data, size_t length, off_t offset) {
    char path[PATH_MAX];
    if (WATCHED(descriptor) && fails(0)) return -1;
    return syscall(SYS_pread64, descriptor, data, length, offset);
}

ssize_t pread(int descriptor, void *data, size_t length, off_t offset) {
    return read_at(descriptor, data, length, offset);
}

ssize_t pread64(int descriptor, void *data, size_t length, off_t offset) {
    return read_at(descriptor, data, length, offset);
}

ssize_t write(int descriptor, const void *data, size_t length) {
    char path[PATH_MAX];
    if (!WATCHED(descriptor)) return syscall(SYS_write, descriptor, data, length);
    if (fails(1)) return -1;
    int appends = fcntl(descriptor, F_GETFL) & O_APPEND;
    off_t offset = lseek(descriptor, 0, appends ? SEEK_END : SEEK_CUR);
    ssize_t done = syscall(SYS_write, descriptor, data, length);
    if (done > 0) record(WRITE, inode_of(descriptor), offset, NULL, NULL, data, done);
    return done;
}

static ssize_t write_at(int descriptor, const void *data, size_t length, off_t offset) {
    char path[PATH_MAX];
    int watched = WATCHED(descriptor);
    if (watched && fails(1)) return -1;
    ssize_t done = syscall(SYS_pwrite64, descriptor, data, length, offset);
    if (done > 0 && watched) record(WRITE, inode_of(descriptor), offset, NULL, NULL, data, done);
    return done;
}

ssize_t pwrite(int descriptor, const void *data, size_t length, off_t offset) {
    return write_at(descriptor, data, length, offset);
}

ssize_t pwrite64(int descriptor, const void *data, size_t length, off_t offset) {
    return write_at(descriptor, data, length, offset);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    char path[PATH_MAX];
    if (!WATCHED(descriptor)) return syscall(SYS_writev, descriptor, parts, count);
    ssize_t total = 0;
    for (int i = 0; i < count; i++) { /* one by one, which a call may do */
        ssize_t done = write(descriptor, parts[i].iov_base, parts[i].iov_len);
        if (done < 0) return total ? total : done;
        total += done;
        if ((size_t) done < parts[i].iov_len) break;
    }
    return total;
}

/* Faster ways to copy are refused; whoever asks for them falls back on reading and writing. */
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *there, size_t length, unsigned flags) {
    char path[PATH_MAX];
    if (!WATCHED(to)) return syscall(SYS_copy_file_range, from, at, to, there, length, flags);
    errno = EXDEV;
    return -1;
}

ssize_t sendfile(int to, int from, off_t *offset, size_t length) {
    char path[PATH_MAX];
    if (!WATCHED(to)) return syscall(SYS_sendfile, to, from, offset, length);
    errno = ENOTSOCK;
    return -1;
}

ssize_t sendfile64(int to, int from, off_t *offset, size_t length) { return sendfile(to, from, offset, length); }

size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
    char path[PATH_MAX];
    if (root_length && stream != stderr && stream != stdout && WATCHED(fileno(stream)) && fails(1)) return 0;
    return REAL(fwrite)(data, size, count, stream);
}

int fflush(FILE *stream) {
    char path[PATH_MAX];
    if (root_length && stream != NULL && WATCHED(fileno(stream)) && fails(1)) return EOF;
    return REAL(fflush)(stream);
}

int fclose(FILE *stream) {
    char path[PATH_MAX];
    int watched = root_length && WATCHED(fileno(stream)), now = watched && fails(1), error = errno;
    int result = REAL(fclose)(stream);
    if (now) errno = error;
    return now ? EOF : result;
}

/* Sizes and mappings */

static int truncate_to(int descriptor, off_t size) {
    char path[PATH_MAX];
    int watched = WATCHED(descriptor);
    if (watched && fails(0)) return -1;
    int result = syscall(SYS_ftruncate, descriptor, size);
    if (result == 0 && watched) record(TRUNCATE, inode_of(descriptor), size, NULL, NULL, NULL, 0);
    return result;
}

int ftruncate(int descriptor, off_t size) { return truncate_to(descriptor, size); }
int ftruncate64(int descriptor, off_t size) { return truncate_to(descriptor, size); }

static int allocate(int descriptor, off_t offset, off_t length) {
    char path[PATH_MAX];
    struct stat status;
    int watched = WATCHED(descriptor);
    if (watched && fails(1)) return -1;
    int result = syscall(SYS_fallocate, descriptor, 0, offset, length);
    if (result == 0 && watched && fstat(descriptor, &status) == 0)
        record(TRUNCATE, inode_of(descriptor), status.st_size, NULL, NULL, NULL, 0);
    return result;
}

int fallocate(int descriptor, int mode, off_t offset, off_t length) {
    return mode ? syscall(SYS_fallocate, descriptor, mode, offset, length) : allocate(descriptor, offset, length);
}

int posix_fallocate(int descriptor, off_t offset, off_t length) { return allocate(descriptor, offset, length) ? errno : 0; }
int posix_fallocate64(int descriptor, off_t offset, off_t length) { return allocate(descriptor, offset, length) ? errno : 0; }

static void *map(void *address, size_t length, int protection, int flags, int descriptor, off_t offset) {
    char path[PATH_MAX];
    if (descriptor >= 0 && WATCHED(descriptor)) {
        if (fails(0)) return MAP_FAILED;
        uint64_t inode = inode_of(descriptor);
        pthread_mutex_lock(&lock);
        if (flags & MAP_SHARED && protection & PROT_WRITE && !is_mapped(inode) && mapped_count < MAX_MAPPED)
            mapped[mapped_count++] = inode;
        pthread_mutex_unlock(&lock);
    }
    return (void *) syscall(SYS_mmap, address, length, protection, flags, descriptor, offset);
}

void *mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset) {
    return map(address, length, protection, flags, descriptor, offset);
}

void *mmap64(void *address, size_t length, int protection, int flags, int descriptor, off_t offset) {
    return map(address, length, protection, flags, descriptor, offset);
}

/* Flushing: the name of a folder is recorded with its inode */

static int flush(int descriptor, long number) {
    char path[PATH_MAX];
    if (!WATCHED(descriptor)) return syscall(number, descriptor);
    record_content(descriptor);
    if (fails(0)) return -1;
    int result = syscall(number, descriptor);
    if (result == 0) record(SYNC, inode_of(descriptor), 0, path, NULL, NULL, 0);
    return result;
}

int fsync(int descriptor) { return flush(descriptor, SYS_fsync); }
int fdatasync(int descriptor) { return flush(descriptor, SYS_fdatasync); }

/* Names */

static int rename_at(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    char old[PATH_MAX], new[PATH_MAX];
    int watched = path_at(from_folder, from, old) && path_at(to_folder, to, new);
    if (watched && fails(0)) return -1;
    int result = syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
    if (result == 0 && watched) record(RENAME, 0, 0, old, new, NULL, 0);
    return result;
}

int rename(const char *from, const char *to) { return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0); }

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    return rename_at(from_folder, from, to_folder, to, 0);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    return rename_at(from_folder, from, to_folder, to, flags);
}

static int link_at(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    char old[PATH_MAX], new[PATH_MAX];
    int watched = path_at(from_folder, from, old) && path_at(to_folder, to, new);
    if (watched && fails(0)) return -1;
    int result = syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
    if (result == 0 && watched) record(LINK, 0, 0, old, new, NULL, 0);
    return result;
}

int link(const char *from, const char *to) { return link_at(AT_FDCWD, from, AT_FDCWD, to, 0); }

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    return link_at(from_folder, from, to_folder, to, flags);
}

static int remove_at(int folder, const char *name, int flags) {
    char path[PATH_MAX];
    int watched = path_at(folder, name, path);
    if (watched && fails(0)) return -1;
    int result = syscall(SYS_unlinkat, folder, name, flags);
    if (result == 0 && watched) record(flags & AT_REMOVEDIR ? RMDIR : UNLINK, 0, 0, path, NULL, NULL, 0);
    return result;
}

int unlink(const char *name) { return remove_at(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return remove_at(AT_FDCWD, name, AT_REMOVEDIR); }
int unlinkat(int folder, const char *name, int flags) { return remove_at(folder, name, flags); }

static int make_folder(int folder, const char *name, mode_t mode) {
    char path[PATH_MAX];
    int watched = path_at(folder, name, path);
    if (watched && fails(1)) return -1;
    int result = syscall(SYS_mkdirat, folder, name, mode);
    if (result == 0 && watched) record(MKDIR, 0, 0, path, NULL, NULL, 0);
    return result;
}

int mkdir(const char *name, mode_t mode) { return make_folder(AT_FDCWD, name, mode); }
int mkdirat(int folder, const char *name, mode_t mode) { return make_folder(folder, name, mode); }
