/* The way into and out of every call: one lock, the files read again, injected faults, a record of calls.
 *
 * Between enter and leave the lock is held and nothing changes; a call that hangs waits in enter without the lock.
 */
#ifndef FAKE_NVML_GATE_H
#define FAKE_NVML_GATE_H

#include <pthread.h>

#include "machine.h"

struct call {
    const char *function;
    int slot;               /* ANY_GPU if the call is not about a GPU */
    struct gpu *gpu;
    struct instance *instance; /* of a call about a GPU instance or a part of it */
    struct compute *compute;   /* of a call about a MIG device */
    nvmlReturn_t result;    /* an early error; NVML_SUCCESS: continue */
};

struct call enter(const char *function);
struct call enter_device(const char *function, nvmlDevice_t device);
struct call enter_any_device(const char *function, nvmlDevice_t device); /* a GPU or a MIG device */
struct call enter_instance(const char *function, nvmlGpuInstance_t instance);
struct call enter_compute(const char *function, const void *compute); /* a MIG device or its compute instance */
nvmlReturn_t leave(const struct call *call);

/* For calls about two GPUs and for waiting calls: is this handle valid now? */
nvmlReturn_t device_state(nvmlDevice_t device, int *slot);
nvmlReturn_t ordered_fault(const struct call *call);
bool is_usable(int slot);
bool is_initialized(void);

/* State, all of it under the lock. */
extern pthread_mutex_t lock;
extern pthread_cond_t changed;
extern struct machine machine;
extern int listed[MAX_GPUS], listed_count; /* slots, in NVML's order of GPUs */

/* files.c: the content of the files. */
bool load_files(void);
void refresh_files(void);
void watch_files(void);

/* gate.c, used by files.c */
void gpu_is_gone(int slot);
void list_gpus(void);

/* calls_events.c */
void queue_event(const struct event *event);
void free_event_sets(void);

__attribute__((format(printf, 1, 2))) void warn(const char *format, ...);

#define CHECK(call, condition, error)                                                                                   \
    do {                                                                                                                \
        if ((call).result == NVML_SUCCESS && !(condition)) (call).result = (error);                                     \
    } while (0)
#define WANTED(call, pointer) CHECK(call, (pointer) != NULL, NVML_ERROR_INVALID_ARGUMENT)
#define IS_FINE(call) ((call).result == NVML_SUCCESS)

/* calls_mig.c: the suffix of the GPU's name for a MIG device, such as " MIG 1g.10gb" */
void mig_name(const struct call *call, char *name, size_t size);

nvmlReturn_t copy_text(const char *text, char *buffer, unsigned length);

#endif
