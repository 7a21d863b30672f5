#ifndef CSIMULATION_H
#define CSIMULATION_H

// The seam of the deterministic schedule: system calls, libdispatch and random numbers of this program. Calls
// by a simulated thread go to the functions `sim_…`, which Tests/Simulation defines in Swift. All other calls
// are real.

#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

/// `struct mmsghdr`, which glibc declares only under _GNU_SOURCE.
struct CSimulation_message {
    struct msghdr header;
    unsigned int length;
};

/// Whether the calling thread is simulated, and is outside the simulation's own code.
void CSim_set_simulated(bool is_simulated);
bool CSim_is_simulated(void);

/// Marks a descriptor number that is served by the simulation. A closed number stays reserved, so that its
/// use is noticed.
void CSim_set_descriptor(int descriptor, bool is_simulated);

/// Opens a descriptor that reserves its number and is never used otherwise.
int CSim_reserve_descriptor(void);
/// Opens an epoll set that stays empty.
int CSim_reserve_epoll(void);

/// Replaces OpenSSL's and the system's random numbers by a sequence that `seed` determines.
void CSim_seed_random(uint64_t seed);

/// Makes the calendar clock show the same time at the beginning of each run.
void CSim_fix_calendar(void);

/// Starts this program again without address space randomization and with deterministic hashing, and prints
/// line by line.
void CSim_restart_deterministically(char **arguments);

void *CSim_make_semaphore(void);
void CSim_wait(void *semaphore);
void CSim_post(void *semaphore);
void CSim_flush_output(void);
int CSim_fork(void);
void CSim_exit(int status) __attribute__((noreturn));

/// Calls a block without arguments.
void CSim_call_block(void *block);
void CSim_release_block(void *block);

#endif
