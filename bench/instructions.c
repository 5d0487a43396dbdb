/* A plugin of qemu 7.2 to 8.1 that prints how many instructions a program executed. Debian has no header for plugins, so
 * the functions of qemu's include/qemu/qemu-plugin.h that it needs are declared here. */

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

typedef uint64_t Plugin;
typedef struct qemu_plugin_tb Block; /* of instructions that qemu translates together */
extern void qemu_plugin_register_vcpu_tb_trans_cb(Plugin id, void (*call)(Plugin id, Block *block));
extern void qemu_plugin_register_vcpu_tb_exec_inline(Block *block, int operation, void *at, uint64_t value);
extern size_t qemu_plugin_tb_n_insns(const Block *block);
extern void qemu_plugin_register_atexit_cb(Plugin id, void (*call)(Plugin id, void *data), void *data);

enum { ADD };
int qemu_plugin_version = 1;
static uint64_t executed;

static void count(Plugin id, Block *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, &executed, qemu_plugin_tb_n_insns(block));
}

static void print(Plugin id, void *data) {
    (void)id, (void)data;
    fprintf(stderr, "%" PRIu64 "\n", executed);
}

int qemu_plugin_install(Plugin id, const void *about, int count_of_arguments, char **arguments) {
    (void)about, (void)count_of_arguments, (void)arguments;
    qemu_plugin_register_vcpu_tb_trans_cb(id, count);
    qemu_plugin_register_atexit_cb(id, print, NULL);
    return 0;
}
