#include "site.h"

#include "keeper_note.h"
#include "words.h"

#include <stdio.h>
#include <string.h>

static bool copy(char target[SITE_TEXT], const char *value)
{
    if (value[0] == '\0' || strlen(value) >= SITE_TEXT)
        return false;
    memcpy(target, value, strlen(value) + 1);
    return true;
}

/* PYTHONPATH separates by colons, and a job's working folder may be any. A shell gets some of them,
 * between quotes. */
static bool copy_path(char target[SITE_TEXT], const char *value)
{
    return value[0] == '/' && strpbrk(value, ":'") == NULL && copy(target, value);
}

static bool take_one_of(const char *value, const char *yes, const char *no, bool *is_yes)
{
    *is_yes = strcmp(value, yes) == 0;
    return *is_yes || strcmp(value, no) == 0;
}

static bool take_word(const char *word, struct site *site)
{
    const char *equals = strchr(word, '=');
    size_t key = equals != NULL ? (size_t)(equals - word) : 0;
    const char *value = equals != NULL ? equals + 1 : "";

#define KEY_IS(name) (key == strlen(name) && strncmp(word, name, key) == 0)
    if (KEY_IS("keeper"))
        return keeper_is_valid(value) && copy(site->keeper, value);
    if (KEY_IS("announce"))
        return announce_is_valid(value) && copy(site->announce, value);
    if (KEY_IS("partition"))
        return copy(site->partition, value);
    if (KEY_IS("qos"))
        return copy(site->qos, value);
    if (KEY_IS("local_addr"))
        return copy(site->local_addr, value);
    if (KEY_IS("python"))
        return copy_path(site->python, value);
    if (KEY_IS("interpreter"))
        return copy_path(site->interpreter, value);
    if (KEY_IS("munge_socket")) /* for 'bftrainer status' alone, which reads the line, too */
        return value[0] == '/';
    if (KEY_IS("key_file"))
        return copy_path(site->key_file, value);
    if (KEY_IS("max_grace"))
        return milliseconds_parse(value, &site->max_grace_ms);
    if (KEY_IS("max_elements"))
        return number_parse(value, &site->max_elements) && site->max_elements > 0;
    if (KEY_IS("batch"))
        return take_one_of(value, "once", "each", &site->batch_once);
    if (KEY_IS("share"))
        return take_one_of(value, "yes", "no", &site->share);
    if (KEY_IS("rewrite"))
        return take_one_of(value, "cli_filter", "spank", &site->rewritten_by_filter);
#undef KEY_IS
    return false;
}

void site_parse(int count, char **words, struct site *site)
{
    *site = (struct site){.count = count,
                          .words = words,
                          .interpreter = "/usr/bin/python3",
                          .partition = "bftrainer",
                          .key_file = "/etc/bftrainer/bftrainer.key",
                          .max_grace_ms = 30000,
                          .batch_once = true};
    for (int i = 0; i < count; i++)
        if (!take_word(words[i], site))
            snprintf(site->mistake, sizeof(site->mistake), "'%s' is not a setting",
                     shown(words[i]).text);
    if (site->keeper[0] == '\0' && site->mistake[0] == '\0')
        snprintf(site->mistake, sizeof(site->mistake), "keeper=HOST:PORT is missing");
}
