/*
 * A script of any bytes: every line number that is found exists in it.
 */
#include "../script_paths.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = text_of(data, size);
    FILE *script = size > 0 ? fmemopen(text, size, "r") : NULL;
    unsigned lines[CHANGING_KINDS];

    if (script != NULL) {
        script_paths_find(script, lines);
        for (int kind = 0; kind < CHANGING_KINDS; kind++)
            PROMISE(lines[kind] <= size);
        fclose(script);
    }
    free(text);
    return 0;
}
