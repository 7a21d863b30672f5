// The DTLS peer of Tools/soak/run. ../../Sources/soak describes the exchanges.
#pragma once

#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { header_length = 24, maximum_payload = 1200, maximum_datagram = 2048, limit_ms = 30000, retry_ms = 3000 };

typedef struct {
    uint32_t end, request, reply, mark;
    uint64_t seed;
} Exchange;

_Static_assert(sizeof(Exchange) == header_length, "the header has no padding");

enum { mark = 0x4b414f53 };

// pattern.c
uint64_t next_choice(uint64_t *state);
double random_fraction(uint64_t *state);
void fill_pattern(uint64_t seed, uint8_t *bytes, size_t count);
bool matches_pattern(uint64_t seed, const uint8_t *bytes, size_t count);

// tally.c
typedef struct {
    long live, made, exchanges, bytes, secured, resumed, cancelled, faults;
} Counts;

void count_opened(void);
void count_closed(void);
void count_secured(bool is_resumed);
void count_exchange(const Exchange *exchange);
void count_retry(void);
void plant(uint8_t *bytes, size_t count); // makes a byte wrong now and then, if the run plants wrong bytes
void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void fail(const char *what);
bool is_stopping(void);
void wait_seconds(double seconds);
void start_thread(void *(*body)(void *), void *argument);
void report_until_stopped(void);
extern bool plants_bytes;

// server.c and client.c
void serve(const char *folder);
void connect_clients(const char *folder, uint64_t seed, double pause, double ramp, int port, int count);
