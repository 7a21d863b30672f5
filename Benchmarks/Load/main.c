// load --mode MODE --port PORT [options]: the client for all servers, so that the results are comparable.
// ../README.md describes the modes.
#include "load.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("\n", stderr);
    va_end(arguments);
    exit(1);
}

static uint64_t cpu_of(clockid_t clock) {
    struct timespec time;
    if (clock_gettime(clock, &time) != 0) die("cannot read the processor time: %s", strerror(errno));
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

// The user and system time of all threads, including exited ones, in nanoseconds. See clock_getcpuclockid(3).
Sample sample_take(const Options *options, uint64_t operations, uint64_t bytes) {
    Sample sample = {.operations = operations, .bytes = bytes, .client_cpu = cpu_of(CLOCK_PROCESS_CPUTIME_ID)};
    clockid_t clock;
    if (options->server_pid > 0) {
        if (clock_getcpuclockid(options->server_pid, &clock) != 0) die("no process has the id %d", options->server_pid);
        sample.server_cpu = cpu_of(clock);
    }
    sample.time = now_ns();
    return sample;
}

static double number(const char *word) {
    char *end;
    double value = strtod(word, &end);
    if (*end || value < 0) die("%s is not a number", word);
    return value;
}

Options options_parse(int count, char **words) {
    Options options = {.connections = 1, .size = 64, .chunk = 65536, .pipeline = 1, .warm = 0.2, .seconds = 1, .steps = "1000,5000"};
    static const struct option known[] = {
        {"mode", 1, 0, 'm'}, {"port", 1, 0, 'p'}, {"server-pid", 1, 0, 'i'}, {"connections", 1, 0, 'c'}, {"size", 1, 0, 's'},
        {"chunk", 1, 0, 'k'}, {"piece", 1, 0, 'P'}, {"pipeline", 1, 0, 'n'}, {"rate", 1, 0, 'r'}, {"warm", 1, 0, 'w'},
        {"seconds", 1, 0, 'd'}, {"tls", 0, 0, 't'}, {"resume", 0, 0, 'R'}, {"spin", 0, 0, 'S'}, {"steps", 1, 0, 'T'}, {"announce", 0, 0, 'a'},
        {"held", 1, 0, 'H'}, {0, 0, 0, 0}};
    for (int letter; (letter = getopt_long(count, words, "", known, NULL)) != -1;) {
        switch (letter) {
        case 'm': options.mode = optarg; break;
        case 'p': options.port = (int)number(optarg); break;
        case 'i': options.server_pid = (int)number(optarg); break;
        case 'c': options.connections = (int)number(optarg); break;
        case 's': options.size = (size_t)number(optarg); break;
        case 'k': options.chunk = (size_t)number(optarg); break;
        case 'P': options.piece = (size_t)number(optarg); break;
        case 'n': options.pipeline = (int)number(optarg); break;
        case 'r': options.rate = number(optarg); break;
        case 'w': options.warm = number(optarg); break;
        case 'd': options.seconds = number(optarg); break;
        case 't': options.tls = true; break;
        case 'R': options.resumes = true; break;
        case 'S': options.spins = true; break;
        case 'a': options.announces = true; break;
        case 'H': options.held = (int)number(optarg); break;
        case 'T': options.steps = optarg; break;
        default: exit(2);
        }
    }
    if (!options.mode || options.port == 0) die("--mode and --port are required");
    if (options.connections < 1 || options.pipeline < 1 || options.size < 1 || options.chunk < 1) die("--connections, --pipeline, --size and --chunk must be at least 1");
    return options;
}

static const struct { const char *mode; void (*run)(const Options *); } workloads[] = {
    {"echo", run_stream}, {"lines", run_stream}, {"count", run_stream}, {"connect", run_churn}, {"starttls", run_churn},
    {"receive", run_bulk}, {"source", run_bulk}, {"idle", run_idle}, {"scale", run_scale},
    {"udp-echo", run_datagrams}, {"udp-receive", run_datagrams}, {"udp-source", run_datagrams}, {"udp-connect", run_datagrams},
    {"udp-idle", run_idle_peers}};

int main(int count, char **words) {
    signal(SIGPIPE, SIG_IGN);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    Options options = options_parse(count, words);
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++)
        if (strcmp(options.mode, workloads[i].mode) == 0) return workloads[i].run(&options), 0;
    die("no mode is named %s", options.mode);
}
