// The common part of the load generator: its options, its clock, and its end after an error.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *mode;
    int port;
    int server_pid;       // the process whose processor time is measured; 0: none
    int connections;
    int held;             // additional connections that stay open throughout the test
    size_t size;          // bytes of a message, or of a bulk transfer
    size_t chunk;         // bytes of one write of the server in a bulk transfer
    size_t piece;         // bytes that the client gives the kernel at once; 0: all
    int pipeline;         // messages under way on a connection
    double rate;          // messages a second in an open loop; 0: closed loop
    double warm, seconds; // the time before the measurement, and that of the measurement
    bool tls, resumes, spins;
    bool announces;       // bulk prints a line when it begins to measure
    const char *steps;    // numbers of idle connections, "1000,5000"
} Options;

typedef struct {
    uint64_t time, server_cpu, client_cpu, operations, bytes;
} Sample;

Options options_parse(int count, char **words);

uint64_t now_ns(void);
Sample sample_take(const Options *options, uint64_t operations, uint64_t bytes);
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The workloads. Each runs to its end and prints one line of JSON (`idle` and `udp-idle` print one for each step).
void run_stream(const Options *options);
void run_churn(const Options *options);
void run_bulk(const Options *options);
void run_idle(const Options *options);
void run_idle_peers(const Options *options);
void run_datagrams(const Options *options);
