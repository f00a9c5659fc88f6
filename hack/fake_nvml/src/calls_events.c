/* Event sets: registrations for events of GPUs, and pending events. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gate.h"

enum { MOST_WAITING = 1 << 16 };

struct event_set {
    struct event_set *next;
    unsigned long long types[MAX_GPUS];
    struct event *events; /* a ring */
    size_t room, first, count;
    int waiters;
    bool is_freed, has_overflowed;
};

static struct event_set *sets;

static bool is_set(nvmlEventSet_t wanted) {
    for (struct event_set *set = sets; set != NULL; set = set->next) {
        if (set == wanted) return !set->is_freed;
    }
    return false;
}

static void unlink_set(struct event_set *gone) {
    for (struct event_set **at = &sets; *at != NULL; at = &(*at)->next) {
        if (*at != gone) continue;
        *at = gone->next;
        free(gone->events);
        free(gone);
        return;
    }
}

/* Callers may still wait in it: the last one to leave removes it. */
static void release(struct event_set *set) {
    set->is_freed = true;
    if (set->waiters == 0) unlink_set(set);
}

void free_event_sets(void) {
    for (struct event_set *set = sets, *next; set != NULL; set = next) {
        next = set->next;
        release(set);
    }
}

static bool grow(struct event_set *set) {
    size_t room = set->room == 0 ? 64 : set->room * 2;
    struct event *events = malloc(room * sizeof *events);
    if (events == NULL) return false;
    for (size_t i = 0; i < set->count; i++) events[i] = set->events[(set->first + i) % set->room];
    free(set->events);
    set->events = events;
    set->room = room;
    set->first = 0;
    return true;
}

static void append(struct event_set *set, struct event event) {
    if (set->count == MOST_WAITING) {
        set->first = (set->first + 1) % set->room;
        set->count--;
        if (!set->has_overflowed) warn("more than %d events wait to be fetched: the oldest are dropped", MOST_WAITING);
        set->has_overflowed = true;
    }
    if (set->count == set->room && !grow(set)) return;
    set->events[(set->first + set->count++) % set->room] = event;
}

void queue_event(const struct event *event) {
    for (struct event_set *set = sets; set != NULL; set = set->next) {
        if (!set->is_freed && set->types[event->slot] & event->type) append(set, *event);
    }
}

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    struct call call = enter(__func__);
    WANTED(call, set);
    if (IS_FINE(call)) {
        struct event_set *made = calloc(1, sizeof *made);
        CHECK(call, made != NULL, NVML_ERROR_MEMORY);
        if (IS_FINE(call)) {
            made->next = sets;
            *set = sets = made;
        }
    }
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    struct call call = enter(__func__);
    CHECK(call, is_set(set), NVML_ERROR_INVALID_ARGUMENT);
    if (IS_FINE(call)) {
        release(set);
        pthread_cond_broadcast(&changed);
    }
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    struct call call = enter_device(__func__, device);
    WANTED(call, types);
    if (IS_FINE(call)) *types = (unsigned long long)call.gpu->events;
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    struct call call = enter_device(__func__, device);
    CHECK(call, is_set(set), NVML_ERROR_INVALID_ARGUMENT);
    CHECK(call, (types & ~(unsigned long long)call.gpu->events) == 0, NVML_ERROR_NOT_SUPPORTED);
    if (IS_FINE(call)) set->types[call.slot] |= types;
    return leave(&call);
}

static bool has_lost_one(const struct event_set *set) {
    for (int i = 0; i < machine.gpu_count; i++) {
        if (set->types[i] != 0 && !is_usable(i)) return true;
    }
    return false;
}

static void fetch(struct event_set *set, nvmlEventData_t *data) {
    const struct event *event = &set->events[set->first];
    memset(data, 0, sizeof *data);
    data->device = &machine.gpus[event->slot];
    data->eventType = event->type;
    data->eventData = event->data;
    data->gpuInstanceId = event->gpu_instance;
    data->computeInstanceId = event->compute_instance;
    set->first = (set->first + 1) % set->room;
    set->count--;
}

long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

long long xid_delay_ms(long long xid) { return xid == 31 ? 21 : xid == 13 ? 107 : 3; }

/* When the first event can be fetched, if that is before this time; an event waits for those before it. */
static struct timespec wake_up(const struct event_set *set, struct timespec until) {
    long long due = set->count > 0 ? set->events[set->first].due_ms : 0;
    if (due == 0 || due > until.tv_sec * 1000LL + until.tv_nsec / 1000000) return until;
    return (struct timespec){.tv_sec = due / 1000, .tv_nsec = due % 1000 * 1000000L};
}

/* The result of a waiting call at this time, or NVML_ERROR_TIMEOUT to keep waiting. */
static nvmlReturn_t next_event(const struct call *call, struct event_set *set, nvmlEventData_t *data) {
    if (!is_initialized()) return NVML_ERROR_UNINITIALIZED;
    if (set->is_freed) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t fault = ordered_fault(call);
    if (fault != NVML_SUCCESS) return fault;
    if (set->count > 0 && set->events[set->first].due_ms <= now_ms()) {
        fetch(set, data);
        return NVML_SUCCESS;
    }
    return set->count == 0 && has_lost_one(set) ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_TIMEOUT;
}

static nvmlReturn_t wait_in(const struct call *call, struct event_set *set, nvmlEventData_t *data, unsigned timeout_ms) {
    struct timespec until;
    nvmlReturn_t result;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    set->waiters++;
    while ((result = next_event(call, set, data)) == NVML_ERROR_TIMEOUT) {
        struct timespec wake = wake_up(set, until);
        if (pthread_cond_timedwait(&changed, &lock, &wake) != ETIMEDOUT) continue;
        if (wake.tv_sec != until.tv_sec || wake.tv_nsec != until.tv_nsec) continue;
        result = next_event(call, set, data);
        break;
    }
    if (--set->waiters == 0 && set->is_freed) unlink_set(set);
    return result;
}

static nvmlReturn_t wait_for_event(const char *function, nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    struct call call = enter(function);
    WANTED(call, data);
    CHECK(call, is_set(set), NVML_ERROR_INVALID_ARGUMENT);
    if (IS_FINE(call)) call.result = wait_in(&call, set, data, timeout_ms);
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    return wait_for_event(__func__, set, data, timeout_ms);
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    return wait_for_event(__func__, set, data, timeout_ms);
}
