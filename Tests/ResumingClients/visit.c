/* wolfSSL: visits a port of 127.0.0.1 four times with TLS 1.2, by ticket or by identifier, or with TLS 1.3. */

#include <wolfssl/options.h>
#include <wolfssl/ssl.h>

#include <arpa/inet.h>
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

static int dial(int port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(descriptor, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    return descriptor;
}

static void talk(WOLFSSL *connection)
{
    static const char request[] = "GET / HTTP/1.0\r\n\r\n";
    char answer[4096];
    check(wolfSSL_write(connection, request, sizeof request - 1) > 0, "wolfSSL_write");
    while (wolfSSL_read(connection, answer, sizeof answer) > 0) {
    }
}

/* Gives the session to the next visit. */
static WOLFSSL_SESSION *visit(WOLFSSL_CTX *context, int port, WOLFSSL_SESSION *session)
{
    int descriptor = dial(port);
    WOLFSSL *connection = wolfSSL_new(context);
    wolfSSL_set_fd(connection, descriptor);
    if (session != NULL)
        check(wolfSSL_set_session(connection, session) == WOLFSSL_SUCCESS, "wolfSSL_set_session");
    check(wolfSSL_connect(connection) == WOLFSSL_SUCCESS, "wolfSSL_connect");
    talk(connection);
    printf("%s %d\n", wolfSSL_get_version(connection), wolfSSL_session_reused(connection));
    WOLFSSL_SESSION *next = wolfSSL_get1_session(connection);
    wolfSSL_free(connection);
    close(descriptor);
    return next;
}

int main(int count, char **arguments)
{
    check(count == 3, "usage: visit PORT 1.2 | 1.2-by-identifier | 1.3");
    int is_new = strcmp(arguments[2], "1.3") == 0;
    WOLFSSL_CTX *context = wolfSSL_CTX_new(is_new ? wolfTLSv1_3_client_method() : wolfTLSv1_2_client_method());
    wolfSSL_CTX_set_verify(context, WOLFSSL_VERIFY_NONE, NULL);
    if (strcmp(arguments[2], "1.2-by-identifier") != 0)
        check(wolfSSL_CTX_UseSessionTicket(context) == WOLFSSL_SUCCESS, "wolfSSL_CTX_UseSessionTicket");
    WOLFSSL_SESSION *session = NULL;
    for (int number = 0; number < 4; number++)
        session = visit(context, atoi(arguments[1]), session);
    return 0;
}
