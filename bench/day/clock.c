/* Preloaded into a program, lets its clocks run FAST times as fast, from the moments FAST_MONO and FAST_REAL on (in
 * nanoseconds; those of its start where they are missing), and has it sleep as much shorter. For programs that read
 * clocks by libc and sleep in epoll_wait, nanosleep and futex, as those of tokio and redis-server do. x86-64. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static long long times, from_monotonic, from_real;

/* libc's own would come back here. */
static long call(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static long answer(long result) {
    if (result < 0 && result > -4096) {
        errno = -result;
        return -1;
    }
    return result;
}

static long long slow(clockid_t clock) {
    struct timespec now;
    call(SYS_clock_gettime, clock, (long)&now, 0, 0, 0, 0);
    return now.tv_sec * SECOND + now.tv_nsec;
}

static long long setting(const char *name, long long otherwise) {
    const char *value = getenv(name);
    return value ? atoll(value) : otherwise;
}

static void set_up(void) {
    if (!times) {
        from_monotonic = setting("FAST_MONO", slow(CLOCK_MONOTONIC));
        from_real = setting("FAST_REAL", slow(CLOCK_REALTIME));
        times = setting("FAST", 1);
    }
}

static long long fast(clockid_t clock) {
    long long now = slow(clock);
    set_up();
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return from_real + (now - from_real) * times;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
        return from_monotonic + (now - from_monotonic) * times;
    default:
        return now;
    }
}

static struct timespec split(long long moment) {
    struct timespec time = {moment / SECOND, moment % SECOND};
    return time;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    *time = split(fast(clock));
    return 0;
}

int gettimeofday(struct timeval *time, void *zone) {
    long long now = fast(CLOCK_REALTIME);
    (void)zone;
    time->tv_sec = now / SECOND;
    time->tv_usec = now % SECOND / 1000;
    return 0;
}

time_t time(time_t *time) {
    time_t now = fast(CLOCK_REALTIME) / SECOND;
    if (time)
        *time = now;
    return now;
}

int epoll_wait(int set, struct epoll_event *events, int most, int milliseconds) {
    set_up();
    if (milliseconds > 0)
        milliseconds = (milliseconds + times - 1) / times;
    return answer(call(SYS_epoll_pwait, set, (long)events, most, milliseconds, 0, 8));
}

int nanosleep(const struct timespec *length, struct timespec *left) {
    set_up();
    struct timespec shorter = split((length->tv_sec * SECOND + length->tv_nsec) / times);
    return answer(call(SYS_nanosleep, (long)&shorter, (long)left, 0, 0, 0, 0));
}

/* Rust's standard library waits on a futex until a moment of the monotonic clock. */
long syscall(long number, ...) {
    va_list words;
    long word[6];
    va_start(words, number);
    for (int i = 0; i < 6; i++)
        word[i] = va_arg(words, long);
    va_end(words);
    set_up();
    struct timespec until;
    if (number == SYS_futex && word[3] && (word[1] & 127) == FUTEX_WAIT_BITSET) {
        const struct timespec *moment = (const struct timespec *)word[3];
        long long at = moment->tv_sec * SECOND + moment->tv_nsec;
        until = split(from_monotonic + (at - from_monotonic) / times);
        word[3] = (long)&until;
    }
    return answer(call(number, word[0], word[1], word[2], word[3], word[4], word[5]));
}
