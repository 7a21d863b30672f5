#ifndef CRESOLVER_H
#define CRESOLVER_H

// The resolver of the C library, which reads /etc/resolv.conf (resolver(3)). This module has no compiled code.

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <errno.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdint.h>
#include <string.h>

/// A failure of CResolver_send other than those that errno describes.
enum {
    CResolver_no_configuration = -2,
    CResolver_untrusted = -3,
};

/// Whether an attacker on the network can neither read nor replace the messages of the name servers: all of them are
/// on this machine, or the administrator has declared the path to them as trusted (`options trust-ad`).
static inline int CResolver_is_trusted(struct __res_state *state) {
    if (state->options & RES_TRUSTAD) return 1;
    for (int i = 0; i < state->nscount; i++) {
        const struct sockaddr_in *address = &state->nsaddr_list[i];
        const struct sockaddr_in6 *other = state->_u._ext.nsaddrs[i];
        if (address->sin_family == AF_INET) {
            if (ntohl(address->sin_addr.s_addr) >> 24 != 127) return 0;
        } else if (!other || other->sin6_family != AF_INET6 || !IN6_IS_ADDR_LOOPBACK(&other->sin6_addr)) {
            return 0;
        }
    }
    return state->nscount > 0;
}

/// Sends a query to the name servers in turn, over UDP and, if a reply is truncated, over TCP. Returns the length of
/// the reply, -1 with errno, or one of the failures above, in which case nothing was sent. A server that replies with
/// SERVFAIL counts as a server that does not reply.
///
/// The flag AD of the reply is only meaningful if the name servers are trusted, so they must be.
///
/// @param port  The port of a name server on 127.0.0.1 to use instead of the servers in /etc/resolv.conf, or 0.
static inline int CResolver_send(
    const unsigned char *query, int length, unsigned char *reply, int capacity, int seconds, uint16_t port) {
    struct __res_state state;
    memset(&state, 0, sizeof state);
    if (res_ninit(&state) != 0) return CResolver_no_configuration;
    if (port != 0) {
        state.nscount = 1;
        state.nsaddr_list[0].sin_family = AF_INET;
        state.nsaddr_list[0].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        state.nsaddr_list[0].sin_port = htons(port);
    }
    int result = CResolver_untrusted;
    if (CResolver_is_trusted(&state)) {
        state.options |= RES_TRUSTAD;
        state.retry = 2;
        state.retrans = seconds / (2 * state.nscount) > 0 ? seconds / (2 * state.nscount) : 1;
        result = res_nsend(&state, query, length, reply, capacity);
        if (result < 0) result = -1;
    }
    int error = errno;
    res_nclose(&state);
    errno = error;
    return result;
}

#endif
