// Clocks, locks, libdispatch and random numbers of the program.
#include "seam.h"
#include <openssl/rand.h>
#include <sched.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

// MARK: - Clocks

static bool has_fixed_calendar;
// 2031-03-01 12:00:00 UTC.
static const time_t calendar = 1930132800;

void CSim_fix_calendar(void) { has_fixed_calendar = true; }

// The timers of DTLS use the calendar, so it advances in each run.
static uint64_t since_calendar(void) { return sim_is_inside ? IN_SIMULATION(uint64_t, sim_calendar()) : 0; }

int clock_gettime(clockid_t clock, struct timespec *time) {
    REAL(clock_gettime);
    bool is_calendar = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (is_calendar && has_fixed_calendar) {
        uint64_t passed = since_calendar();
        time->tv_sec = calendar + (time_t)(passed / 1000000000u);
        time->tv_nsec = (long)(passed % 1000000000u);
        return 0;
    }
    if (!sim_is_inside || is_calendar) return real_clock_gettime(clock, time);
    uint64_t now = IN_SIMULATION(uint64_t, sim_clock());
    *time = (struct timespec){.tv_sec = (time_t)(now / 1000000000u), .tv_nsec = (long)(now % 1000000000u)};
    return 0;
}

time_t time(time_t *result) {
    REAL(time);
    if (!has_fixed_calendar) return real_time(result);
    time_t now = calendar + (time_t)(since_calendar() / 1000000000u);
    if (result) *result = now;
    return now;
}

int gettimeofday(struct timeval *restrict result, void *restrict zone) {
    REAL(gettimeofday);
    if (!has_fixed_calendar) return real_gettimeofday(result, zone);
    uint64_t passed = since_calendar();
    result->tv_sec = calendar + (time_t)(passed / 1000000000u);
    result->tv_usec = (suseconds_t)(passed % 1000000000u / 1000u);
    return 0;
}

// MARK: - Threads and locks

long syscall(long number, ...) {
    REAL(syscall);
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    if (sim_is_inside && number == SYS_futex) {
        // A wake needs no action: the simulation looks at the word itself.
        return (b & FUTEX_CMD_MASK) == FUTEX_WAIT ? IN_SIMULATION(int, sim_futex_wait((void *)a, (uint32_t)c)) : 0;
    }
    if (number == SYS_getrandom) return getrandom((void *)a, (size_t)b, (unsigned int)c);
    return real_syscall(number, a, b, c, d, e, f);
}

int sched_yield(void) {
    REAL(sched_yield);
    return sim_is_inside ? IN_SIMULATION(int, sim_pass()) : real_sched_yield();
}

extern const char __executable_start, etext;

// The library identifies the calling thread next to each change of a turn, so another thread may overtake it
// here. A call by the Swift runtime could hold one of the runtime's locks.
pthread_t pthread_self(void) {
    REAL(pthread_self);
    const char *caller = __builtin_return_address(0);
    if (sim_is_inside && caller >= &__executable_start && caller < &etext) IN_SIMULATION(int, sim_pass());
    return real_pthread_self();
}

// Locks of the Swift runtime, which may be held while the library is called: a task that is cancelled holds
// its own lock during its cancellation handlers.
static unsigned int unlocks;

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    REAL(pthread_mutex_lock);
    if (!sim_is_inside) return real_pthread_mutex_lock(mutex);
    int result;
    while ((result = pthread_mutex_trylock(mutex)) == EBUSY) IN_SIMULATION(int, sim_futex_wait(&unlocks, unlocks));
    return result;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    REAL(pthread_mutex_unlock);
    if (sim_is_inside) unlocks++;
    return real_pthread_mutex_unlock(mutex);
}

// Two processors, and so two event loops.
int sched_getaffinity(pid_t process, size_t size, cpu_set_t *set) {
    REAL(sched_getaffinity);
    if (!sim_is_inside) return real_sched_getaffinity(process, size, set);
    memset(set, 0, size);
    *(unsigned char *)set = 3;
    return 0;
}

void *CSim_make_semaphore(void) {
    sem_t *semaphore = malloc(sizeof *semaphore);
    sem_init(semaphore, 0, 0);
    return semaphore;
}

void CSim_wait(void *semaphore) {
    while (sem_wait(semaphore) != 0 && errno == EINTR) {}
}

