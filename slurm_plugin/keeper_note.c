#include "keeper_note.h"

#include "job_secret.h"
#include "process.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESS_NAME "bftrainer-note"
#define ANNOUNCED "announced\n"
#define VERSION "13" /* as in keeper/protocol.py */
#define NONCE_BYTES 16
#define NONCE_SIZE (2 * NONCE_BYTES + 1)

/* A line for the keeper, and who proves to have sent it. */
struct request {
    const char *line;
    const char *who;
    const char *secret;
};

/* The addresses of one HOST:PORT, of `length` characters, for freeaddrinfo(); NULL if it has none. */
static struct addrinfo *look_up(const char *address, size_t length, int type, int flags)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = type, .ai_flags = flags};
    struct addrinfo *found = NULL;
    char text[256];
    char *colon;

    snprintf(text, sizeof(text), "%.*s", (int)length, address);
    colon = strrchr(text, ':');
    if (colon == NULL || colon == text || colon[1] == '\0')
        return NULL;
    *colon = '\0';
    return getaddrinfo(text, colon + 1, &hints, &found) == 0 ? found : NULL;
}

/* Adds the addresses of one HOST:PORT, of `length` characters; a host without any is left out. */
static void add_host(const char *host, size_t length, unsigned number,
                     struct keeper_addresses *found)
{
    struct addrinfo *addresses = look_up(host, length, SOCK_STREAM, 0);

    if (addresses == NULL)
        return;
    for (struct addrinfo *a = addresses; a != NULL && found->count < KEEPER_ADDRESSES; a = a->ai_next) {
        struct keeper_address *next = &found->all[found->count++];

        memcpy(&next->socket, a->ai_addr, a->ai_addrlen);
        next->length = a->ai_addrlen;
        next->host = number;
    }
    freeaddrinfo(addresses);
}

static void find(const char *keeper, struct keeper_addresses *found)
{
    unsigned number = 0;
    size_t length;

    for (found->count = 0; *keeper != '\0'; keeper += length + (keeper[length] == ',')) {
        length = strcspn(keeper, ",");
        add_host(keeper, length, number++, found);
    }
}

/* The limit holds for the connecting as well. */
static int connect_to(const struct keeper_address *keeper)
{
    const struct timeval limit = {.tv_sec = KEEPER_LIMIT_S};
    int connection = socket(keeper->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connection >= 0 &&
        (setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0 ||
         setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0 ||
         connect(connection, (const struct sockaddr *)&keeper->socket, keeper->length) != 0)) {
        close(connection);
        return -1;
    }
    return connection;
}

