/* wolfSSL over datagrams: a server that echoes, or a client that sends the lines of its standard input and prints what
   comes. */

#include <wolfssl/options.h>
#include <wolfssl/ssl.h>

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void check(int is_well, const char *what)
{
    if (is_well)
        return;
    printf("failed: %s\n", what);
    exit(1);
}

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return address;
}

static void shake_hands(WOLFSSL *connection, int is_server)
{
    while ((is_server ? wolfSSL_accept(connection) : wolfSSL_connect(connection)) != WOLFSSL_SUCCESS) {
        int error = wolfSSL_get_error(connection, 0);
        check(error == WOLFSSL_ERROR_WANT_READ, wolfSSL_ERR_reason_error_string(error));
    }
}

/* All of it, in datagrams of at most 1,000 bytes. */
static void send_all(WOLFSSL *connection, const char *bytes, int count)
{
    while (count > 0) {
        int sent = wolfSSL_write(connection, bytes, count > 1000 ? 1000 : count);
        check(sent > 0, "write");
        bytes += sent;
        count -= sent;
    }
}

static void serve(int descriptor, int port, const char *certificate, const char *key)
{
    struct sockaddr_in address = loopback(port), peer;
    socklen_t size = sizeof peer;
    char bytes[16384];
    check(bind(descriptor, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    check(recvfrom(descriptor, bytes, sizeof bytes, MSG_PEEK, (struct sockaddr *)&peer, &size) >= 0, "recvfrom");
    WOLFSSL_CTX *context = wolfSSL_CTX_new(wolfDTLSv1_2_server_method());
    check(wolfSSL_CTX_use_certificate_chain_file(context, certificate) == WOLFSSL_SUCCESS, "certificate");
    check(wolfSSL_CTX_use_PrivateKey_file(context, key, WOLFSSL_FILETYPE_PEM) == WOLFSSL_SUCCESS, "key");
    WOLFSSL *connection = wolfSSL_new(context);
    wolfSSL_dtls_set_peer(connection, &peer, size);
    wolfSSL_set_fd(connection, descriptor);
    shake_hands(connection, 1);
    for (;;) {
        int count = wolfSSL_read(connection, bytes, sizeof bytes);
        if (count > 0)
            send_all(connection, bytes, count);
        else if (wolfSSL_get_error(connection, count) != WOLFSSL_ERROR_WANT_READ)
            exit(0);
    }
}

static void visit(int descriptor, int port, const char *roots)
{
    struct sockaddr_in address = loopback(port);
    char bytes[16384];
    WOLFSSL_CTX *context = wolfSSL_CTX_new(wolfDTLSv1_2_client_method());
    check(wolfSSL_CTX_load_verify_locations(context, roots, NULL) == WOLFSSL_SUCCESS, "roots");
    WOLFSSL *connection = wolfSSL_new(context);
    wolfSSL_dtls_set_peer(connection, &address, sizeof address);
    wolfSSL_set_fd(connection, descriptor);
    check(wolfSSL_check_domain_name(connection, "localhost") == WOLFSSL_SUCCESS, "name");
    shake_hands(connection, 0);
    for (;;) {
        struct pollfd ready[2] = {{.fd = 0, .events = POLLIN}, {.fd = descriptor, .events = POLLIN}};
        poll(ready, 2, -1);
        if (ready[0].revents) {
            int count = read(0, bytes, sizeof bytes);
            if (count <= 0)
                exit(0);
            send_all(connection, bytes, count);
        }
        if (ready[1].revents) {
            int count = wolfSSL_read(connection, bytes, sizeof bytes);
            if (count > 0)
                fwrite(bytes, 1, count, stdout);
            else if (wolfSSL_get_error(connection, count) != WOLFSSL_ERROR_WANT_READ)
                exit(0);
        }
    }
}

int main(int count, char **arguments)
{
    check(count == 5, "usage: converse server PORT CERTIFICATE KEY | converse client PORT ROOTS -");
    setvbuf(stdout, NULL, _IONBF, 0);
    int descriptor = socket(AF_INET, SOCK_DGRAM, 0);
    if (strcmp(arguments[1], "server") == 0)
        serve(descriptor, atoi(arguments[2]), arguments[3], arguments[4]);
    else
        visit(descriptor, atoi(arguments[2]), arguments[3]);
    return 0;
}
