/*
 * Runs a fuzz target without libFuzzer on the inputs in a file, each behind its length. NUMBER always says
 * which of them was the last to run.
 *   TARGET INPUTS NUMBER
 */
#include "fuzz.h"

int main(int argc, char **argv)
{
    FILE *inputs = argc == 3 ? fopen(argv[1], "re") : NULL;
    FILE *number = argc == 3 ? fopen(argv[2], "we") : NULL;
    uint32_t size;

    if (inputs == NULL || number == NULL) {
        fprintf(stderr, "usage: %s INPUTS NUMBER\n", argv[0]);
        return 2;
    }
    for (unsigned run = 0; fread(&size, sizeof(size), 1, inputs) == 1; run++) {
        uint8_t *data = malloc(size); /* no longer, so that sanitizers notice a read beyond it */

        if (fread(data, 1, size, inputs) != size)
            return 2;
        rewind(number);
        fprintf(number, "%u", run);
        fflush(number);
        LLVMFuzzerTestOneInput(data, size);
        free(data);
    }
    return 0;
}
