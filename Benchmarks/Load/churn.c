// Short connections: `connect` (with TLS, one handshake each) and `starttls` (a line and its reply, then the
// handshake). Each connection echoes one byte, which shows that both sides have completed the handshake, and
// is then closed cleanly.
#include "connection.h"
#include "load.h"
#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

typedef enum { connecting, asking, handshaking, echoing, closing } Phase;

typedef struct {
    Connection connection;
    Phase phase;
    size_t reply; // bytes received of the reply to STARTTLS
    uint64_t begun;
} Slot;

static const char command[] = "STARTTLS\r\n", go_ahead[] = "220 go ahead\r\n";

static struct {
    const Options *options;
    int epoll;
    SSL_CTX *context;
    SSL_SESSION *session;
    bool asks, is_measuring;
    uint64_t operations, resumed, handshakes;
    Histogram histogram;
} load;

static int remember(SSL *ssl, SSL_SESSION *session) {
    (void)ssl;
    SSL_SESSION_free(load.session);
    load.session = session;
    return 1;
}

static void watch(Slot *slot, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = slot};
    if (epoll_ctl(load.epoll, operation, slot->connection.fd, &event) != 0) die("epoll_ctl: %s", strerror(errno));
}

static void begin(Slot *slot) {
    *slot = (Slot){.connection = connection_begin(load.options->port), .phase = connecting, .begun = now_ns()};
    watch(slot, EPOLL_CTL_ADD, EPOLLOUT);
}

static void write_all(Slot *slot, const void *bytes, size_t count) {
    if (connection_write(&slot->connection, bytes, count) != (ssize_t)count) die("the kernel took no whole line");
}

static void echo(Slot *slot) {
    slot->phase = echoing;
    watch(slot, EPOLL_CTL_MOD, EPOLLIN);
    write_all(slot, "x", 1);
}

static void handshake(Slot *slot) {
    bool wants_write = false;
    if (!connection_handshake(&slot->connection, &wants_write)) return watch(slot, EPOLL_CTL_MOD, wants_write ? EPOLLOUT : EPOLLIN);
    load.handshakes++;
    if (SSL_session_reused(slot->connection.ssl)) load.resumed++;
    echo(slot);
}

static void begin_handshake(Slot *slot) {
    slot->phase = handshaking;
    connection_secure(&slot->connection, load.context, load.options->resumes ? load.session : NULL);
    handshake(slot);
}

static void ask(Slot *slot) {
    slot->phase = asking;
    watch(slot, EPOLL_CTL_MOD, EPOLLIN);
    write_all(slot, command, sizeof command - 1);
}

static void read_reply(Slot *slot) {
    char bytes[sizeof go_ahead];
    ssize_t count = connection_read(&slot->connection, bytes, sizeof go_ahead - 1 - slot->reply);
    if (count == connection_blocked) return;
    if (count == connection_ended || memcmp(bytes, go_ahead + slot->reply, (size_t)count) != 0) die("the reply to STARTTLS is wrong");
    slot->reply += (size_t)count;
    if (slot->reply == sizeof go_ahead - 1) begin_handshake(slot);
}

static void read_echo(Slot *slot) {
    char byte;
    ssize_t count = connection_read(&slot->connection, &byte, 1);
    if (count == connection_blocked) return;
    if (count == connection_ended || byte != 'x') die("the echo is wrong");
    if (load.is_measuring) {
        load.operations++;
        histogram_record(&load.histogram, now_ns() - slot->begun);
    }
    slot->phase = closing;
    connection_finish(&slot->connection);
}

static void read_end(Slot *slot) {
    char bytes[256];
    ssize_t count = connection_read(&slot->connection, bytes, sizeof bytes);
    if (count == connection_blocked) return;
    if (count > 0) die("bytes came after the echo");
    connection_close(&slot->connection);
    begin(slot);
}

static void handle(Slot *slot) {
    switch (slot->phase) {
    case connecting: return load.asks ? ask(slot) : load.context ? begin_handshake(slot) : echo(slot);
    case asking: return read_reply(slot);
    case handshaking: return handshake(slot);
    case echoing: return read_echo(slot);
    case closing: return read_end(slot);
    }
}

static void run_until(uint64_t end) {
    struct epoll_event events[256];
    while (now_ns() < end) {
        int count = epoll_wait(load.epoll, events, 256, load.options->spins ? 0 : 100);
        for (int i = 0; i < count; i++) handle(events[i].data.ptr);
    }
}

// Obtains a session for later connections to resume.
static void fetch_session(void) {
    SSL_CTX_set_session_cache_mode(load.context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(load.context, remember);
    Connection connection = connection_open(load.options->port, load.context);
    char byte = 'x';
    if (connection_write(&connection, &byte, 1) != 1) die("the kernel took not one byte");
    for (uint64_t end = now_ns() + 2000000000; connection_read(&connection, &byte, 1) != 1;)
        if (now_ns() > end) die("no echo");
    connection_finish(&connection);
    connection_close(&connection);
    if (!load.session) die("the server sends no tickets, so no session can be resumed");
    // All connections resume this session. With a cache, OpenSSL would not use it a second time.
    SSL_CTX_set_session_cache_mode(load.context, SSL_SESS_CACHE_OFF);
}

void run_churn(const Options *options) {
    load.options = options;
    load.epoll = epoll_create1(EPOLL_CLOEXEC);
    load.asks = strcmp(options->mode, "starttls") == 0;
    if (options->tls || load.asks) load.context = client_context();
    if (options->resumes) fetch_session();
    hold_connections(options, load.asks ? NULL : load.context, options->held);
    Slot *slots = calloc((size_t)options->connections, sizeof(Slot));
    for (int i = 0; i < options->connections; i++) begin(&slots[i]);
    run_until(now_ns() + (uint64_t)(options->warm * 1e9));
    load.handshakes = load.resumed = 0;
    Sample first = sample_take(options, 0, 0);
    load.is_measuring = true;
    run_until(first.time + (uint64_t)(options->seconds * 1e9));
    Sample last = sample_take(options, load.operations, 0);
    if (load.resumed != (options->resumes ? load.handshakes : 0))
        die("%llu of %llu handshakes were resumed", (unsigned long long)load.resumed, (unsigned long long)load.handshakes);
    report_print(options, first, last, &load.histogram);
}
