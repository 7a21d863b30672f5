// The parts shared by all workloads: options, clock and error handling.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *mode;
    int port;
    int server_pid;       // the process whose CPU time is measured, or 0
    int connections;
    int held;             // additional connections that stay open throughout the test
    size_t size;          // bytes of a message, or of a bulk transfer
    size_t chunk;         // bytes of one write of the server in a bulk transfer
    size_t piece;         // bytes per write of the client; 0: all
    int pipeline;         // messages in flight per connection
    double rate;          // messages per second in an open loop; 0: closed loop
    double warm, seconds; // duration of the warm-up and of the measurement
    bool tls, resumes, spins;
    bool announces;       // bulk prints a line when the measurement starts
    const char *steps;    // numbers of idle connections, "1000,5000"
} Options;

typedef struct {
    uint64_t time, server_cpu, client_cpu, operations, bytes;
} Sample;

Options options_parse(int count, char **words);

uint64_t now_ns(void);
Sample sample_take(const Options *options, uint64_t operations, uint64_t bytes);
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The workloads. Each runs to completion and prints one line of JSON (`idle`, `udp-idle`
// and `scale` print one per step).
void run_stream(const Options *options);
void run_churn(const Options *options);
void run_bulk(const Options *options);
void run_scale(const Options *options);
void run_idle(const Options *options);
void run_idle_peers(const Options *options);
void run_datagrams(const Options *options);
