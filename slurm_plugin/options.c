#include "options.h"

#include <dlfcn.h>
#include <slurm/slurm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

/* Weak, so that a Slurm without these functions still loads the plugin, and gets a message. */
#pragma weak slurm_option_get
#pragma weak slurm_option_set
#pragma weak slurm_option_isset
#pragma weak slurm_option_reset
#pragma weak slurm_xfree_ptr
extern char *slurm_option_get(slurm_opt_t *options, const char *name);
extern int slurm_option_set(slurm_opt_t *options, const char *name, const char *value, bool early);
extern bool slurm_option_isset(slurm_opt_t *options, const char *name);
extern bool slurm_option_reset(slurm_opt_t *options, const char *name);
extern void slurm_xfree_ptr(void *pointer);

/* A library may have a symbol of this name; only sbatch's own counts. */
static void *symbol_of_program(const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    Dl_info found;
    Dl_info program;

    return symbol != NULL && dladdr(symbol, &found) != 0 &&
                   dladdr((void *)getauxval(AT_ENTRY), &program) != 0 &&
                   found.dli_fbase == program.dli_fbase
               ? symbol
               : NULL;
}

slurm_opt_t *options_of_process(void)
{
    if (&slurm_option_get == NULL || &slurm_option_set == NULL || &slurm_option_isset == NULL ||
        &slurm_xfree_ptr == NULL)
        return NULL;
    return symbol_of_program("opt");
}

bool options_are_of_sbatch(slurm_opt_t *options)
{
    return !options_is(options, "array", "invalid-context");
}

bool options_given(slurm_opt_t *options, const char *name)
{
    return slurm_option_isset(options, name);
}

char *options_get(slurm_opt_t *options, const char *name)
{
    char *got = slurm_option_get(options, name);
    char *value = strdup(got != NULL ? got : "");

    slurm_xfree_ptr(got);
    return value;
}

bool options_is(slurm_opt_t *options, const char *name, const char *value)
{
    char *got = options_get(options, name);
    bool is = got != NULL && strcmp(got, value) == 0;

    free(got);
    return is;
}

bool options_set(slurm_opt_t *options, const char *name, const char *value)
{
    return slurm_option_set(options, name, value[0] != '\0' ? value : NULL, false) == 0;
}

bool options_reset(slurm_opt_t *options, const char *name)
{
    return &slurm_option_reset != NULL && slurm_option_reset(options, name);
}
