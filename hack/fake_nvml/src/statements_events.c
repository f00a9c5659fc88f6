/* Statements about events of the machine: changes, losses, faults, NVML events. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "statements.h"

bool names_function(const char *written, size_t length, const char *symbol) {
    size_t whole = strlen(symbol);
    const char *version = strrchr(symbol, '_');
    if (length == 1 && *written == '*') return true;
    if (length == whole && strncmp(written, symbol, length) == 0) return true;
    return version != NULL && version[1] == 'v' && length == (size_t)(version - symbol) &&
           strncmp(written, symbol, length) == 0;
}

bool state_set(struct statement *statement) {
    int slot;
    if (!find_gpu(statement, statement->words[1], true, &slot)) return false;
    FOR_EACH_GPU(slot, statement->machine, i) {
        struct gpu *gpu = &statement->machine->gpus[i];
        long long mig = gpu->mig;
        if (!set_attributes(statement, gpu, 2)) return false;
        if (gpu->mig == mig) continue;
        memset(gpu->instances, 0, sizeof gpu->instances);
        report_mig_change(statement, i);
    }
    return true;
}

bool state_lose(struct statement *statement) {
    bool removed = strcmp(statement->words[0], "remove") == 0;
    int slot;
    if (!find_gpu(statement, statement->words[1], true, &slot)) return false;
    FOR_EACH_GPU(slot, statement->machine, i) {
        struct gpu *gpu = &statement->machine->gpus[i];
        if (removed) gpu->present = false;
        else gpu->lost = true;
        statement->listener->on_gone(i);
    }
    return true;
}

bool state_add(struct statement *statement) {
    int slot;
    if (!find_gpu(statement, statement->words[1], true, &slot)) return false;
    FOR_EACH_GPU(slot, statement->machine, i) {
        statement->machine->gpus[i].present = true;
        statement->machine->gpus[i].lost = false;
    }
    return true;
}

bool state_reset(struct statement *statement) { /* reset GPU [KEY=VALUE...] */
    int slot;
    if (!find_gpu(statement, statement->words[1], true, &slot)) return false;
    FOR_EACH_GPU(slot, statement->machine, i) {
        struct gpu *gpu = &statement->machine->gpus[i];
        if (!set_attributes(statement, gpu, 2)) return false;
        gpu->lost = false;
        gpu->corrected_volatile = gpu->uncorrected_volatile = 0;
        gpu->remap_pending = gpu->retired_pending = gpu->used = gpu->next_action_ms = 0;
        if (gpu->recovery_action > 0) gpu->recovery_action = 0;
        if (gpu->mig_pending != UNSUPPORTED) gpu->mig = gpu->mig_pending;
        gpu->mig_pending = UNSUPPORTED;
        memset(gpu->instances, 0, sizeof gpu->instances);
        gpu->energy_mj /= 2; /* energy since the reset: less than before */
    }
    return true;
}

static bool same_fault(const struct fault *fault, int slot, const char *function) {
    return fault->gpu == slot && (function == NULL || strcmp(fault->function, function) == 0);
}

static void forget(struct machine *machine, int slot, const char *function) {
    int kept = 0;
    for (int i = 0; i < machine->fault_count; i++) {
        if (!same_fault(&machine->faults[i], slot, function)) machine->faults[kept++] = machine->faults[i];
    }
    machine->fault_count = kept;
}

static bool remember(struct statement *statement, struct fault fault) {
    struct machine *machine = statement->machine;
    if (strlen(statement->words[2]) >= sizeof fault.function) return refuse(statement, "no function has so long a name");
    if (!find_gpu(statement, statement->words[1], true, &fault.gpu)) return false;
    strcpy(fault.function, statement->words[2]);
    forget(machine, fault.gpu, fault.function);
    if (machine->fault_count == MAX_FAULTS) return refuse(statement, "more than %d faults at a time", MAX_FAULTS);
    machine->faults[machine->fault_count++] = fault;
    return true;
}

bool state_break_function(struct statement *statement) { /* break GPU FUNCTION ERROR */
    struct fault fault = {.hangs = false};
    if (!error_number(statement->words[3], &fault.result))
        return refuse(statement, "\"%.60s\" is not an error of NVML", statement->words[3]);
    return remember(statement, fault);
}

bool state_hang(struct statement *statement) { /* hang GPU FUNCTION [SECONDS] */
    struct fault fault = {.hangs = true};
    if (statement->count > 3) {
        char *end;
        fault.seconds = strtod(statement->words[3], &end);
        if (*end != '\0' || end == statement->words[3] || !isfinite(fault.seconds) || fault.seconds <= 0 ||
            fault.seconds > 86400)
            return refuse(statement, "\"%.60s\" is not a number of seconds up to a day", statement->words[3]);
    }
    return remember(statement, fault);
}

bool state_repair(struct statement *statement) { /* repair GPU [FUNCTION] */
    int slot;
    if (!find_gpu(statement, statement->words[1], true, &slot)) return false;
    forget(statement->machine, slot, statement->count > 2 ? statement->words[2] : NULL);
    return true;
}