static bool send_text(int connection, const char *text)
{
    return send(connection, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

/* `line` stays as it is if none comes. It may be shown to users: other than printable ASCII becomes '?'. */
static bool receive_line(int connection, char line[KEEPER_LINE])
{
    char text[KEEPER_LINE];
    size_t length = 0;
    ssize_t got;

    while (length < sizeof(text) - 1 &&
           (got = recv(connection, text + length, sizeof(text) - 1 - length, 0)) > 0) {
        char *end = memchr(text + length, '\n', (size_t)got);

        length += (size_t)got;
        if (end != NULL) {
            *end = '\0';
            for (char *at = text; at < end; at++)
                *at = (*at >= 32 && *at < 127) ? *at : '?';
            memcpy(line, text, end + 1 - text);
            return true;
        }
    }
    return false;
}

static bool is_refusal(const char *line)
{
    return strncmp(line, REFUSED, strlen(REFUSED)) == 0;
}

static bool prove(const struct request *request, const char *role, const char *nonce,
                  const char *answer, char proof[SECRET_SIZE])
{
    char text[KEEPER_LINE];

    snprintf(text, sizeof(text), "%s %s %s %s", role, request->who, nonce, answer);
    return secret_prove(request->secret, text, proof);
}

/* Begins a connection as introduce() in keeper/credentials.py does. If that fails, `line` may say why.
 * The keeper's proof need not be compared in constant time, as it is good for this connection alone. */
static bool introduce(int connection, const struct request *request, char line[KEEPER_LINE])
{
    unsigned char random[NONCE_BYTES];
    char nonce[NONCE_SIZE], answer[NONCE_SIZE], given[SECRET_SIZE], proof[SECRET_SIZE];
    char text[KEEPER_LINE];

    if (getrandom(random, NONCE_BYTES, 0) != NONCE_BYTES)
        return false;
    hex_write(random, NONCE_BYTES, nonce);
    snprintf(text, sizeof(text), "hello " VERSION " %s %s\n", request->who, nonce);
    if (!send_text(connection, text) || !receive_line(connection, line) || is_refusal(line))
        return false;
    if (sscanf(line, "challenge %32[0-9a-f] %64[0-9a-f]", answer, given) != 2 ||
        strlen(answer) != NONCE_SIZE - 1 || !prove(request, "keeper", nonce, answer, proof) ||
        strcmp(given, proof) != 0 || !prove(request, "client", nonce, answer, proof)) {
        snprintf(line, KEEPER_LINE, REFUSED "what answers there is not the keeper, or has another key");
        return false;
    }
    snprintf(text, sizeof(text), "proof %s\n", proof); /* and the line, in one segment */
    return send(connection, text, strlen(text), MSG_NOSIGNAL | MSG_MORE) > 0;
}

/* False without an answer, and if that is a refusal, which is in `line` then. */
static bool exchange_with(const struct keeper_address *keeper, const struct request *request,
                          char line[KEEPER_LINE])
{
    int connection = connect_to(keeper);
    char text[KEEPER_LINE + 1];
    bool good;

    snprintf(text, sizeof(text), "%s\n", request->line);
    good = connection >= 0 && introduce(connection, request, line) && send_text(connection, text) &&
           receive_line(connection, line) && !is_refusal(line);
    if (connection >= 0)
        close(connection);
    return good;
}

/* An alarm ends the child, whatever it is waiting for. */
static void become_speaker(void)
{
    sigset_t none;

    process_become_helper(PROCESS_NAME, NULL, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    alarm(2 * KEEPER_HOSTS * KEEPER_LIMIT_S); /* to connect, and to answer */
}

bool keeper_is_valid(const char *keeper)
{
    int hosts = 0;

    do {
        size_t length = strcspn(keeper, ",");
        const char *colon = memrchr(keeper, ':', length);

        if (colon == NULL || colon == keeper || colon == keeper + length - 1)
            return false;
        keeper += length;
        hosts++;
    } while (*keeper++ == ',');
    return hosts <= KEEPER_HOSTS;
}

void keeper_begin_with(const char *keeper, unsigned first, char *ordered)
{
    const char *rest = keeper;

    while (first-- > 0)
        rest = strchr(rest, ',') + 1;
    strcpy(ordered, rest);
    if (rest == keeper)
        return;
    strcat(ordered, ",");
    strncat(ordered, keeper, rest - keeper - 1);
}

bool keeper_ask(const char *keeper, const char *who, const char *secret, const char *line,
                struct keeper_addresses *found)
{
    const struct request request = {.line = line, .who = who, .secret = secret};
    pid_t child;

    found->answer[0] = '\0';
    found->answered = 0;
    child = fork();
    if (child == 0) {
        become_speaker();
        find(keeper, found);
        for (unsigned i = 0; i < found->count; i++)
            if (exchange_with(&found->all[i], &request, found->answer)) {
                found->answered = found->all[i].host;
                break;
            }
        _exit(0);
    }
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    return found->answer[0] != '\0';
}

/* Begins to connect to all of the addresses; returns how many that are. */
static unsigned call_all(const struct keeper_addresses *keeper, struct pollfd calls[KEEPER_ADDRESSES])
{
    unsigned count = 0;

    for (unsigned i = 0; i < keeper->count && i < KEEPER_ADDRESSES; i++) {
        const struct keeper_address *to = &keeper->all[i];
        int call = socket(to->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (call < 0)
            continue;
        if (connect(call, (const struct sockaddr *)&to->socket, to->length) == 0 ||
            errno == EINPROGRESS)
            calls[count++] = (struct pollfd){.fd = call, .events = POLLOUT};
        else
            close(call);
    }
    return count;
}

/* Sends the line where a connection has come about; returns how many are still to come. */
static unsigned send_where_connected(struct pollfd *calls, unsigned count, const char *line)
{
    unsigned left = 0;

    for (struct pollfd *call = calls; call < calls + count; call++) {
        if (call->fd >= 0 && call->revents != 0) {
            if (call->revents == POLLOUT)
                send(call->fd, line, strlen(line), MSG_NOSIGNAL);
            close(call->fd);
            call->fd = -1;
        }
        left += call->fd >= 0;
    }
    return left;
}

void keeper_say(const struct keeper_addresses *keeper, const char *text, int limit_ms, int end)
{
    struct pollfd calls[KEEPER_ADDRESSES + 1]; /* and what ends the waiting */
    unsigned count = call_all(keeper, calls);
    struct pollfd *ending = &calls[count];
    long long until = monotonic_ms() + limit_ms;
    long long rest = limit_ms;
    unsigned left = count;
    char line[KEEPER_LINE + 1];

    snprintf(line, sizeof(line), "%s\n", text);
    *ending = (struct pollfd){.fd = end, .events = POLLIN};
    while (left > 0 && rest >= 0 && poll(calls, count + 1, (int)rest) > 0) {
        left = send_where_connected(calls, count, line);
        if (ending->revents != 0)
            break;
        rest = until - monotonic_ms();
    }
    for (unsigned i = 0; i < count; i++)
        if (calls[i].fd >= 0)
            close(calls[i].fd);
}

/* A process of its own does the talking, which the caller does not wait for. */
void keeper_tell(const char *keeper, const char *line)
{
    struct keeper_addresses found;

    if (fork() != 0)
        return;
    become_speaker();
    find(keeper, &found);
    keeper_say(&found, line, KEEPER_LIMIT_S * 1000, -1);
    _exit(0);
}

static void send_to(const struct addrinfo *address)
{
    int out = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (out < 0)
        return;
    sendto(out, ANNOUNCED, strlen(ANNOUNCED), MSG_NOSIGNAL, address->ai_addr, address->ai_addrlen);
    close(out);
}

/* Sends to each address if `sends`. Returns false if a text is not an address. */
static bool announce_to(const char *addresses, bool sends)
{
    do {
        size_t length = strcspn(addresses, ",");
        struct addrinfo *address = look_up(addresses, length, SOCK_DGRAM,
                                           AI_NUMERICHOST | AI_NUMERICSERV);

        if (address == NULL)
            return false;
        if (sends)
            send_to(address);
        freeaddrinfo(address);
        addresses += length;
    } while (*addresses++ == ',');
    return true;
}

bool announce_is_valid(const char *addresses)
{
    return announce_to(addresses, false);
}

void announce_submission(const char *addresses)
{
    announce_to(addresses, true);
}
