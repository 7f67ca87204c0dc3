#include "announce.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TEXT "announced\n"

/* Takes only numeric addresses: a name server could delay a submission. */
static struct addrinfo *find(const char *address, size_t length)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_DGRAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char text[64];
    char *colon;

    if (length >= sizeof(text))
        return NULL;
    snprintf(text, sizeof(text), "%.*s", (int)length, address);
    colon = strrchr(text, ':');
    if (colon == NULL || colon == text || colon[1] == '\0')
        return NULL;
    *colon = '\0';
    return getaddrinfo(text, colon + 1, &hints, &found) == 0 ? found : NULL;
}

static void send_to(const struct addrinfo *address)
{
    int out = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (out < 0)
        return;
    sendto(out, TEXT, strlen(TEXT), MSG_NOSIGNAL, address->ai_addr, address->ai_addrlen);
    close(out);
}

/* Sends to each address if `sends`. Returns false if a text is not an address. */
static bool each(const char *addresses, bool sends)
{
    do {
        size_t length = strcspn(addresses, ",");
        struct addrinfo *address = find(addresses, length);

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
    return each(addresses, false);
}

void announce_submission(const char *addresses)
{
    each(addresses, true);
}
