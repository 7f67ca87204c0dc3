#include "announce.h"

#include "keeper_note.h"

#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TEXT "announced\n"

/* Takes only numeric addresses: a name server could delay a submission. */
#define NUMERIC (AI_NUMERICHOST | AI_NUMERICSERV)

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
        struct addrinfo *address = keeper_look_up(addresses, length, SOCK_DGRAM, NUMERIC);

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
