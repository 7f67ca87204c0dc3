/*
 * For tests: reads a text on stdin and prints what spec.c makes of it, as one line of JSON.
 * Usage: spec_check spec [MAX_GRACE] | spec_check record
 */
#include "spec.h"

#include <stdio.h>
#include <string.h>

static void print_error(const char *error)
{
    printf("{\"error\": \"");
    for (; *error != '\0'; error++)
        printf(*error == '"' || *error == '\\' ? "\\%c" : "%c", *error);
    printf("\"}\n");
}

static void print_spec(const struct spec *spec)
{
    char weight[32];
    char grace[32];
    char hours[32];

    micros_format(spec->weight, weight, sizeof(weight));
    micros_format(spec->grace, grace, sizeof(grace));
    printf("{\"weight\": %s, \"grace_s\": %s", weight, grace);
    micros_format(spec->node_hours, hours, sizeof(hours));
    if (spec->node_hours > 0)
        printf(", \"node_hours\": %s", hours);
}

static void print_sizes(const struct sizes *sizes)
{
    for (unsigned i = 0; i < sizes->count; i++)
        printf("%s%u", i == 0 ? ", \"sizes\": [" : ", ", sizes->size[i]);
    printf("%s, \"step\": %u", sizes->count > 0 ? "]" : "", sizes->step);
}

static void print_request(const struct request *request)
{
    print_spec(&request->spec);
    print_sizes(&request->sizes);
    printf(", \"min_nodes\": %u, \"own_rendezvous\": %s, \"no_resume\": %s, \"batch\": \"%s\"}\n",
           request->min_nodes, request->own_rendezvous ? "true" : "false",
           request->no_resume ? "true" : "false", request->batch);
}

static void print_record(const struct record *record)
{
    char text[RECORD_SIZE];

    print_spec(&record->spec);
    print_sizes(&record->sizes);
    printf(", \"min_nodes\": %u, \"max_nodes\": %u", record->min_nodes, record->max_nodes);
    if (record->minutes > 0)
        printf(", \"minutes\": %u", record->minutes);
    else
        printf(", \"minutes\": null");
    record_format(record, text);
    if (record->has_task)
        printf(", \"task\": %u", record->task);
    if (record->id[0] != '\0')
        printf(", \"id\": \"%s\"", record->id);
    else
        printf(", \"id\": null");
    printf(", \"partitions\": \"%s\", \"nodes\": \"%s\"", record->partitions, record->nodes);
    printf(", \"personal\": %s, \"text\": \"%s\"}\n", record->personal ? "true" : "false", text);
}

int main(int argc, char **argv)
{
    char text[4096];
    char error[SPEC_ERROR_SIZE];
    struct request request;
    struct record record;
    micros_t max_grace = 30 * MICROS;

    text[fread(text, 1, sizeof(text) - 1, stdin)] = '\0';
    if (argc == 3 && !micros_parse(argv[2], &max_grace))
        return 2;
    if (argc >= 2 && strcmp(argv[1], "spec") == 0) {
        if (!spec_parse(text, max_grace, &request, error))
            print_error(error);
        else
            print_request(&request);
    } else if (argc == 2 && strcmp(argv[1], "record") == 0) {
        if (!record_parse(text, &record, error))
            print_error(error);
        else
            print_record(&record);
    } else {
        fprintf(stderr, "usage: spec_check spec [MAX_GRACE] | spec_check record\n");
        return 2;
    }
    return 0;
}
