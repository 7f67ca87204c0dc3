/*
 * Runs a fuzz target without libFuzzer: on the inputs in files, and on CHANGES random variations of
 * them. Unlike libFuzzer it does not use coverage. If the target dies, its input is written to CRASH.
 *   TARGET SEED CHANGES CRASH FILE...
 */
#include "fuzz.h"

#include <sanitizer/common_interface_defs.h>
#include <signal.h>

#define MAX_INPUT 4096
#define MAX_INPUTS 4096
#define MAX_STEPS 4

struct input {
    uint8_t data[MAX_INPUT];
    size_t size;
};

static struct input *inputs;
static size_t count;
static struct input now;
static uint64_t state;
static const char *crash;

static void keep(void)
{
    FILE *file = fopen(crash, "we");

    if (file == NULL)
        return;
    fwrite(now.data, 1, now.size, file);
    fclose(file);
}

static void keep_at(int number)
{
    (void)number;
    keep();
}

/* xorshift64*: the same numbers from the same seed everywhere. */
static size_t below(size_t limit)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (size_t)((state * UINT64_C(2685821657736338717)) >> 11) % limit;
}

static void read_input(const char *path)
{
    FILE *file = fopen(path, "re");

    if (file == NULL || count == MAX_INPUTS) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(2);
    }
    inputs[count].size = fread(inputs[count].data, 1, MAX_INPUT, file);
    count++;
    fclose(file);
}

/* Puts `size` bytes in the place of the `old` bytes at `at`. */
static void splice(size_t at, size_t old, const uint8_t *data, size_t size)
{
    if (now.size - old + size > MAX_INPUT)
        return;
    memmove(now.data + at + size, now.data + at + old, now.size - at - old);
    memcpy(now.data + at, data, size);
    now.size += size - old;
}

static void change(void)
{
    static const char *const PIECES[] = {"=", ",", ":", "-", "0", "9", ".", " ", "\n", "(null)",
                                         "999999999999999999999", "\xff", "#SBATCH ", "-N", "%n"};
    size_t at = below(now.size + 1);
    size_t rest = now.size - at;
    const struct input *other = &inputs[below(count)];
    const char *piece = PIECES[below(sizeof(PIECES) / sizeof(PIECES[0]))];
    size_t from = below(other->size + 1);
    uint8_t byte = (uint8_t)below(256);

    switch (below(5)) {
    case 0:
        splice(at, rest > 0, &byte, 1);
        break;
    case 1:
        splice(at, below(rest + 1), &byte, 0);
        break;
    case 2:
        splice(at, below(2) * rest, other->data + from, other->size - from);
        break;
    case 3:
        splice(at, 0, (const uint8_t *)piece, strlen(piece));
        break;
    default:
        splice(at, 0, now.data + at, below(rest + 1));
    }
}

static void run(const struct input *input, size_t steps)
{
    now = *input;
    for (size_t i = 0; i < steps; i++)
        change();
    LLVMFuzzerTestOneInput(now.data, now.size);
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: %s SEED CHANGES CRASH FILE...\n", argv[0]);
        return 2;
    }
    state = strtoull(argv[1], NULL, 10) * 2 + 1;
    crash = argv[3];
    inputs = calloc(MAX_INPUTS, sizeof(*inputs));
    if (inputs == NULL)
        return 2;
    __sanitizer_set_death_callback(keep);
    signal(SIGABRT, keep_at);
    for (int i = 4; i < argc; i++)
        read_input(argv[i]);
    for (size_t i = 0; i < count; i++)
        run(&inputs[i], 0);
    for (unsigned long left = strtoul(argv[2], NULL, 10); left > 0; left--)
        run(&inputs[below(count)], 1 + below(MAX_STEPS));
    printf("%zu inputs, %s changes\n", count, argv[2]);
    free(inputs);
    return 0;
}
