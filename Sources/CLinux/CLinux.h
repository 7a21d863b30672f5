#ifndef CLINUX_H
#define CLINUX_H

// The system calls and constants of Linux that the Glibc module does not give Swift. Nothing is compiled here.

#include <arpa/inet.h>
#include <errno.h>
#include <linux/mptcp.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

// glibc declares these only under _GNU_SOURCE, which a module that was read earlier may not have defined.
extern int accept4(int, struct sockaddr *, socklen_t *, int);
extern void *memmem(const void *, size_t, const void *, size_t);
extern int sched_getaffinity(pid_t, size_t, cpu_set_t *);

/// `CPU_COUNT`: the processors that this process may run on (a container or `taskset` may allow fewer than there are).
static inline int CLinux_usable_processors(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int count = 0;
    for (size_t i = 0; i < sizeof set.__bits / sizeof set.__bits[0]; i++) count += __builtin_popcountl(set.__bits[i]);
    return count > 0 ? count : 1;
}

#endif
