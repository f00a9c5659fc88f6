/* Every call passes here: see gate.h. Also nvmlInit and nvmlShutdown, which open and close it. */
#include "gate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t changed;
struct machine machine;
int listed[MAX_GPUS], listed_count;

static int initialized;       /* number of inits minus number of shutdowns */
static bool gone[MAX_GPUS];   /* lost or removed since nvmlInit: its handles are invalid */
static int record = -1;       /* of calls */

__attribute__((constructor)) static void prepare(void) {
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &clock);
    const char *path = getenv("NODEDEVICE_FAKE_NVML_CALLS");
    if (path != NULL) record = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

void warn(const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *at = text; *at != '\0'; at++) {
        if (*at < ' ' || *at > '~') *at = '?'; /* a terminal must be able to print it */
    }
    dprintf(STDERR_FILENO, "fake NVML: %s\n", text);
}

/* One line a call: milliseconds of the monotonic clock, function, slot or -, result or `hangs`. */
static void write_record(const struct call *call, bool hangs) {
    if (record < 0) return;
    struct timespec now;
    char slot[16] = "-", result[16] = "hangs";
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (call->slot != ANY_GPU) snprintf(slot, sizeof slot, "%d", call->slot);
    if (!hangs) snprintf(result, sizeof result, "%d", call->result);
    dprintf(record, "%lld %s %s %s\n", now.tv_sec * 1000LL + now.tv_nsec / 1000000, call->function, slot, result);
}

void gpu_is_gone(int slot) { gone[slot] = true; }
bool is_initialized(void) { return initialized > 0; }

bool is_usable(int slot) {
    const struct gpu *gpu = &machine.gpus[slot];
    return gpu->present && !gpu->lost && (machine.lists_at_once || !gone[slot]);
}

static const struct device_file *unusable_file(const char *name) {
    for (int i = 0; i < machine.file_count; i++) {
        if (strcmp(machine.files[i].name, name) == 0) return &machine.files[i];
    }
    return NULL;
}

/* A GPU whose device file cannot be opened is left out. */
static bool has_file(const struct gpu *gpu) {
    char name[sizeof machine.files[0].name];
    snprintf(name, sizeof name, "nvidia%lld", gpu->minor);
    return unusable_file(name) == NULL;
}

void list_gpus(void) {
    listed_count = 0;
    for (int i = 0; i < machine.gpu_count; i++) {
        if (machine.gpus[i].present && has_file(&machine.gpus[i])) listed[listed_count++] = i;
    }
}

static nvmlReturn_t control_file(void) {
    const struct device_file *control = unusable_file("nvidiactl");
    if (control == NULL) return NVML_SUCCESS;
    return control->is_denied ? NVML_ERROR_UNKNOWN : NVML_ERROR_DRIVER_NOT_LOADED;
}

static struct timespec from_now(double seconds) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)seconds;
    at.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (at.tv_nsec >= 1000000000L) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000L;
    }
    return at;
}

static const struct fault *find_fault(const struct call *call, bool hangs) {
    for (int i = 0; i < machine.fault_count; i++) {
        const struct fault *fault = &machine.faults[i];
        if (fault->hangs == hangs && (fault->gpu == ANY_GPU || fault->gpu == call->slot) &&
            names_function(fault->function, strlen(fault->function), call->function))
            return fault;
    }
    return NULL;
}

static bool lacks(const struct gpu *gpu, const char *function) {
    for (const char *name = gpu->unsupported; *name != '\0';) {
        size_t length = strcspn(name, ",");
        if (names_function(name, length, function)) return true;
        name += length + (name[length] == ',');
    }
    return false;
}

nvmlReturn_t ordered_fault(const struct call *call) {
    const struct fault *fault = find_fault(call, false);
    return fault == NULL ? NVML_SUCCESS : fault->result;
}

/* Hang as long as the files state, but at most for the time that they stated when the call began. */
static void hang_if_ordered(const struct call *call) {
    const struct fault *fault = find_fault(call, true);
    if (fault == NULL) return;
    bool ends = fault->seconds > 0;
    struct timespec until = from_now(fault->seconds);
    write_record(call, true);
    while (find_fault(call, true) != NULL) {
        int status = ends ? pthread_cond_timedwait(&changed, &lock, &until) : pthread_cond_wait(&changed, &lock);
        if (status == ETIMEDOUT) return;
    }
}

/* The element of an array in which an address lies, or -1; rest: how far from the element's beginning. */
static int element(uintptr_t address, const void *array, size_t size, size_t count, uintptr_t *rest) {
    uintptr_t distance = address - (uintptr_t)array;
    if (distance / size >= count) return -1;
    *rest = distance % size;
    return (int)(distance / size);
}

/* The kind of a handle from an earlier call: a GPU, an existing GPU instance, or an existing MIG device. */
enum handle { NO_HANDLE = 0, OF_GPU = 1, OF_INSTANCE = 2, OF_COMPUTE = 4 };

