/* Loaded into a process of which a case moves the wall clock: adds the hours in a file to each
   reading of that clock. Rust's standard library reads all its clocks by clock_gettime. Those that
   only measure how much time passes are left alone. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int file = -1;

/* A process that should get a wrong time must not run with the right one. */
__attribute__((constructor)) static void open_file(void) {
    const char *path = getenv("REHOP_TEST_FAULTS_CLOCK");
    file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        abort();
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    signed char hours = 0;
    if (result == 0 && file >= 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) &&
        pread(file, &hours, 1, 0) == 1)
        now->tv_sec += hours * 3600;
    return result;
}
