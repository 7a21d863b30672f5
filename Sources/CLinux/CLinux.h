#ifndef CLINUX_H
#define CLINUX_H

// Linux system calls and constants that the Glibc module does not export to Swift. This module has no
// compiled code.

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <linux/vm_sockets.h>
#include <linux/mptcp.h>
#include <net/if.h>
#include <netdb.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

// Must follow <time.h>, because it needs `struct timespec`.
#include <linux/errqueue.h>

// glibc declares these only under _GNU_SOURCE, which may not have been defined for a module imported
// earlier.
extern int accept4(int, struct sockaddr *, socklen_t *, int);
extern void *memmem(const void *, size_t, const void *, size_t);
extern int sched_getaffinity(pid_t, size_t, cpu_set_t *);

/// `struct mmsghdr`: one datagram for recvmmsg(2) or sendmmsg(2). glibc declares it only under _GNU_SOURCE.
struct CLinux_message {
    struct msghdr header;
    unsigned int length;
};

extern int CLinux_recvmmsg(int, struct CLinux_message *, unsigned int, int, struct timespec *) __asm__("recvmmsg");
extern int CLinux_sendmmsg(int, struct CLinux_message *, unsigned int, int) __asm__("sendmmsg");

/// Returns whether a TCP socket has carried data in either direction, or -1 if the kernel does not know.
/// glibc's `struct tcp_info` lacks the fields, which Linux 4.6 introduced.
_Static_assert(sizeof(struct tcp_info) == 104, "the fields below follow tcpi_total_retrans");

static inline int CLinux_tcp_has_carried_data(int descriptor) {
    struct {
        struct tcp_info known;
        uint64_t pacing_rate, max_pacing_rate, bytes_acked, bytes_received;
        uint32_t segs_out, segs_in, notsent_bytes, min_rtt, data_segs_in, data_segs_out;
    } facts;
    socklen_t length = sizeof facts;
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &facts, &length) != 0 || length < sizeof facts) return -1;
    return facts.data_segs_in > 0 || facts.data_segs_out > 0;
}

/// `struct ucred`, which glibc declares only under _GNU_SOURCE.
struct CLinux_credentials {
    pid_t process;
    uid_t user;
    gid_t group;
};

/// Returns the credentials of the peer when it connected or began to listen (SO_PEERCRED, unix(7)). On failure,
/// the process is 0, and the user is `(uid_t)-1`, which no user has.
static inline struct CLinux_credentials CLinux_peer(int descriptor) {
    struct CLinux_credentials peer = {0, (uid_t)-1, (gid_t)-1};
    socklen_t length = sizeof peer;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || length != sizeof peer) peer.user = (uid_t)-1;
    return peer;
}

/// Returns the number of processors that this process may run on, which `taskset` or a container may
/// restrict. The kernel rejects a set smaller than its own with EINVAL. The kernel's set may have room for
/// 8,192 processors, so the set is enlarged until it is sufficient.
static inline int CLinux_usable_processors(void) {
    int count = 0;
    for (size_t size = sizeof(cpu_set_t); size <= 1 << 16 && count == 0; size *= 2) {
        unsigned long *set = (unsigned long *)calloc(1, size);
        if (set && sched_getaffinity(0, size, (cpu_set_t *)set) == 0)
            for (size_t i = 0; i < size / sizeof *set; i++) count += __builtin_popcountl(set[i]);
        free(set);
    }
    return count > 0 ? count : 1;
}

/// Returns the free memory of all arenas to the system, not only the memory at their ends. `malloc_trim`
/// exists only in glibc.
static inline void CLinux_give_free_memory_back(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/// Calls `sendfile` and suppresses the SIGPIPE for a closed connection, because `sendfile` has no
/// `MSG_NOSIGNAL`. Returns the result of `sendfile`, including failures with `EPIPE`.
static inline ssize_t CLinux_sendfile_without_signal(int socket, int file, off_t *offset, size_t count) {
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    if (sigismember(&pending, SIGPIPE)) return sendfile(socket, file, offset, count);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    ssize_t sent = sendfile(socket, file, offset, count);
    int error = errno;
    // A call that sends some pages before it finds the connection closed also raises the signal, although it
    // returns a count.
    if (sent < 0 || (size_t)sent < count) {
        struct timespec at_once = {0, 0};
        while (sigtimedwait(&pipe_signal, NULL, &at_once) < 0 && errno == EINTR) {}
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return sent;
}

/// Sleeps while `word` has the value `expected`. glibc does not declare `futex`.
static inline void CLinux_futex_wait(void *word, uint32_t expected) {
    int error = errno;
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
    errno = error;
}

/// Wakes one thread that sleeps on `word`.
static inline void CLinux_futex_wake(void *word) {
    int error = errno;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = error;
}

#endif
