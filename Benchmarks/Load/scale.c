// Many connections at the same time. Opens all of them, with an echo of one byte on each (`accept`). Then performs the steps
// that it reads from standard input, and prints a line after each: `echo` exchanges a message with each connection,
// `broadcast` waits until each has received a message, and `end` closes all of them at the same time.
#include "connection.h"
#include "load.h"
#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

typedef enum { connecting, handshaking, waiting, done } Phase;
typedef enum { accepting, echoing, receiving, ending } Step;

typedef struct {
    Connection connection;
    Phase phase;
    uint64_t begun;
    size_t received;
} Slot;

// How many connections are established, or exchange a message, at the same time.
enum { window = 64, message_size = 64 };

static struct {
    const Options *options;
    SSL_CTX *context;
    int epoll, begun, finished;
    Step step;
    Slot *slots;
    Histogram histogram;
} load;

static void watch(Slot *slot, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = slot};
    if (epoll_ctl(load.epoll, operation, slot->connection.fd, &event) != 0) die("epoll_ctl: %s", strerror(errno));
}

static void send_message(Slot *slot, size_t size) {
    char message[message_size];
    memset(message, 'x', sizeof message);
    slot->phase = waiting;
    slot->received = 0;
    if (connection_write(&slot->connection, message, size) != (ssize_t)size) die("the kernel took no whole message");
}

static void begin(Slot *slot) {
    slot->begun = now_ns();
    switch (load.step) {
    case accepting:
        slot->connection = connection_begin(load.options->port);
        slot->phase = connecting;
        return watch(slot, EPOLL_CTL_ADD, EPOLLOUT);
    case echoing: return send_message(slot, message_size);
    case receiving: slot->phase = waiting, slot->received = 0; return;
    case ending: slot->phase = waiting; return connection_finish(&slot->connection);
    }
}

static void finish(Slot *slot) {
    slot->phase = done;
    load.finished++;
    histogram_record(&load.histogram, now_ns() - slot->begun);
    if (load.step <= echoing && load.begun < load.options->connections) begin(&load.slots[load.begun++]);
}

static void establish(Slot *slot) {
    if (slot->phase == connecting && load.context) {
        connection_secure(&slot->connection, load.context, NULL);
        slot->phase = handshaking;
    }
    bool wants_write = false;
    if (slot->phase == handshaking && !connection_handshake(&slot->connection, &wants_write))
        return watch(slot, EPOLL_CTL_MOD, wants_write ? EPOLLOUT : EPOLLIN);
    watch(slot, EPOLL_CTL_MOD, EPOLLIN);
    send_message(slot, 1);
}

static void receive(Slot *slot) {
    char bytes[2 * message_size];
    size_t expected = load.step == accepting ? 1 : load.step == ending ? 0 : message_size;
    ssize_t count;
    while (slot->phase == waiting && (count = connection_read(&slot->connection, bytes, sizeof bytes)) != connection_blocked) {
        if (load.step == ending && count == connection_ended) {
            connection_close(&slot->connection);
            return finish(slot);
        }
        if (count == connection_ended) die("the server closed a connection");
        for (ssize_t i = 0; i < count; i++)
            if (bytes[i] != 'x') die("a byte is wrong");
        slot->received += (size_t)count;
        if (slot->received > expected) die("too many bytes");
        if (slot->received == expected) return finish(slot);
    }
}

static void run_step(Step step) {
    load.step = step;
    load.begun = load.finished = 0;
    memset(&load.histogram, 0, sizeof load.histogram);
    Sample first = sample_take(load.options, 0, 0);
    int count = load.options->connections;
    if (step == receiving) {
        // The program that started this one starts the broadcast when it reads this line.
        printf("ready\n");
        fflush(stdout);
    }
    int limit = step <= echoing && count > window ? window : count;
    while (load.begun < limit) begin(&load.slots[load.begun++]);
    struct epoll_event events[256];
    for (uint64_t end = now_ns() + 300000000000; load.finished < count;) {
        if (now_ns() > end) die("%d of %d operations are complete after five minutes", load.finished, count);
        int found = epoll_wait(load.epoll, events, 256, load.options->spins && step <= echoing ? 0 : 100);
        for (int i = 0; i < found; i++) {
            Slot *slot = events[i].data.ptr;
            if (slot->phase == connecting || slot->phase == handshaking) establish(slot);
            else receive(slot);
        }
    }
    report_print(load.options, first, sample_take(load.options, (uint64_t)count, 0), &load.histogram);
}

void run_scale(const Options *options) {
    load.options = options;
    load.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (options->tls) load.context = client_context();
    // A client with many connections should not need more memory than the server.
    if (load.context) SSL_CTX_set_mode(load.context, SSL_MODE_RELEASE_BUFFERS);
    load.slots = calloc((size_t)options->connections, sizeof *load.slots);
    static const char *names[] = {"accept", "echo", "broadcast", "end"};
    char line[32] = "accept";
    do {
        line[strcspn(line, "\n")] = 0;
        Step step = accepting;
        while (step < ending && strcmp(line, names[step]) != 0) step++;
        run_step(step);
        if (step == ending) return;
    } while (fgets(line, sizeof line, stdin));
}
