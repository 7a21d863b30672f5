// Datagrams. `udp-echo`: the server echoes each datagram. `udp-receive`: the client sends bursts, and the
// server replies with the count after the last datagram of a burst. `udp-source`: the client requests a
// number of datagrams and their size in sixteen bytes, and the server sends them. `udp-connect`: each peer
// performs a DTLS handshake and echoes one byte.
//
// A closed loop: a peer sends its next datagrams once it has received all replies. No buffer overflows, so a
// missing reply is an error that exits the program.
#include "load.h"
#include "pattern.h"
#include "peer.h"
#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { burst = 32 };
static const uint64_t patience_ns = 10000000000;

typedef enum { handshaking, exchanging } Phase;

typedef struct {
    Peer peer;
    Phase phase;
    uint64_t sent_at, number; // of the last message
    uint64_t total, missing;  // datagrams in all bursts so far; datagrams from the source that have not arrived
} Slot;

static struct {
    const Options *options;
    int epoll;
    SSL_CTX *context;
    Slot *slots;
    uint8_t *message, *scratch;
    bool is_measuring;
    uint64_t operations;
    Histogram histogram;
    void (*begin)(Slot *slot);
    bool (*receive)(Slot *slot, size_t count); // true: the exchange is complete
} load;

static void count_operations(Slot *slot, uint64_t count) {
    if (!load.is_measuring) return;
    load.operations += count;
    histogram_record(&load.histogram, now_ns() - slot->sent_at);
}

// MARK: echo

static size_t stamp_size(void) { return load.options->size < sizeof(uint64_t) ? load.options->size : sizeof(uint64_t); }

static void echo_begin(Slot *slot) {
    slot->number++;
    memcpy(load.message, &slot->number, stamp_size());
    peer_send(&slot->peer, load.message, load.options->size);
}

static bool echo_receive(Slot *slot, size_t count) {
    memcpy(load.message, &slot->number, stamp_size());
    if (count != load.options->size || memcmp(load.scratch, load.message, count) != 0) die("a reply differs from its datagram");
    count_operations(slot, 1);
    return true;
}

// MARK: receive

static void receive_begin(Slot *slot) {
    struct iovec pieces[burst][2];
    struct mmsghdr messages[burst] = {0};
    static const uint8_t flags[2] = {0, 1}; // the first byte: 1 marks the last datagram of a burst
    for (int i = 0; i < burst; i++) {
        pieces[i][0] = (struct iovec){.iov_base = (void *)&flags[i == burst - 1], .iov_len = 1};
        pieces[i][1] = (struct iovec){.iov_base = load.message, .iov_len = load.options->size - 1};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = pieces[i], .msg_iovlen = 2};
    }
    if (sendmmsg(slot->peer.fd, messages, burst, 0) != burst) die("sendmmsg: %s", strerror(errno));
    slot->total += burst;
}

static bool receive_receive(Slot *slot, size_t count) {
    if (count != sizeof slot->total || memcmp(load.scratch, &slot->total, count) != 0) die("the server has not counted every datagram");
    count_operations(slot, burst);
    return true;
}

// MARK: source

static void source_begin(Slot *slot) {
    uint64_t request[2] = {burst, load.options->size}; // this machine is little-endian
    slot->missing = burst;
    peer_send(&slot->peer, request, sizeof request);
}

static bool source_receive(Slot *slot, size_t count) {
    if (count != load.options->size || memcmp(load.scratch, load.message, count) != 0) die("a datagram of the server is wrong");
    if (--slot->missing > 0) return false;
    count_operations(slot, burst);
    return true;
}

// MARK: connect

static bool connect_receive(Slot *slot, size_t count);

static void begin_exchange(Slot *slot) {
    slot->phase = exchanging;
    // For `udp-connect`, the handshake is part of the measurement.
    if (load.receive != connect_receive) slot->sent_at = now_ns();
    load.begin(slot);
}

static void watch(Slot *slot) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = slot};
    if (epoll_ctl(load.epoll, EPOLL_CTL_ADD, slot->peer.fd, &event) != 0) die("epoll_ctl: %s", strerror(errno));
}

static void open_slot(Slot *slot) {
    *slot = (Slot){.peer = peer_open(load.options->port, load.context), .phase = load.context ? handshaking : exchanging, .sent_at = now_ns()};
    watch(slot);
    if (slot->phase == exchanging || peer_handshake(&slot->peer)) begin_exchange(slot);
}

static bool connect_receive(Slot *slot, size_t count) {
    echo_receive(slot, count);
    peer_finish(&slot->peer);
    peer_close(&slot->peer);
    open_slot(slot);
    return false;
}

// MARK: the loop

static void handle(Slot *slot) {
    if (slot->phase == handshaking && peer_handshake(&slot->peer)) begin_exchange(slot);
    for (ssize_t count; slot->phase == exchanging && (count = peer_receive(&slot->peer, load.scratch, datagram_limit)) >= 0;) {
        if (!load.receive(slot, (size_t)count)) continue;
        slot->sent_at = now_ns();
        load.begin(slot);
    }
}

static void run_until(uint64_t end) {
    struct epoll_event events[256];
    uint64_t checked = now_ns();
    for (uint64_t now; (now = now_ns()) < end;) {
        int count = epoll_wait(load.epoll, events, 256, load.options->spins ? 0 : 100);
        for (int i = 0; i < count; i++) handle(events[i].data.ptr);
        if (now - checked < patience_ns) continue;
        checked = now;
        for (int i = 0; i < load.options->connections; i++)
            if (now > load.slots[i].sent_at + patience_ns) die("a datagram has no reply");
    }
}

void run_datagrams(const Options *options) {
    static const struct { const char *mode; void (*begin)(Slot *); bool (*receive)(Slot *, size_t); } modes[] = {
        {"udp-echo", echo_begin, echo_receive}, {"udp-receive", receive_begin, receive_receive},
        {"udp-source", source_begin, source_receive}, {"udp-connect", echo_begin, connect_receive}};
    load.options = options;
    load.epoll = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(options->mode, modes[i].mode) == 0) load.begin = modes[i].begin, load.receive = modes[i].receive;
    load.message = pattern_make(options->size);
    load.scratch = malloc(datagram_limit);
    if (options->tls) load.context = peer_context();
    load.slots = calloc((size_t)options->connections, sizeof(Slot));
    for (int i = 0; i < options->connections; i++) open_slot(&load.slots[i]);
    run_until(now_ns() + (uint64_t)(options->warm * 1e9));
    Sample first = sample_take(options, 0, 0);
    load.is_measuring = true;
    run_until(first.time + (uint64_t)(options->seconds * 1e9));
    uint64_t size = load.receive == connect_receive ? 0 : options->size;
    Sample last = sample_take(options, load.operations, load.operations * size);
    report_print(options, first, last, &load.histogram);
}
