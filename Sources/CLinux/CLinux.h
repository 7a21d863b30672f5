#ifndef CLINUX_H
#define CLINUX_H

// The system calls and constants of Linux that the Glibc module does not give Swift. Nothing is compiled here.

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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

#endif