static void report(struct statement *statement, struct event event, long long times) {
    int slot = event.slot;
    for (long long n = 0; n < times; n++) {
        FOR_EACH_GPU(slot, statement->machine, i) {
            event.slot = i;
            statement->listener->on_event(&event);
        }
    }
}

void report_mig_change(struct statement *statement, int slot) {
    report(statement, (struct event){0, slot, NVML_EVENT_MIG_CONFIG_CHANGE, 0, NVML_NO_INSTANCE, NVML_NO_INSTANCE}, 1);
}

/* The action that a driver requests after these Xids; none after all others. */
static const struct xid_action ACTIONS[] = {{48, 1, 0}, {79, 1, 0}, {95, 1, 0}, {109, 1, 0}, {119, 1, 0}};

static struct xid_action action_after(const struct machine *machine, long long xid) {
    for (int i = machine->action_count - 1; i >= 0; i--) {
        if (machine->actions[i].xid == xid) return machine->actions[i];
    }
    for (size_t i = 0; i < sizeof ACTIONS / sizeof *ACTIONS; i++) {
        if (ACTIONS[i].xid == xid) return ACTIONS[i];
    }
    return (struct xid_action){xid, 0, 0};
}

bool state_action(struct statement *statement) { /* action XID ACTION [MILLISECONDS] */
    struct machine *machine = statement->machine;
    struct xid_action one = {0, 0, 0};
    if (!read_number(statement->words[1], &one.xid) || one.xid < 0 || !read_number(statement->words[2], &one.action) ||
        one.action < 0 || (statement->count > 3 && !read_number(statement->words[3], &one.milliseconds)) ||
        one.milliseconds < 0 || one.milliseconds > 86400000)
        return refuse(statement, "an action has the number of an Xid, its own, and perhaps milliseconds");
    if (machine->action_count == MAX_ACTIONS) return refuse(statement, "more than %d actions", MAX_ACTIONS);
    machine->actions[machine->action_count++] = one;
    return true;
}

/* A requested action stays until a reset. */
static void request_action(struct statement *statement, int slot, long long xid) {
    struct xid_action after = action_after(statement->machine, xid);
    FOR_EACH_GPU(slot, statement->machine, i) {
        struct gpu *gpu = &statement->machine->gpus[i];
        if (after.action == 0 || gpu->recovery_action != 0) continue;
        if (after.milliseconds == 0) {
            gpu->recovery_action = after.action;
        } else {
            gpu->next_action = after.action;
            gpu->next_action_ms = now_ms() + after.milliseconds;
        }
    }
}

/* A contained (94) or uncontained (95) memory error. GPUs before the A100 have no such Xids. */
static void count_ecc_errors(struct statement *statement, int slot, long long xid, long long times) {
    if (xid != 94 && xid != 95) return;
    FOR_EACH_GPU(slot, statement->machine, i) {
        struct gpu *gpu = &statement->machine->gpus[i];
        if (gpu->architecture < NVML_DEVICE_ARCH_AMPERE || gpu->ecc != ENABLED) continue;
        gpu->uncorrected_volatile += times;
        gpu->uncorrected_aggregate += times;
    }
}

bool state_xid(struct statement *statement) { /* xid GPU NUMBER [TIMES [INSTANCE[/COMPUTE]]] */
    int slot;
    long long number, times;
    struct event event = {0, 0, NVML_EVENT_XID_CRITICAL_ERROR, 0, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    if (!find_gpu(statement, statement->words[1], true, &slot) || !count_word(statement, 3, 100000, &times)) return false;
    if (!read_number(statement->words[2], &number) || number < 0)
        return refuse(statement, "\"%.60s\" is not the number of an Xid", statement->words[2]);
    if (statement->count > 4 && sscanf(statement->words[4], "%u/%u", &event.gpu_instance, &event.compute_instance) < 1)
        return refuse(statement, "\"%.60s\" is not a GPU instance such as 7 or 7/0", statement->words[4]);
    event.slot = slot;
    event.data = (unsigned long long)number;
    if (statement->machine->events_are_late) event.due_ms = now_ms() + xid_delay_ms(number);
    request_action(statement, slot, number);
    count_ecc_errors(statement, slot, number, times);
    report(statement, event, times);
    return true;
}

bool state_event(struct statement *statement) { /* event GPU TYPE DATA */
    int slot;
    long long type, data;
    if (!find_gpu(statement, statement->words[1], true, &slot)) return false;
    if (!read_number(statement->words[2], &type) || type <= 0 || !read_number(statement->words[3], &data) || data < 0)
        return refuse(statement, "type and data of an event are numbers");
    report(statement,
           (struct event){0, slot, (unsigned long long)type, (unsigned long long)data, NVML_NO_INSTANCE, NVML_NO_INSTANCE}, 1);
    return true;
}
