#ifndef CSECCOMP_H
#define CSECCOMP_H

// Makes the kernel refuse system calls, as a container's filter or a security module does. A filter cannot be
// removed, so these functions are for probe processes and for threads that end.

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const long CSeccomp_accept4 = SYS_accept4;
static const long CSeccomp_sched_getaffinity = SYS_sched_getaffinity;
static const long CSeccomp_recvmmsg = SYS_recvmmsg;
static const long CSeccomp_sendmmsg = SYS_sendmmsg;
static const long CSeccomp_sendmsg = SYS_sendmsg;
static const long CSeccomp_sendto = SYS_sendto;
static const long CSeccomp_sendfile = SYS_sendfile;
static const long CSeccomp_socket = SYS_socket;
static const long CSeccomp_getsockopt = SYS_getsockopt;
static const long CSeccomp_setsockopt = SYS_setsockopt;
static const unsigned int CSeccomp_udp_level = 17;
// Calls added in Linux 3.17 or later, which older kernels and system call filters do not support.
static const long CSeccomp_getrandom = SYS_getrandom;
static const long CSeccomp_memfd_create = SYS_memfd_create;
static const long CSeccomp_membarrier = SYS_membarrier;
static const long CSeccomp_copy_file_range = SYS_copy_file_range;
static const long CSeccomp_statx = SYS_statx;
static const long CSeccomp_close_range = SYS_close_range;
static const long CSeccomp_openat2 = SYS_openat2;
static const long CSeccomp_faccessat2 = SYS_faccessat2;
static const long CSeccomp_epoll_pwait2 = SYS_epoll_pwait2;
static const long CSeccomp_epoll_pwait = SYS_epoll_pwait;
#ifdef SYS_epoll_wait
static const long CSeccomp_epoll_wait = SYS_epoll_wait;
#else
static const long CSeccomp_epoll_wait = SYS_epoll_pwait;
#endif

/// Installs a filter on the calling thread, and on all other threads if `everywhere` is set.
static inline int CSeccomp_install(struct sock_filter *filter, size_t count, int everywhere) {
    struct sock_fprog program = {.len = (unsigned short)count, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, everywhere ? SECCOMP_FILTER_FLAG_TSYNC : 0, &program);
}

/// Makes `call` fail with `error` from now on: on the calling thread, and on all other threads if
/// `everywhere` is set.
///
/// Returns 0, or -1 with `errno` set.
static inline int CSeccomp_refuse(long call, int error, int everywhere) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((unsigned int)error & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return CSeccomp_install(filter, sizeof filter / sizeof filter[0], everywhere);
}

/// Makes `call` fail with `error` if its argument number `argument` is less than `limit`.
static inline int CSeccomp_refuse_below(long call, int argument, unsigned int limit, int error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)call, 0, 3),
        // The lower half of the argument, on a little-endian machine.
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned int)(offsetof(struct seccomp_data, args) + 8 * (size_t)argument)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, limit, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((unsigned int)error & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return CSeccomp_install(filter, sizeof filter / sizeof filter[0], 1);
}

/// Makes `call` fail with `error` if its argument number `argument` is `value`.
static inline int CSeccomp_refuse_when(long call, int argument, unsigned int value, int error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)call, 0, 3),
        // The lower half of the argument, on a little-endian machine.
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned int)(offsetof(struct seccomp_data, args) + 8 * (size_t)argument)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((unsigned int)error & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return CSeccomp_install(filter, sizeof filter / sizeof filter[0], 1);
}

#endif
