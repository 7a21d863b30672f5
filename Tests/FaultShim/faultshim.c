// System calls that misbehave as Linux allows. Preloaded into a test run by Scripts/checks/faults:
//
//     FAULTS=short FAULT_SEED=1 FAULT_REPORT=file LD_PRELOAD=faultshim.so <tests>
//
// FAULTS is a list of kinds, with commas:
//   short      recv and send take 1 byte for the first 256 bytes of a connection, then now and then 1 or some bytes.
//   again      recv and send answer EAGAIN, and the event that says otherwise follows.
//   interrupt  recv, send, accept4, connect, epoll_wait and close answer EINTR.
//   accept     accept4 answers ECONNABORTED and its like (accept(2)), and EMFILE, ENFILE, ENOBUFS and ENOMEM.
//   nobufs     send answers ENOBUFS, and no event follows.
//   datagrams  sendmmsg, sendmsg and recvmmsg handle some of the datagrams, or fail with EAGAIN, ENOBUFS or ENOMEM.
//
// Rules:
//  1. Only the library's sockets are affected: stream and datagram sockets in an epoll set and, before they are in one (connect), sockets that do not
//     block.
//  2. A fault is one that the kernel could have answered, and nothing is claimed that the kernel would never do:
//     a. An edge-triggered reader takes a short read or EAGAIN as "empty", and waits for the next edge. So a fault that leaves bytes (or room)
//        behind is followed by one: EPOLL_CTL_MOD makes epoll look at the socket again and report what is still there. To the reader it is as
//        if the rest had come a moment later.
//     b. For the same reason recv is told EAGAIN only after a recv that filled its room: what an event has announced, or a test knows to be there,
//        is never denied.
//     c. epoll reports room only after the peer has read enough, and a test's peer may never read. So a send is
//        refused or shortened only while epoll would report the socket as writable.
//     d. ENOBUFS is different: the kernel may say it of a socket with room (a Unix-domain one, out of memory), and no edge follows. So none does.
//     e. An interrupted close has closed, an interrupted connect goes on (close(2), connect(2)). The others have done nothing.
//     f. EMFILE and ECONNABORTED leave the waiting connections where they are, without another edge.
//  3. No call fails twice in a row: the one after a fault is real.
//  4. A run can be repeated: what happens depends on the seed, the number of the socket, the number of its call
//     and, because of 2c, on what the peer has read.
//  5. Child processes are left alone: LD_PRELOAD goes away at once.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SHORT, AGAIN, INTERRUPT, ACCEPT, NOBUFS, DATAGRAMS, KINDS };
static const char *const kind_names[KINDS] = {"short", "again", "interrupt", "accept", "nobufs", "datagrams"};
static int wanted[KINDS];
static atomic_ulong injected[KINDS];
static uint64_t seed = 1;

enum { DESCRIPTORS = 1 << 16, BYTE_BY_BYTE = 256, PARTS = 64 };

// What is known of a descriptor. Its owner uses it on one thread at a time, and takes it out of the set before closing it.
struct watched {
    atomic_int epoll;  // the set that it is in, plus 1
    struct epoll_event interest;
    uint32_t serial, calls;
    uint32_t received, sent;  // up to BYTE_BY_BYTE
    int is_datagram;
    int is_full;              // the last recv filled its room
    int is_owed;              // the last call was a fault: the next is real
};
static struct watched table[DESCRIPTORS];
static atomic_uint serials;
static atomic_uchar is_loop[DESCRIPTORS];
static _Thread_local uint32_t loop_calls;

static ssize_t (*real_recv)(int, void *, size_t, int);
static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_send)(int, const void *, size_t, int);
static ssize_t (*real_sendmsg)(int, const struct msghdr *, int);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_sendfile)(int, int, off_t *, size_t);
static int (*real_sendmmsg)(int, struct mmsghdr *, unsigned int, int);
static int (*real_recvmmsg)(int, struct mmsghdr *, unsigned int, int, struct timespec *);
static int (*real_accept4)(int, struct sockaddr *, socklen_t *, int);
static int (*real_connect)(int, const struct sockaddr *, socklen_t);
static int (*real_epoll_ctl)(int, int, int, struct epoll_event *);
static int (*real_epoll_wait)(int, struct epoll_event *, int, int);
static int (*real_close)(int);

