#ifndef SEAM_H
#define SEAM_H

#define _GNU_SOURCE
#include "CSimulation.h"
#include <dlfcn.h>
#include <errno.h>

extern _Thread_local bool sim_is_inside;

// The functions of Tests/Simulation. They return a result, or a negative errno.
extern int sim_socket(int, int);
extern int sim_bind(int, const struct sockaddr *, socklen_t);
extern int sim_listen(int, int);
extern int sim_accept(int, struct sockaddr *, socklen_t *);
extern int sim_connect(int, const struct sockaddr *, socklen_t);
extern int sim_readiness(int);
extern long sim_recv(int, void *, size_t);
extern long sim_send(int, const struct iovec *, size_t);
extern long sim_send_message(int, const struct msghdr *);
extern int sim_send_messages(int, struct CSimulation_message *, int);
extern int sim_receive_messages(int, struct CSimulation_message *, int);
extern int sim_shutdown(int, int);
extern int sim_close(int);
extern int sim_get_option(int, int, int, void *, socklen_t *);
extern int sim_set_option(int, int, int, const void *, socklen_t);
extern int sim_address(int, bool, struct sockaddr *, socklen_t *);
extern int sim_epoll_create(void);
extern int sim_epoll_control(int, int, int, uint32_t, uint64_t);
extern int sim_epoll_wait(int, struct epoll_event *, int, int);
extern int sim_timer_create(void);
extern int sim_timer_set(int, bool, uint64_t, uint64_t);
extern int sim_event_create(void);
extern int sim_event_write(int);
extern int sim_counter_read(int, uint64_t *);
extern uint64_t sim_clock(void);
extern uint64_t sim_calendar(void);
extern int sim_futex_wait(const void *, uint32_t);
extern int sim_pass(void);
extern int sim_dispatch(void *, void *, uint64_t);
extern int sim_source_created(void *, int);
extern int sim_source_handler(void *, void *);
extern int sim_closed_descriptor(const char *, int);

bool sim_serves(int descriptor);

// The real function, which comes after the one in this program.
#define REAL(name) \
    static __typeof__(name) *real_##name; \
    if (!real_##name) *(void **)&real_##name = dlsym(RTLD_NEXT, #name)

// Evaluates a call into the simulation. The calls that it makes itself are real.
#define IN_SIMULATION(type, call) ({ \
    int sim_errno = errno; \
    sim_is_inside = false; \
    type sim_result = (call); \
    sim_is_inside = true; \
    errno = sim_errno; \
    sim_result; })

#define RETURN_SIMULATED(type, call) do { \
    type sim_value = IN_SIMULATION(type, call); \
    if (sim_value < 0) { errno = (int)-sim_value; return -1; } \
    return sim_value; } while (0)

#endif
