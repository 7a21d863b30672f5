// Messages with one reply each: `echo` (the same bytes), `lines` (the same bytes, which end with '\n') and
// `count` (the length of the line in eight bytes).
//
// Closed loop: a connection sends `pipeline` messages, and the next batch after all replies. Open loop
// (`rate`): each message is due at a fixed time and is sent on the next connection in turn. Its latency is
// measured from that time, however late it is sent.
#include "connection.h"
#include "load.h"
#include "pattern.h"
#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { stamp_size = 8, open_loop_limit = 1024, drain_ns = 2000000000 };

typedef struct {
    Connection connection;
    bool wants_write;
    uint64_t sent, answered;          // messages
    uint8_t *out;                     // messages that the kernel has not accepted yet
    size_t out_begin, out_end;
    size_t in;                        // bytes of the current reply that have arrived
    uint64_t *due;                    // a ring of the due times of messages without a reply
} Stream;

static struct {
    const Options *options;
    int epoll;
    Stream *streams;
    uint8_t *message, *answer, *scratch;
    size_t answer_size, out_capacity, scratch_size;
    bool is_stamped, is_measuring, is_draining;
    uint64_t operations, waiting, limit; // `limit`: messages in flight per connection
    Histogram histogram;
} load;

// A message starts with its number, encoded in letters.
static void stamp(uint8_t *bytes, uint64_t number) {
    for (int i = 0; i < stamp_size; i++, number >>= 4) bytes[i] = (uint8_t)('A' + (number & 15));
}

static void watch(Stream *stream, int operation, bool wants_write) {
    struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0), .data.ptr = stream};
    stream->wants_write = wants_write;
    if (epoll_ctl(load.epoll, operation, stream->connection.fd, &event) != 0) die("epoll_ctl: %s", strerror(errno));
}

static void flush(Stream *stream) {
    while (stream->out_begin < stream->out_end) {
        size_t count = stream->out_end - stream->out_begin;
        if (load.options->piece > 0 && count > load.options->piece) count = load.options->piece;
        ssize_t written = connection_write(&stream->connection, stream->out + stream->out_begin, count);
        if (written == connection_ended) die("the server closed a connection");
        if (written == connection_blocked) break;
        stream->out_begin += (size_t)written;
    }
    bool is_left = stream->out_begin < stream->out_end;
    if (is_left != stream->wants_write) watch(stream, EPOLL_CTL_MOD, is_left);
}

// Queues a message.
static void put(Stream *stream, uint64_t due) {
    size_t size = load.options->size;
    if (stream->sent - stream->answered >= load.limit) die("the server cannot keep up with the rate");
    if (stream->out_begin == stream->out_end) stream->out_begin = stream->out_end = 0;
    if (stream->out_end + size > load.out_capacity) {
        memmove(stream->out, stream->out + stream->out_begin, stream->out_end - stream->out_begin);
        stream->out_end -= stream->out_begin;
        stream->out_begin = 0;
        if (stream->out_end + size > load.out_capacity) die("the server cannot keep up with the rate");
    }
    memcpy(stream->out + stream->out_end, load.message, size);
    if (load.is_stamped) stamp(stream->out + stream->out_end, stream->sent);
    stream->out_end += size;
    stream->due[stream->sent++ % load.limit] = due;
    load.waiting++;
}

static void put_pipeline(Stream *stream) {
    uint64_t now = now_ns();
    for (int i = 0; i < load.options->pipeline; i++) put(stream, now);
    flush(stream);
}

static void verify(Stream *stream, const uint8_t *bytes, size_t count) {
    uint8_t expected[stamp_size];
    size_t position = stream->in;
    if (load.is_stamped && load.answer == load.message && position < stamp_size) {
        size_t part = count < stamp_size - position ? count : stamp_size - position;
        stamp(expected, stream->answered);
        if (memcmp(bytes, expected + position, part) != 0) die("a reply belongs to another message");
        bytes += part;
        position += part;
        count -= part;
    }
    if (memcmp(bytes, load.answer + position, count) != 0) die("a reply differs from its message");
}

static void complete(Stream *stream, uint64_t now) {
    uint64_t due = stream->due[stream->answered++ % load.limit];
    stream->in = 0;
    load.waiting--;
    if (load.is_measuring) {
        load.operations++;
        histogram_record(&load.histogram, now - due);
    }
}

