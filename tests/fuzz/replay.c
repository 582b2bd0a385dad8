/* replay FILE|DIRECTORY...: gives a target of fuzzing each file, in builds without libFuzzer. Fails where the target
 * does, and without a file. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"

static int files;

static void replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    static uint8_t data[1 << 20];
    if (file == NULL) fuzz_fail("%s: cannot open", path);
    const size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    if (size == sizeof data) fuzz_fail("%s: expected less than 1 MiB", path);
    uint8_t *copy = malloc(size > 0 ? size : 1); /* of exactly this size, so that reads behind it are found */
    if (copy == NULL) fuzz_fail("%s: no memory", path);
    memcpy(copy, data, size);
    printf("%s\n", path); /* before it is tried: the last line names the one that fails */
    fflush(stdout);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    files++;
}

static void replay(const char *path)
{
    DIR *directory = opendir(path);
    if (directory == NULL) {
        replay_file(path);
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char name[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        replay(name);
    }
    closedir(directory);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) replay(argv[i]);
    printf("%d inputs\n", files);
    return files > 0 ? 0 : 1;
}