__attribute__((constructor)) static void begin(void) {
    *(void **)&real_recv = dlsym(RTLD_NEXT, "recv");
    *(void **)&real_read = dlsym(RTLD_NEXT, "read");
    *(void **)&real_send = dlsym(RTLD_NEXT, "send");
    *(void **)&real_sendmsg = dlsym(RTLD_NEXT, "sendmsg");
    *(void **)&real_writev = dlsym(RTLD_NEXT, "writev");
    *(void **)&real_sendfile = dlsym(RTLD_NEXT, "sendfile");
    *(void **)&real_sendmmsg = dlsym(RTLD_NEXT, "sendmmsg");
    *(void **)&real_recvmmsg = dlsym(RTLD_NEXT, "recvmmsg");
    *(void **)&real_accept4 = dlsym(RTLD_NEXT, "accept4");
    *(void **)&real_connect = dlsym(RTLD_NEXT, "connect");
    *(void **)&real_epoll_ctl = dlsym(RTLD_NEXT, "epoll_ctl");
    *(void **)&real_epoll_wait = dlsym(RTLD_NEXT, "epoll_wait");
    *(void **)&real_close = dlsym(RTLD_NEXT, "close");
    const char *faults = getenv("FAULTS"), *number = getenv("FAULT_SEED");
    for (int kind = 0; faults && kind < KINDS; kind++) wanted[kind] = strstr(faults, kind_names[kind]) != NULL;
    if (number) seed = strtoull(number, NULL, 10);
    unsetenv("LD_PRELOAD");
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("FAULT_REPORT");
    FILE *file = path ? fopen(path, "w") : stderr;
    if (!file) return;
    for (int kind = 0; kind < KINDS; kind++)
        if (wanted[kind]) fprintf(file, "%s %lu\n", kind_names[kind], atomic_load(&injected[kind]));
    if (path) fclose(file);
}

// MARK: - Chance

