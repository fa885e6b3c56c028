/* A wall clock that a test can step while the program runs. Preloaded into redis-server; Linux, 64 bits.
 *
 * The library adds a number of microseconds to the wall clock, and to no other clock. The number is in the file that
 * QUORATE_CLOCK_FILE names, as a signed 64-bit integer in the byte order of this machine. The monotonic and the boot
 * clock do not change, and neither do the timers of the kernel.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#if !defined(__linux__) || __SIZEOF_LONG__ != 8
#error "the stepped clock needs 64-bit Linux"
#endif

static const volatile int64_t *step_us;

__attribute__((constructor)) static void map_step(void) {
    const char *path = getenv("QUORATE_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        _exit(97); /* a test with a clock that cannot be stepped would find no error */
    step_us = page;
    close(file);
}

/* Asks the kernel directly. A lookup of the next clock_gettime would call the allocator, which asks for the time. */
static int stepped(clockid_t clock, struct timespec *at) {
    long failed = syscall(SYS_clock_gettime, clock, at);
    if (failed)
        return (int)failed;
    if (step_us && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t nanos = (int64_t)at->tv_sec * 1000000000 + at->tv_nsec + *step_us * 1000;
        at->tv_sec = nanos / 1000000000;
        at->tv_nsec = nanos % 1000000000;
    }
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) { return stepped(clock, at); }

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (stepped(CLOCK_REALTIME, &now) == 0) {
        at->tv_sec = now.tv_sec;
        at->tv_usec = now.tv_nsec / 1000;
    }
    return 0;
}

time_t time(time_t *at) {
    struct timespec now = {0, 0};
    stepped(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
