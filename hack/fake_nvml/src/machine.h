/* The machine that is described: its GPUs, how they are joined, and what is wrong with them just now.
 *
 * Plain values without locks or files. Lines of text change it (lines.c); the calls of NVML read it (calls_*.c).
 */
#ifndef FAKE_NVML_MACHINE_H
#define FAKE_NVML_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include "nvml.h"

enum { MAX_GPUS = 64, MAX_MODELS = 16, MAX_FAULTS = 256, ANY_GPU = -1 };

/* of a feature that a GPU has switched on, switched off, or does not have at all */
enum feature { UNSUPPORTED = -1, DISABLED = NVML_FEATURE_DISABLED, ENABLED = NVML_FEATURE_ENABLED };

struct nvlink {
    enum { NOT_CONNECTED, TO_GPU, TO_SWITCH } end;
    bool is_up;
    int peer;             /* slot of the GPU at the other end */
    char switch_pci[32];
};

struct gpu {
    bool present, lost;
    char uuid[80], name[96], serial[30], pci[32], part_number[80], vbios[32], compute[8], cpus[64];
    char unsupported[512]; /* names of functions, with a comma between two */
    long long minor, pci_device, pci_subsystem, architecture, brand, numa, host_bridge, pcie_switch;
    long long memory, reserved, used, power_mw, power_limit_mw, temperature, utilization, memory_utilization;
    long long energy_mj, recovery_action;
    long long ecc, mig, persistence, events, nvlink_count, nvlink_version;
    long long corrected_volatile, corrected_aggregate, uncorrected_volatile, uncorrected_aggregate;
    long long retired_single, retired_double, retired_pending;
    long long remapped_corrected, remapped_uncorrected, remap_pending, remap_failed;
    struct nvlink nvlinks[NVML_NVLINK_MAX_LINKS];
};

struct fault {
    int gpu;
    char function[64];
    bool hangs;
    double seconds;        /* how long it hangs; 0: until it is repaired */
    nvmlReturn_t result;   /* what a fault that does not hang answers */
};

struct machine {
    char driver[80], nvml[80];
    long long cuda;
    nvmlReturn_t init_result;
    bool lists_at_once;    /* what is added and removed shows without a new nvmlInit */
    int gpu_count, model_count, fault_count;
    struct gpu gpus[MAX_GPUS];
    struct { char name[32]; struct gpu gpu; } models[MAX_MODELS];
    struct fault faults[MAX_FAULTS];
};

/* What a line causes besides the new state. */
struct listener {
    void (*on_event)(int slot, unsigned long long type, unsigned long long data);
    void (*on_gone)(int slot);
};

void machine_clear(struct machine *machine);

/* Change the machine by this line. line is cut into pieces in place.
 * Returns false for a line that makes no sense, with the reason in why: then nothing is changed. */
bool machine_apply(struct machine *machine, char *line, const struct listener *listener, char *why, size_t why_size);

/* Set one attribute of a GPU. Returns false, with the reason in why. */
bool gpu_set(struct gpu *gpu, const char *key, const char *value, char *why, size_t why_size);

/* Whether this name of a function, as somebody wrote it, means this symbol: itself, without its _vN, or `*`. */
bool names_function(const char *written, size_t length, const char *symbol);

/* The number of an error as written, NVML_ERROR_ or not before it, or a number. Returns false for what is none. */
bool error_number(const char *written, nvmlReturn_t *result);
const char *error_text(nvmlReturn_t result);

bool read_number(const char *text, long long *number);

#endif