void CSim_post(void *semaphore) { sem_post(semaphore); }

void CSim_flush_output(void) { fflush(stdout); }
int CSim_fork(void) { return fork(); }
void CSim_exit(int status) { _exit(status); }

// MARK: - libdispatch

typedef void *object;
extern void *_Block_copy(const void *);
extern void _Block_release(const void *);

struct block {
    void *isa;
    int flags, reserved;
    void (*invoke)(void *);
};

void CSim_call_block(void *block) { ((struct block *)block)->invoke(block); }
void CSim_release_block(void *block) { _Block_release(block); }

void dispatch_async(object, object);
void dispatch_async(object queue, object block) {
    REAL(dispatch_async);
    if (!sim_is_inside) return real_dispatch_async(queue, block);
    IN_SIMULATION(int, sim_dispatch(queue, _Block_copy(block), 0));
}

void dispatch_after(uint64_t, object, object);
void dispatch_after(uint64_t time, object queue, object block) {
    REAL(dispatch_after);
    if (!sim_is_inside) return real_dispatch_after(time, queue, block);
    IN_SIMULATION(int, sim_dispatch(queue, _Block_copy(block), time));
}

object dispatch_source_create(const void *, uintptr_t, uintptr_t, object);
object dispatch_source_create(const void *type, uintptr_t handle, uintptr_t mask, object queue) {
    REAL(dispatch_source_create);
    object source = real_dispatch_source_create(type, handle, mask, queue);
    if (sim_serves((int)handle)) IN_SIMULATION(int, sim_source_created(source, (int)handle));
    return source;
}

void dispatch_source_set_event_handler(object, object);
void dispatch_source_set_event_handler(object source, object block) {
    REAL(dispatch_source_set_event_handler);
    if (!sim_is_inside || !block) return real_dispatch_source_set_event_handler(source, block);
    IN_SIMULATION(int, sim_source_handler(source, _Block_copy(block)));
}

// The sources of simulated threads never fire. The simulation calls the handlers of event loops itself.
void dispatch_activate(object);
void dispatch_activate(object source) {
    REAL(dispatch_activate);
    if (!sim_is_inside) real_dispatch_activate(source);
}

void dispatch_resume(object);
void dispatch_resume(object source) {
    REAL(dispatch_resume);
    if (!sim_is_inside) real_dispatch_resume(source);
}

// MARK: - Random numbers

static uint64_t random_state;
static bool is_seeded;

static int fill(unsigned char *bytes, int count) {
    for (int i = 0; i < count; i++) {
        if (i % 8 == 0) random_state += 0x9E3779B97F4A7C15u;
        uint64_t x = random_state;
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
        x = (x ^ x >> 27) * 0x94D049BB133111EBu;
        bytes[i] = (unsigned char)((x ^ x >> 31) >> i % 8 * 8);
    }
    return 1;
}

static int status(void) { return 1; }
static int seed_with(const void *bytes, int count) { return (void)bytes, (void)count, 1; }

void CSim_seed_random(uint64_t seed) {
    static RAND_METHOD method = {.seed = seed_with, .bytes = fill, .pseudorand = fill, .status = status};
    random_state = seed;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    if (!is_seeded) RAND_set_rand_method(&method);
#pragma GCC diagnostic pop
    is_seeded = true;
}

ssize_t getrandom(void *buffer, size_t count, unsigned int flags) {
    REAL(getrandom);
    if (!is_seeded) return real_getrandom(buffer, count, flags);
    fill(buffer, (int)count);
    return (ssize_t)count;
}

int getentropy(void *buffer, size_t count) {
    REAL(getentropy);
    if (!is_seeded) return real_getentropy(buffer, count);
    fill(buffer, (int)count);
    return 0;
}

void CSim_restart_deterministically(char **arguments) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (getenv("SIMULATION_RESTARTED")) return;
    setenv("SIMULATION_RESTARTED", "1", 1);
    setenv("SWIFT_DETERMINISTIC_HASHING", "1", 1);
    // A container may forbid it. Then the addresses differ between two starts of the program.
    personality(ADDR_NO_RANDOMIZE);
    execv("/proc/self/exe", arguments);
    perror("execv /proc/self/exe");
    exit(3);
}
