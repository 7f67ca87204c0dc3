#include "keeper_note.h"

#include "process.h"

#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESS_NAME "bftrainer-note"

static int connect_to(const char *keeper)
{
    char host[256];
    const char *colon = strrchr(keeper, ':');
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses;
    int connection = -1;

    if (colon == NULL || (size_t)(colon - keeper) >= sizeof(host))
        return -1;
    snprintf(host, sizeof(host), "%.*s", (int)(colon - keeper), keeper);
    if (getaddrinfo(host, colon + 1, &hints, &addresses) != 0)
        return -1;
    for (struct addrinfo *a = addresses; a != NULL && connection < 0; a = a->ai_next) {
        connection = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (connection >= 0 && connect(connection, a->ai_addr, a->ai_addrlen) != 0) {
            close(connection);
            connection = -1;
        }
    }
    freeaddrinfo(addresses);
    return connection;
}

/* Copies the keeper's answer to `output`, as far as one line goes. */
static void exchange(const char *keeper, const char *line, int output)
{
    char text[KEEPER_LINE + 1];
    int length = snprintf(text, sizeof(text), "%s\n", line);
    int connection = connect_to(keeper);
    ssize_t got;

    if (connection < 0 || length >= (int)sizeof(text) ||
        send(connection, text, length, MSG_NOSIGNAL) != length)
        return;
    for (size_t left = KEEPER_LINE; left > 0; left -= got) {
        got = recv(connection, text, left, 0);
        if (got <= 0 || (output >= 0 && write(output, text, got) != got))
            return;
    }
}

/* The child's whole life. A pending alarm ends it, whatever it is waiting for. */
static void exchange_and_exit(const char *keeper, const char *line, int output)
{
    sigset_t none;

    process_become_helper(PROCESS_NAME, output);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    alarm(KEEPER_LIMIT_S);
    exchange(keeper, line, output);
    _exit(0);
}

bool keeper_ask(const char *keeper, const char *line, char *answer, size_t size)
{
    int ends[2];
    size_t length = 0;
    ssize_t got;
    pid_t child;
    char *end;

    if (pipe(ends) != 0)
        return false;
    child = fork();
    if (child == 0)
        exchange_and_exit(keeper, line, ends[1]);
    close(ends[1]);
    while (child > 0 && length < size - 1 &&
           (got = read(ends[0], answer + length, size - 1 - length)) > 0)
        length += got;
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    answer[length] = '\0';
    end = strchr(answer, '\n');
    if (end == NULL)
        return false;
    *end = '\0';
    return true;
}

void keeper_tell(const char *keeper, const char *line)
{
    pid_t child = fork();

    /* The one who talks is a grandchild: nobody here has to wait for it, or is told of its end. */
    if (child == 0) {
        if (fork() == 0)
            exchange_and_exit(keeper, line, -1);
        _exit(0);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
}
