#include "keeper_note.h"

#include "process.h"

#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESS_NAME "bftrainer-note"

static int connect_to(const struct sockaddr *address, socklen_t length)
{
    int connection = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connection >= 0 && connect(connection, address, length) != 0) {
        close(connection);
        return -1;
    }
    return connection;
}

static int find(const char *keeper, struct keeper_address *found)
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
        connection = connect_to(a->ai_addr, a->ai_addrlen);
        if (connection >= 0) {
            memcpy(&found->socket, a->ai_addr, a->ai_addrlen);
            found->length = a->ai_addrlen;
        }
    }
    freeaddrinfo(addresses);
    return connection;
}

/* Copies the keeper's answer to `output`, as far as one line goes. */
static void exchange(int connection, const char *line, int output)
{
    char text[KEEPER_LINE];
    size_t length = strlen(line);
    ssize_t got;

    if (connection < 0 || send(connection, line, length, MSG_NOSIGNAL | MSG_MORE) != (ssize_t)length ||
        send(connection, "\n", 1, MSG_NOSIGNAL) != 1)
        return;
    for (size_t left = KEEPER_LINE; left > 0; left -= got) {
        got = recv(connection, text, left, 0);
        if (got <= 0 || (output >= 0 && write(output, text, got) != got))
            return;
    }
}

/* A pending alarm ends the child, whatever it is waiting for. */
static void become_speaker(int output)
{
    sigset_t none;

    process_become_helper(PROCESS_NAME, &output, 1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    alarm(KEEPER_LIMIT_S);
}

/* glibc's own functions would change all threads, of which a fork has but one. */
static bool become(const struct identity *user)
{
    return getuid() != 0 ||
           (syscall(SYS_setgroups, 0, NULL) == 0 &&
            syscall(SYS_setresgid, user->group, user->group, user->group) == 0 &&
            syscall(SYS_setresuid, user->user, user->user, user->user) == 0);
}

bool keeper_ask(const char *keeper, const char *line, char *answer, size_t size,
                struct keeper_address *found)
{
    int ends[2];
    size_t length = 0;
    ssize_t got;
    pid_t child;
    char *end;

    if (pipe(ends) != 0)
        return false;
    child = fork();
    if (child == 0) {
        become_speaker(ends[1]);
        exchange(find(keeper, found), line, ends[1]);
        _exit(0);
    }
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

/* The one who talks is a grandchild: nobody here has to wait for it, or is told of its end. */
static bool fork_speaker(void)
{
    pid_t child = fork();

    if (child == 0) {
        if (fork() == 0)
            return true;
        _exit(0);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
    return false;
}

void keeper_tell(const char *keeper, const char *line)
{
    struct keeper_address found;

    if (!fork_speaker())
        return;
    become_speaker(-1);
    exchange(find(keeper, &found), line, -1);
    _exit(0);
}

void keeper_tell_as(const struct identity *user, const struct keeper_address *keeper,
                    const char *line)
{
    if (keeper->length == 0 || !fork_speaker())
        return;
    become_speaker(-1);
    if (become(user))
        exchange(connect_to((const struct sockaddr *)&keeper->socket, keeper->length), line, -1);
    _exit(0);
}