static uint64_t chance(uint32_t serial, uint32_t call) {
    uint64_t x = seed * 0x9E3779B97F4A7C15u + ((uint64_t)serial << 32 | call);
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static struct watched *find_any(int fd) {
    if (fd < 0 || fd >= DESCRIPTORS || !atomic_load(&table[fd].epoll)) return NULL;
    return &table[fd];
}

static struct watched *find(int fd) {
    struct watched *socket = find_any(fd);
    return socket && !socket->is_datagram ? socket : NULL;
}

static struct watched *find_datagram(int fd) {
    struct watched *socket = find_any(fd);
    return wanted[DATAGRAMS] && socket && socket->is_datagram ? socket : NULL;
}

static void note(int kind) { atomic_fetch_add(&injected[kind], 1); }

// Makes epoll report what is there, as rule 2a says.
static void announce(int fd, struct watched *socket) {
    int error = errno;
    struct epoll_event interest = socket->interest;
    real_epoll_ctl(atomic_load(&socket->epoll) - 1, EPOLL_CTL_MOD, fd, &interest);
    errno = error;
}

// Whether `announce` would report room, as rule 2c demands.
static int has_room(int fd) {
    int error = errno;
    struct pollfd question = {.fd = fd, .events = POLLOUT};
    int answer = poll(&question, 1, 0);
    errno = error;
    return answer == 1 && question.revents & POLLOUT;
}

// The error to answer instead of receiving or sending, or 0.
static int refusal(int fd, struct watched *socket, int is_receiving) {
    uint64_t luck = chance(socket->serial, ++socket->calls);
    if (socket->is_owed) return socket->is_owed = 0;
    if (wanted[INTERRUPT] && luck % 3 == 0) {
        note(INTERRUPT);
        socket->is_owed = 1;
        return EINTR;
    }
    if (wanted[AGAIN] && luck / 3 % 3 == 0 && (is_receiving ? socket->is_full : has_room(fd))) {
        note(AGAIN);
        socket->is_owed = 1;
        announce(fd, socket);
        return EAGAIN;
    }
    // Each of these costs a pause: often at first, then seldom.
    if (wanted[NOBUFS] && !is_receiving && luck / 9 % (socket->calls < 64 ? 8 : 4096) == 0) {
        note(NOBUFS);
        socket->is_owed = 1;
        return ENOBUFS;
    }
    return 0;
}

// How many of `count` bytes may pass, of which `passed` have gone before.
static size_t allowance(struct watched *socket, size_t count, uint32_t passed) {
    if (!wanted[SHORT] || count < 2) return count;
    if (passed < BYTE_BY_BYTE) return 1;
    uint64_t luck = chance(socket->serial, socket->calls) >> 8;
    if (luck % 8) return count;
    size_t some = luck / 8 % 2 ? 1 : 1 + luck / 16 % 4096;
    return some < count ? some : count;
}

static void count_bytes(uint32_t *passed, ssize_t count) {
    if (count > 0 && *passed < BYTE_BY_BYTE) *passed += (uint32_t)(count < BYTE_BY_BYTE ? count : BYTE_BY_BYTE);
}

// MARK: - Receiving

ssize_t recv(int fd, void *buffer, size_t count, int flags) {
    struct watched *socket = find(fd);
    if (!socket || count == 0 || flags & MSG_PEEK) return real_recv(fd, buffer, count, flags);
    int error = refusal(fd, socket, 1);
    if (error) {
        socket->is_full = 0;
        errno = error;
        return -1;
    }
    size_t allowed = allowance(socket, count, socket->received);
    ssize_t result = real_recv(fd, buffer, allowed, flags);
    socket->is_full = result == (ssize_t)count;
    count_bytes(&socket->received, result);
    if (allowed < count && result == (ssize_t)allowed) {
        note(SHORT);
        announce(fd, socket);
    }
    return result;
}

ssize_t read(int fd, void *buffer, size_t count) {
    return find(fd) ? recv(fd, buffer, count, 0) : real_read(fd, buffer, count);
}

// MARK: - Sending

// Whether to go on with `*count` bytes at most.
static int may_send(int fd, struct watched *socket, size_t *count) {
    int error = refusal(fd, socket, 0);
    if (error) {
        errno = error;
        return 0;
    }
    if (wanted[SHORT] && has_room(fd)) *count = allowance(socket, *count, socket->sent);
    return 1;
}

static ssize_t did_send(int fd, struct watched *socket, size_t count, size_t allowed, ssize_t result) {
    count_bytes(&socket->sent, result);
    if (allowed < count && result == (ssize_t)allowed) {
        note(SHORT);
        announce(fd, socket);
    }
    return result;
}

ssize_t send(int fd, const void *buffer, size_t count, int flags) {
    struct watched *socket = find(fd);
    size_t allowed = count;
    if (!socket || count == 0) return real_send(fd, buffer, count, flags);
    if (!may_send(fd, socket, &allowed)) return -1;
    return did_send(fd, socket, count, allowed, real_send(fd, buffer, allowed, flags));
}

ssize_t sendfile(int fd, int file, off_t *offset, size_t count) {
    struct watched *socket = find(fd);
    size_t allowed = count;
    if (!socket || count == 0) return real_sendfile(fd, file, offset, count);
    if (!may_send(fd, socket, &allowed)) return -1;
    return did_send(fd, socket, count, allowed, real_sendfile(fd, file, offset, allowed));
}

// MARK: - Datagrams

// How many of `count` datagrams may pass. If 0, `errno` has the reason. The caller settles afterwards.
static unsigned int datagram_allowance(int fd, struct watched *socket, unsigned int count, int is_receiving) {
    static const int shortages[] = {ENOBUFS, ENOMEM};
    uint64_t luck = chance(socket->serial, ++socket->calls);
    if (socket->is_owed) {
        socket->is_owed = 0;
        return count;
    }
    // Each of these causes a pause, so they are frequent at first and rare later. No event follows, as with
    // `nobufs`.
    if (luck % (socket->calls < 64 ? 8 : 1024) == 0) {
        note(DATAGRAMS);
        socket->is_owed = 1;
        errno = shortages[luck / 1024 % 2];
        return 0;
    }
    int is_announced = is_receiving ? socket->is_full : has_room(fd);
    if (luck / 2048 % 4 == 0 && is_announced) {
        note(DATAGRAMS);
        socket->is_owed = 1;
        announce(fd, socket);
        errno = EAGAIN;
        return 0;
    }
    return count > 1 && (is_receiving || is_announced) && luck / 8192 % 2 ? 1 + (unsigned int)(luck / 16384 % (count - 1)) : count;
}

static int settle(int fd, struct watched *socket, unsigned int count, unsigned int allowed, int result) {
    if (allowed < count && result == (int)allowed) {
        note(DATAGRAMS);
        announce(fd, socket);
    }
    return result;
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags) {
    struct watched *socket = find_datagram(fd);
    if (!socket || count == 0) return real_sendmmsg(fd, messages, count, flags);
    unsigned int allowed = datagram_allowance(fd, socket, count, 0);
    if (allowed == 0) return -1;
    return settle(fd, socket, count, allowed, real_sendmmsg(fd, messages, allowed, flags));
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags, struct timespec *timeout) {
    struct watched *socket = find_datagram(fd);
    if (!socket || count == 0) return real_recvmmsg(fd, messages, count, flags, timeout);
    unsigned int allowed = datagram_allowance(fd, socket, count, 1);
    if (allowed == 0) {
        socket->is_full = 0;
        return -1;
    }
    int result = real_recvmmsg(fd, messages, allowed, flags, timeout);
    socket->is_full = result == (int)count;
    return settle(fd, socket, count, allowed, result);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    struct watched *datagrams = find_datagram(fd);
    if (datagrams && datagram_allowance(fd, datagrams, 1, 0) == 0) return -1;
    struct watched *socket = find(fd);
    if (!socket) return real_sendmsg(fd, message, flags);
    size_t count = 0, allowed;
    for (size_t i = 0; i < message->msg_iovlen; i++) count += message->msg_iov[i].iov_len;
    allowed = count;
    if (count == 0) return real_sendmsg(fd, message, flags);
    if (!may_send(fd, socket, &allowed)) return -1;
    if (allowed == count) return did_send(fd, socket, count, allowed, real_sendmsg(fd, message, flags));
    // The allowed bytes may end in the middle of any part.
    struct iovec parts[PARTS];
    struct msghdr shorter = *message;
    size_t left = allowed, used = 0;
    while (left > 0 && used < PARTS) {
        parts[used] = message->msg_iov[used];
        if (parts[used].iov_len > left) parts[used].iov_len = left;
        left -= parts[used++].iov_len;
    }
    shorter.msg_iov = parts;
    shorter.msg_iovlen = used;
    return did_send(fd, socket, count, allowed - left, real_sendmsg(fd, &shorter, flags));
}

ssize_t writev(int fd, const struct iovec *parts, int number) {
    if (!find(fd) || number < 1) return real_writev(fd, parts, number);
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)number};
    return sendmsg(fd, &message, 0);
}