static void receive(Stream *stream) {
    while (stream->answered < stream->sent) {
        ssize_t count = connection_read(&stream->connection, load.scratch, load.scratch_size);
        if (count == connection_blocked) return;
        if (count == connection_ended) die("the server closed a connection");
        uint64_t now = now_ns();
        for (size_t done = 0; done < (size_t)count;) {
            if (stream->answered == stream->sent) die("there are more replies than messages");
            size_t part = load.answer_size - stream->in, left = (size_t)count - done;
            if (part > left) part = left;
            verify(stream, load.scratch + done, part);
            done += part;
            stream->in += part;
            if (stream->in == load.answer_size) complete(stream, now);
        }
        // A plaintext socket that did not fill the buffer has no more data for now.
        if (!stream->connection.ssl && (size_t)count < load.scratch_size) break;
    }
    if (load.options->rate == 0 && !load.is_draining && stream->answered == stream->sent) put_pipeline(stream);
}

static void turn(int timeout) {
    struct epoll_event events[256];
    int count = epoll_wait(load.epoll, events, 256, timeout);
    for (int i = 0; i < count; i++) {
        Stream *stream = events[i].data.ptr;
        if (events[i].events & EPOLLOUT) flush(stream);
        if (events[i].events & ~(uint32_t)EPOLLOUT) receive(stream);
    }
}

// Sends the messages that are due by `end`, and handles the replies.
static void run_until(uint64_t end, uint64_t *next, uint64_t *number) {
    const Options *options = load.options;
    for (uint64_t now; (now = now_ns()) < end;) {
        if (options->rate > 0) {
            for (; *next <= now; *next += (uint64_t)(1e9 / options->rate), ++*number) {
                Stream *stream = &load.streams[*number % (uint64_t)options->connections];
                put(stream, *next);
                flush(stream);
            }
        }
        turn(options->rate > 0 || options->spins ? 0 : 100);
    }
}

static void prepare(const Options *options) {
    load.options = options;
    load.epoll = epoll_create1(EPOLL_CLOEXEC);
    load.streams = calloc((size_t)options->connections, sizeof(Stream));
    load.message = pattern_make(options->size);
    load.is_stamped = options->size > stamp_size;
    bool is_lines = strcmp(options->mode, "echo") != 0, counts = strcmp(options->mode, "count") == 0;
    if (is_lines) {
        // Printable ASCII, because servers may read lines as text.
        for (size_t i = 0; i < options->size; i++) load.message[i] = '!' + i % ('~' - '!');
        load.message[options->size - 1] = '\n';
    }
    load.answer = load.message;
    load.answer_size = options->size;
    if (counts) {
        uint64_t length = options->size; // this machine is little-endian
        load.answer = malloc(sizeof length);
        memcpy(load.answer, &length, sizeof length);
        load.answer_size = sizeof length;
    }
    load.scratch_size = 65536;
    load.scratch = malloc(load.scratch_size);
    load.out_capacity = options->size * (size_t)options->pipeline;
    load.limit = (uint64_t)options->pipeline;
    if (options->rate > 0) {
        load.limit = open_loop_limit;
        load.out_capacity = options->size * open_loop_limit;
    }
    SSL_CTX *context = options->tls ? client_context() : NULL;
    for (int i = 0; i < options->connections; i++) {
        Stream *stream = &load.streams[i];
        stream->connection = connection_open(options->port, context);
        stream->out = malloc(load.out_capacity);
        stream->due = malloc(load.limit * sizeof *stream->due);
        watch(stream, EPOLL_CTL_ADD, false);
    }
}

static void drain(void) {
    load.is_draining = true;
    for (uint64_t end = now_ns() + drain_ns; load.waiting > 0;) {
        if (now_ns() > end) die("%llu messages have no reply", (unsigned long long)load.waiting);
        turn(100);
    }
}

void run_stream(const Options *options) {
    prepare(options);
    uint64_t begin = now_ns(), next = begin, number = 0;
    if (options->rate == 0) for (int i = 0; i < options->connections; i++) put_pipeline(&load.streams[i]);
    run_until(begin + (uint64_t)(options->warm * 1e9), &next, &number);
    Sample first = sample_take(options, 0, 0);
    load.is_measuring = true;
    run_until(first.time + (uint64_t)(options->seconds * 1e9), &next, &number);
    Sample last = sample_take(options, load.operations, load.operations * options->size);
    load.is_measuring = options->rate > 0; // in an open loop the last messages count too
    drain();
    report_print(options, first, last, &load.histogram);
}
