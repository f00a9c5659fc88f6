/* The described machine: its GPUs, their connections, and their current faults.
 *
 * Plain values without locks or files. Lines of text change it (lines.c); the calls of NVML read it (calls_*.c).
 */
#ifndef FAKE_NVML_MACHINE_H
#define FAKE_NVML_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include "nvml.h"

enum { MAX_PROFILES = 16, MAX_INSTANCES = 15, MAX_COMPUTES = 7, MAX_MIG_DEVICES = 7, MIG_SLICES = 8 };
enum { MAX_GPUS = 64, MAX_MODELS = 16, MAX_FAULTS = 256, MAX_ACTIONS = 64, MAX_FIELDS = 320, MAX_FILES = 64, ANY_GPU = -1 };

/* of a feature that a GPU has switched on, switched off, or does not have at all */
enum feature { UNSUPPORTED = -1, DISABLED = NVML_FEATURE_DISABLED, ENABLED = NVML_FEATURE_ENABLED };

struct nvlink {
    enum { NOT_CONNECTED, TO_GPU, TO_SWITCH } end;
    bool is_up;
    int peer;             /* slot of the GPU at the other end */
    char switch_pci[32];
};

/* A kind of GPU instance that a GPU can be cut into; size: how many of its 8 memory slices one takes. */
struct profile {
    char name[24];
    unsigned index, size, placements;
    nvmlGpuInstanceProfileInfo_t info;
};

/* A compute instance, which is a MIG device. Without slices it does not exist. */
struct compute {
    unsigned slices, first_slice;
    unsigned index;       /* among the MIG devices of its GPU; constant while it exists */
    char uuid[48];
};

/* A GPU instance. Its place in gpu.instances is its ID, and that says which memory slices it has: see instance_id. */
struct instance {
    bool is_there;
    int profile;
    struct compute computes[MAX_COMPUTES];
};

/* Each place for a compute instance of a GPU; places without slices are empty. */
#define FOR_EACH_COMPUTE(gpu, instance, compute)                                                                        \
    for (struct instance *instance = (gpu)->instances; instance < (gpu)->instances + MAX_INSTANCES; instance++)         \
        for (struct compute *compute = instance->computes; compute < instance->computes + MAX_COMPUTES; compute++)

/* A field of nvmlDeviceGetFieldValues with its described value. */
struct field {
    enum { NOT_DESCRIBED, DESCRIBED, INVALID } state;
    long long value;
};

struct gpu {
    bool present, lost;
    char uuid[80], name[96], serial[30], pci[32], part_number[80], vbios[32], compute[8], cpus[64];
    char unsupported[512]; /* names of functions, with a comma between two */
    long long minor, pci_device, pci_subsystem, architecture, brand, numa, host_bridge, pcie_switch;
    long long memory, reserved, used, power_mw, power_limit_mw, temperature, utilization, memory_utilization;
    long long energy_mj;
    long long recovery_action; /* -1: a driver without this field */
    long long next_action, next_action_ms; /* an Xid sets this action at this time of the monotonic clock; 0: nothing */
    long long fabric_state, fabric_status, fabric_health; /* a state of -1: derived from its NVLinks */
    long long ecc, mig, mig_pending, persistence, events, nvlink_count, nvlink_version;
    long long corrected_volatile, corrected_aggregate, uncorrected_volatile, uncorrected_aggregate;
    long long retired_single, retired_double, retired_pending;
    long long remapped_corrected, remapped_uncorrected, remap_pending, remap_failed;
    struct nvlink nvlinks[NVML_NVLINK_MAX_LINKS];
    int profile_count;
    struct profile profiles[MAX_PROFILES];
    struct instance instances[MAX_INSTANCES];
    struct field fields[MAX_FIELDS];
};

struct fault {
    int gpu;
    char function[64];
    bool hangs;
    double seconds;        /* how long it hangs; 0: until it is repaired */
    nvmlReturn_t result;   /* result of a fault that does not hang */
};

/* The driver's requested action after an Xid, and its delay after the event. */
struct xid_action {
    long long xid, action, milliseconds;
};

/* A device file that this process cannot open. */
struct device_file {
    char name[32];
    bool is_denied; /* by the device cgroup; otherwise it is missing */
};

struct machine {
    char driver[80], nvml[80];
    long long cuda;
    nvmlReturn_t init_result;
    bool lists_at_once;    /* added and removed GPUs show without a new nvmlInit */
    int gpu_count, model_count, fault_count;
    struct gpu gpus[MAX_GPUS];
    struct { char name[32]; struct gpu gpu; } models[MAX_MODELS];
    struct fault faults[MAX_FAULTS];
    bool events_are_late;  /* as measured; otherwise they come at once */
    int action_count, file_count;
    struct xid_action actions[MAX_ACTIONS];
    struct device_file files[MAX_FILES];
};

struct event {
    long long due_ms; /* of the monotonic clock: from when on it can be fetched */
    int slot;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance; /* or NVML_NO_INSTANCE */
};

/* What a line causes besides the new state. */
struct listener {
    void (*on_event)(const struct event *event);
    void (*on_gone)(int slot);
};

void machine_clear(struct machine *machine);

/* Change the machine by this line. line is cut into pieces in place.
 * Returns false for a line that makes no sense, with the reason in why: then nothing is changed. */
bool machine_apply(struct machine *machine, char *line, const struct listener *listener, char *why, size_t why_size);

/* Set one attribute of a GPU. Returns false, with the reason in why. */
bool gpu_set(struct gpu *gpu, const char *key, const char *value, char *why, size_t why_size);

/* Whether this name of a function means this symbol: itself, without its _vN, or `*`. */
bool names_function(const char *written, size_t length, const char *symbol);

/* The number of an error as written, with or without NVML_ERROR_, or a number. Returns false for an invalid one. */
bool error_number(const char *written, nvmlReturn_t *result);
const char *error_text(nvmlReturn_t result);

/* The GPU instance that has so many memory slices from this one on. IDs count the halves, quarters and eighths of a GPU, as the
 * driver numbers them: 0 is the whole, 1 and 2 are halves, 3 to 6 quarters, 7 to 14 eighths. */
static inline unsigned instance_id(unsigned start, unsigned size) { return MIG_SLICES / size - 1 + start / size; }
static inline unsigned instance_start(unsigned id, unsigned size) { return (id + 1 - MIG_SLICES / size) * size; }

/* How much later than the kernel's line the event of an Xid comes, as measured on an H100 with driver 580. */
long long xid_delay_ms(long long xid);
long long now_ms(void);

/* For how many more instances of this profile a GPU has room. */
unsigned room_for(const struct gpu *gpu, const struct profile *profile);

bool read_number(const char *text, long long *number);

#endif
