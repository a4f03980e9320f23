/*
 * Shifts the wall clock of a program by what an 8-byte file says, in microseconds. The file is
 * named by FAULTS_CLOCK and can change at any time. The monotonic clock stays as it is.
 *
 * No function of the C library is looked up and no memory is allocated: programs that bring
 * an allocator of their own may ask for the time before that is ready.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shift;

__attribute__((constructor)) static void begin(void) {
	const char *path = getenv("FAULTS_CLOCK");
	if (path == NULL) {
		return;
	}
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0) {
		return;
	}
	void *page = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
	close(file);
	if (page != MAP_FAILED) {
		shift = page;
	}
}

static int64_t micros(void) {
	struct timespec ts;
	syscall(SYS_clock_gettime, CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000 + (shift == NULL ? 0 : *shift);
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
	(void)tz;
	int64_t now = micros();
	tv->tv_sec = now / 1000000;
	tv->tv_usec = now % 1000000;
	return 0;
}

time_t time(time_t *t) {
	time_t now = micros() / 1000000;
	if (t != NULL) {
		*t = now;
	}
	return now;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) {
		return syscall(SYS_clock_gettime, id, ts);
	}
	int64_t now = micros();
	ts->tv_sec = now / 1000000;
	ts->tv_nsec = now % 1000000 * 1000;
	return 0;
}