// MARK: - Connections

static int has_type(int fd, int wanted_type) {
    int type = 0;
    socklen_t length = sizeof type;
    int error = errno;
    int answer = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == wanted_type;
    errno = error;
    return answer;
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
    static const int errors[] = {ECONNABORTED, EPROTO, EPERM, ENETDOWN, EHOSTUNREACH, ETIMEDOUT, ECONNABORTED, ECONNABORTED};
    static const int shortages[] = {EMFILE, ENFILE, ENOBUFS, ENOMEM};
    struct watched *socket = find(fd);
    if (!socket) return real_accept4(fd, address, length, flags);
    uint64_t luck = chance(socket->serial, ++socket->calls);
    errno = 0;
    if (socket->is_owed) {
        socket->is_owed = 0;
    } else if (wanted[INTERRUPT] && luck % 2 == 0) {
        note(INTERRUPT);
        errno = EINTR;
    } else if (wanted[ACCEPT] && luck / 2 % 2 == 0) {
        note(ACCEPT);
        errno = luck / 4 % 8 == 0 ? shortages[luck / 32 % 4] : errors[luck / 32 % 8];
    }
    if (errno == 0) return real_accept4(fd, address, length, flags);
    socket->is_owed = 1;
    return -1;
}

int connect(int fd, const struct sockaddr *address, socklen_t length) {
    int result = real_connect(fd, address, length);
    if (!wanted[INTERRUPT] || !(fcntl(fd, F_GETFL) & O_NONBLOCK) || !has_type(fd, SOCK_STREAM) || (result < 0 && errno != EINPROGRESS)) return result;
    if (chance(atomic_fetch_add(&serials, 1), 0) % 2) {
        if (result < 0) errno = EINPROGRESS;
        return result;
    }
    note(INTERRUPT);
    errno = EINTR;
    return -1;
}

int close(int fd) {
    struct watched *socket = find_any(fd);
    if (socket) atomic_store(&socket->epoll, 0);
    if (fd >= 0 && fd < DESCRIPTORS) atomic_store(&is_loop[fd], 0);
    int result = real_close(fd);
    if (!socket || result < 0 || !wanted[INTERRUPT] || chance(socket->serial, ++socket->calls) % 2) return result;
    note(INTERRUPT);
    errno = EINTR;
    return -1;
}

// MARK: - Events

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    int is_known = fd >= 0 && fd < DESCRIPTORS && epoll >= 0 && epoll < DESCRIPTORS;
    if (is_known && operation == EPOLL_CTL_ADD && (has_type(fd, SOCK_STREAM) || has_type(fd, SOCK_DGRAM))) {
        struct watched *socket = &table[fd];
        uint32_t serial = atomic_fetch_add(&serials, 1);
        *socket = (struct watched){.interest = *event, .serial = serial, .is_datagram = has_type(fd, SOCK_DGRAM)};
        atomic_store(&is_loop[epoll], 1);
        // Before the kernel knows it: an event may come at once.
        atomic_store(&socket->epoll, epoll + 1);
    }
    if (is_known && operation == EPOLL_CTL_MOD && find_any(fd)) table[fd].interest = *event;
    // After DEL the owner still closes it, and may move it to another set; nothing is announced meanwhile.
    return real_epoll_ctl(epoll, operation, fd, event);
}

int epoll_wait(int epoll, struct epoll_event *events, int count, int milliseconds) {
    if (wanted[INTERRUPT] && epoll >= 0 && epoll < DESCRIPTORS && atomic_load(&is_loop[epoll]) && ++loop_calls % 4 == 0) {
        note(INTERRUPT);
        errno = EINTR;
        return -1;
    }
    return real_epoll_wait(epoll, events, count, milliseconds);
}
