// System calls on the descriptors of the simulation.
#include "seam.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { DESCRIPTORS = 1 << 16 };

_Thread_local bool sim_is_inside;
static bool served[DESCRIPTORS];

void CSim_set_simulated(bool is_simulated) { sim_is_inside = is_simulated; }
bool CSim_is_simulated(void) { return sim_is_inside; }

void CSim_set_descriptor(int descriptor, bool is_simulated) { served[descriptor] = is_simulated; }
bool sim_serves(int descriptor) { return sim_is_inside && descriptor >= 0 && descriptor < DESCRIPTORS && served[descriptor]; }

// Whether a simulated thread uses a number that the simulation does not serve: of a closed descriptor, for
// example.
static bool is_stray(const char *call, int descriptor) {
    return sim_is_inside && !sim_serves(descriptor) && IN_SIMULATION(int, sim_closed_descriptor(call, descriptor));
}

int CSim_reserve_descriptor(void) {
    REAL(eventfd);
    return real_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

int CSim_reserve_epoll(void) {
    REAL(epoll_create1);
    return real_epoll_create1(EPOLL_CLOEXEC);
}

// MARK: - Opening

int socket(int domain, int type, int protocol) {
    REAL(socket);
    bool is_internet = domain == AF_INET || domain == AF_INET6;
    if (sim_is_inside && is_internet) RETURN_SIMULATED(int, sim_socket(domain, type & 0xF));
    return real_socket(domain, type, protocol);
}

int bind(int fd, const struct sockaddr *address, socklen_t length) {
    REAL(bind);
    if (sim_serves(fd)) RETURN_SIMULATED(int, sim_bind(fd, address, length));
    is_stray("bind", fd);
    return real_bind(fd, address, length);
}

int listen(int fd, int backlog) {
    REAL(listen);
    if (sim_serves(fd)) RETURN_SIMULATED(int, sim_listen(fd, backlog));
    is_stray("listen", fd);
    return real_listen(fd, backlog);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
    REAL(accept4);
    if (sim_serves(fd)) RETURN_SIMULATED(int, sim_accept(fd, address, length));
    is_stray("accept4", fd);
    return real_accept4(fd, address, length, flags);
}

int connect(int fd, const struct sockaddr *address, socklen_t length) {
    REAL(connect);
    if (sim_serves(fd)) RETURN_SIMULATED(int, sim_connect(fd, address, length));
    is_stray("connect", fd);
    return real_connect(fd, address, length);
}

// The library looks at one descriptor, without waiting.
int poll(struct pollfd *entries, nfds_t count, int milliseconds) {
    REAL(poll);
    if (count != 1 || !sim_serves(entries->fd)) return real_poll(entries, count, milliseconds);
    entries->revents = IN_SIMULATION(int, sim_readiness(entries->fd)) & entries->events;
    return entries->revents != 0;
}

// MARK: - Streams

ssize_t recv(int fd, void *buffer, size_t count, int flags) {
    REAL(recv);
    if (sim_serves(fd)) RETURN_SIMULATED(ssize_t, sim_recv(fd, buffer, count));
    is_stray("recv", fd);
    return real_recv(fd, buffer, count, flags);
}

ssize_t send(int fd, const void *buffer, size_t count, int flags) {
    REAL(send);
    struct iovec part = {(void *)buffer, count};
    if (sim_serves(fd)) RETURN_SIMULATED(ssize_t, sim_send(fd, &part, 1));
    is_stray("send", fd);
    return real_send(fd, buffer, count, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    REAL(sendmsg);
    if (sim_serves(fd)) RETURN_SIMULATED(ssize_t, sim_send_message(fd, message));
    is_stray("sendmsg", fd);
    return real_sendmsg(fd, message, flags);
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags) {
    REAL(sendmmsg);
    if (sim_serves(fd))
        RETURN_SIMULATED(int, sim_send_messages(fd, (struct CSimulation_message *)messages, (int)count));
    is_stray("sendmmsg", fd);
    return real_sendmmsg(fd, messages, count, flags);
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags, struct timespec *timeout) {
    REAL(recvmmsg);
    if (sim_serves(fd))
        RETURN_SIMULATED(int, sim_receive_messages(fd, (struct CSimulation_message *)messages, (int)count));
    is_stray("recvmmsg", fd);
    return real_recvmmsg(fd, messages, count, flags, timeout);
}

// The queue of errors is always full, so that errors are reported by SO_ERROR.
ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    REAL(recvmsg);
    if (sim_serves(fd)) {
        errno = EAGAIN;
        return -1;
    }
    is_stray("recvmsg", fd);
    return real_recvmsg(fd, message, flags);
}

int shutdown(int fd, int how) {
    REAL(shutdown);
    if (sim_serves(fd)) RETURN_SIMULATED(int, sim_shutdown(fd, how));
    is_stray("shutdown", fd);
    return real_shutdown(fd, how);
}

int close(int fd) {
    REAL(close);
    if (sim_serves(fd)) RETURN_SIMULATED(int, sim_close(fd));
    is_stray("close", fd);
    return real_close(fd);
}

int getsockopt(int fd, int level, int option, void *value, socklen_t *length) {
    REAL(getsockopt);
    if (sim_serves(fd)) RETURN_SIMULATED(int, sim_get_option(fd, level, option, value, length));
    return real_getsockopt(fd, level, option, value, length);
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t length) {
    REAL(setsockopt);
    if (sim_serves(fd)) RETURN_SIMULATED(int, sim_set_option(fd, level, option, value, length));
    is_stray("setsockopt", fd);
    return real_setsockopt(fd, level, option, value, length);
}

int getsockname(int fd, struct sockaddr *address, socklen_t *length) {
    REAL(getsockname);
    if (sim_serves(fd)) RETURN_SIMULATED(int, sim_address(fd, false, address, length));
    return real_getsockname(fd, address, length);
}

int getpeername(int fd, struct sockaddr *address, socklen_t *length) {
    REAL(getpeername);
    if (sim_serves(fd)) RETURN_SIMULATED(int, sim_address(fd, true, address, length));
    return real_getpeername(fd, address, length);
}

// MARK: - Events and timers

int epoll_create1(int flags) {
    REAL(epoll_create1);
    if (sim_is_inside) RETURN_SIMULATED(int, sim_epoll_create());
    return real_epoll_create1(flags);
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    REAL(epoll_ctl);
    if (sim_serves(epoll))
        RETURN_SIMULATED(int, sim_epoll_control(epoll, operation, fd, event ? event->events : 0, event ? event->data.u64 : 0));
    return real_epoll_ctl(epoll, operation, fd, event);
}

int epoll_wait(int epoll, struct epoll_event *events, int count, int milliseconds) {
    REAL(epoll_wait);
    if (sim_serves(epoll)) RETURN_SIMULATED(int, sim_epoll_wait(epoll, events, count, milliseconds));
    return real_epoll_wait(epoll, events, count, milliseconds);
}

int timerfd_create(int clock, int flags) {
    REAL(timerfd_create);
    if (sim_is_inside) RETURN_SIMULATED(int, sim_timer_create());
    return real_timerfd_create(clock, flags);
}

static uint64_t nanoseconds(struct timespec time) { return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec; }

int timerfd_settime(int fd, int flags, const struct itimerspec *new, struct itimerspec *old) {
    REAL(timerfd_settime);
    if (sim_serves(fd))
        RETURN_SIMULATED(
            int, sim_timer_set(fd, flags & TFD_TIMER_ABSTIME, nanoseconds(new->it_value), nanoseconds(new->it_interval)));
    return real_timerfd_settime(fd, flags, new, old);
}

int eventfd(unsigned int count, int flags) {
    REAL(eventfd);
    if (sim_is_inside) RETURN_SIMULATED(int, sim_event_create());
    return real_eventfd(count, flags);
}

int eventfd_write(int fd, eventfd_t value) {
    REAL(eventfd_write);
    if (sim_serves(fd)) RETURN_SIMULATED(int, sim_event_write(fd));
    return real_eventfd_write(fd, value);
}

int eventfd_read(int fd, eventfd_t *value) {
    REAL(eventfd_read);
    uint64_t count = 0;
    if (sim_serves(fd)) RETURN_SIMULATED(int, sim_counter_read(fd, &count));
    return real_eventfd_read(fd, value);
}

ssize_t read(int fd, void *buffer, size_t count) {
    REAL(read);
    if (sim_serves(fd)) RETURN_SIMULATED(ssize_t, sim_counter_read(fd, buffer));
    return real_read(fd, buffer, count);
}
