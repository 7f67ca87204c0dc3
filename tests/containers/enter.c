/*
 * A SPANK plugin of the tests that has a task enter an image, as pyxis does: --container-image=FOLDER
 * of sbatch and srun. FOLDER/root is its root, FOLDER/fstab says what is mounted there (as enroot's
 * mounts.d); its own variables, which win over the job's, are in /image/environment in it.
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

SPANK_PLUGIN(enter, 1);

static char image[PATH_MAX / 2];

static int take(int value, const char *text, int remote)
{
    (void)value;
    (void)remote;
    snprintf(image, sizeof(image), "%s", text);
    return 0;
}

static struct spank_option OPTION = {
    .name = "container-image", .arginfo = "FOLDER", .usage = "run in an image", .has_arg = 1,
    .cb = take,
};

int slurm_spank_init(spank_t spank, int count, char **words)
{
    (void)count;
    (void)words;
    return spank_context() == S_CTX_SLURMD ? 0 : spank_option_register(spank, &OPTION);
}

static int bind(const char *source, const char *target, const char *options)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/root%s", image, target);
    if (mount(source, path, NULL, MS_BIND | MS_REC, NULL) != 0)
        return strstr(options, "nofail") != NULL ? 0 : -1;
    if (strstr(options, ",ro") == NULL)
        return 0;
    return mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL);
}

/* As root, in the task's process. */
int slurm_spank_task_init_privileged(spank_t spank, int count, char **words)
{
    char source[PATH_MAX / 4], target[PATH_MAX / 4], type[16], options[256];
    char line[PATH_MAX], place[PATH_MAX];
    FILE *table;

    (void)spank;
    (void)count;
    (void)words;
    if (image[0] == '\0')
        return 0;
    snprintf(line, sizeof(line), "%s/fstab", image);
    table = fopen(line, "re");
    if (table == NULL || getcwd(place, sizeof(place)) == NULL || unshare(CLONE_NEWNS) != 0 ||
        mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) != 0) {
        slurm_error("enter: %s: %m", image);
        return -1;
    }
    while (fgets(line, sizeof(line), table) != NULL)
        if (line[0] != '#' &&
            sscanf(line, "%1023s %1023s %15s %255s", source, target, type, options) == 4 &&
            bind(source, target, options) != 0) {
            slurm_error("enter: %s in %s: %m", target, image);
            return -1;
        }
    fclose(table);
    snprintf(line, sizeof(line), "%s/root", image);
    if (chroot(line) != 0 || (chdir(place) != 0 && chdir("/") != 0)) {
        slurm_error("enter: %s: %m", line);
        return -1;
    }
    return 0;
}

/* Here pyxis sets them: a plugin that is listed after it sees them, and one before does not. */
int slurm_spank_task_init(spank_t spank, int count, char **words)
{
    char line[PATH_MAX];
    FILE *variables;

    (void)count;
    (void)words;
    if (image[0] == '\0')
        return 0;
    variables = fopen("/image/environment", "re");
    while (variables != NULL && fgets(line, sizeof(line), variables) != NULL) {
        char *value = strchr(line, '=');

        line[strcspn(line, "\n")] = '\0';
        *value++ = '\0';
        spank_setenv(spank, line, value, 1);
    }
    if (variables != NULL)
        fclose(variables);
    return 0;
}
