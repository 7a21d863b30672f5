#include "soak.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Counts counts;
static long messages; // in which a wrong byte could have been planted
static volatile bool stopping;
bool plants_bytes;

#define CHANGE(statement) (pthread_mutex_lock(&lock), statement, pthread_mutex_unlock(&lock))

void count_opened(void) { CHANGE((counts.live++, counts.made++)); }
void count_closed(void) { CHANGE(counts.live--); }
void count_secured(bool is_resumed) { CHANGE((counts.secured++, counts.resumed += is_resumed)); }
void count_exchange(const Exchange *exchange) {
    CHANGE((counts.exchanges++, counts.bytes += exchange->request + exchange->reply));
}
void count_retry(void) { CHANGE(counts.cancelled++); }

void plant(uint8_t *bytes, size_t count) {
    pthread_mutex_lock(&lock);
    if (plants_bytes && ++messages % 500 == 0) bytes[count / 2] ^= 1;
    pthread_mutex_unlock(&lock);
}

bool is_stopping(void) { return stopping; }

void fault(const char *format, ...) {
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    CHANGE(counts.faults++);
    if (counts.faults <= 50) {
        printf("{\"fault\":\"%s\"}\n", text);
        fflush(stdout);
    }
}

_Noreturn void fail(const char *what) {
    fprintf(stderr, "datagrams: %s: %s\n", what, strerror(errno));
    exit(1);
}

// Waits for a time, but at most a second once the run stops.
void wait_seconds(double seconds) {
    for (; seconds > 0 && !stopping; seconds -= 1) usleep((useconds_t)(1e6 * (seconds < 1 ? seconds : 1)));
}

void start_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, body, argument) != 0) fail("pthread_create");
    pthread_attr_destroy(&attributes);
}

static void *report(void *unused) {
    (void)unused;
    for (;; sleep(1)) {
        pthread_mutex_lock(&lock);
        Counts now = counts;
        pthread_mutex_unlock(&lock);
        printf("{\"counts\":{\"live\":%ld,\"made\":%ld,\"exchanges\":%ld,\"bytes\":%ld,\"secured\":%ld,\"resumed\":%ld,"
               "\"cancelled\":%ld,\"faults\":%ld,\"ends\":{}},\"latencies\":[]}\n",
               now.live, now.made, now.exchanges, now.bytes, now.secured, now.resumed, now.cancelled, now.faults);
        fflush(stdout);
    }
    return NULL;
}

void report_until_stopped(void) {
    start_thread(report, NULL);
    char line[16];
    if (!fgets(line, sizeof line, stdin)) exit(0);
    stopping = true;
    if (!fgets(line, sizeof line, stdin)) exit(0);
}