static enum handle resolve(const void *handle, struct call *call) {
    uintptr_t address = (uintptr_t)handle, rest;
    call->slot = element(address, machine.gpus, sizeof *machine.gpus, (size_t)machine.gpu_count, &rest);
    if (call->slot < 0) return NO_HANDLE;
    call->gpu = &machine.gpus[call->slot];
    if (rest == 0) return OF_GPU;
    int at = element(address, call->gpu->instances, sizeof *call->gpu->instances, MAX_INSTANCES, &rest);
    if (at < 0 || !call->gpu->instances[at].is_there) return NO_HANDLE;
    call->instance = &call->gpu->instances[at];
    if (rest == 0) return OF_INSTANCE;
    at = element(address, call->instance->computes, sizeof *call->instance->computes, MAX_COMPUTES, &rest);
    if (at < 0 || rest != 0 || call->instance->computes[at].slices == 0) return NO_HANDLE;
    call->compute = &call->instance->computes[at];
    return OF_COMPUTE;
}

nvmlReturn_t device_state(nvmlDevice_t device, int *slot) {
    struct call call = {.slot = ANY_GPU};
    bool is_gpu = resolve(device, &call) == OF_GPU;
    *slot = is_gpu ? call.slot : ANY_GPU;
    if (!is_gpu) return NVML_ERROR_INVALID_ARGUMENT;
    return is_usable(*slot) ? NVML_SUCCESS : NVML_ERROR_GPU_IS_LOST;
}

static struct call locked(const char *function) {
    struct call call = {.function = function, .slot = ANY_GPU};
    pthread_mutex_lock(&lock);
    CHECK(call, is_initialized(), NVML_ERROR_UNINITIALIZED);
    if (IS_FINE(call)) refresh_files();
    return call;
}

struct call enter(const char *function) {
    struct call call = locked(function);
    if (!IS_FINE(call)) return call;
    hang_if_ordered(&call);
    call.result = ordered_fault(&call);
    return call;
}

static struct call enter_with(const char *function, const void *handle, unsigned wanted) {
    struct call call = locked(function);
    if (!IS_FINE(call)) return call;
    CHECK(call, resolve(handle, &call) & wanted, NVML_ERROR_INVALID_ARGUMENT);
    if (!IS_FINE(call)) return call;
    hang_if_ordered(&call);
    /* it may have been removed meanwhile */
    CHECK(call, resolve(handle, &call) & wanted, NVML_ERROR_INVALID_ARGUMENT);
    CHECK(call, is_usable(call.slot), NVML_ERROR_GPU_IS_LOST);
    CHECK(call, is_initialized(), NVML_ERROR_UNINITIALIZED);
    if (IS_FINE(call)) call.result = ordered_fault(&call);
    CHECK(call, !lacks(call.gpu, function), NVML_ERROR_NOT_SUPPORTED);
    return call;
}

struct call enter_device(const char *function, nvmlDevice_t device) { return enter_with(function, device, OF_GPU); }

struct call enter_any_device(const char *function, nvmlDevice_t device) {
    return enter_with(function, device, OF_GPU | OF_COMPUTE);
}

struct call enter_instance(const char *function, nvmlGpuInstance_t instance) {
    return enter_with(function, instance, OF_INSTANCE);
}

struct call enter_compute(const char *function, const void *compute) {
    return enter_with(function, compute, OF_COMPUTE);
}

nvmlReturn_t leave(const struct call *call) {
    write_record(call, false);
    pthread_mutex_unlock(&lock);
    return call->result;
}

nvmlReturn_t copy_text(const char *text, char *buffer, unsigned length) {
    if (*text == '\0') return NVML_ERROR_NOT_SUPPORTED;
    if (strlen(text) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return NVML_SUCCESS;
}

static nvmlReturn_t initialize(const char *function) {
    struct call call = {.function = function, .slot = ANY_GPU};
    pthread_mutex_lock(&lock);
    if (!is_initialized() && !load_files()) {
        call.result = NVML_ERROR_DRIVER_NOT_LOADED;
        return leave(&call);
    }
    refresh_files();
    hang_if_ordered(&call);
    call.result = ordered_fault(&call);
    CHECK(call, machine.init_result == NVML_SUCCESS, machine.init_result);
    if (IS_FINE(call)) call.result = control_file();
    if (IS_FINE(call) && initialized++ == 0) {
        memset(gone, 0, sizeof gone);
        list_gpus();
    }
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlInit(void) { return initialize(__func__); }
EXPORT nvmlReturn_t nvmlInit_v2(void) { return initialize(__func__); }

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return initialize(__func__);
}

EXPORT nvmlReturn_t nvmlShutdown(void) {
    struct call call = enter(__func__);
    if (IS_FINE(call) && --initialized == 0) {
        free_event_sets();
        pthread_cond_broadcast(&changed);
    }
    return leave(&call);
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result) { return error_text(result); }
