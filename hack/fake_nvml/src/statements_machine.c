/* Statements about the machine: versions, kinds of GPUs, GPUs, their connections. */
#include <string.h>

#include "statements.h"

void machine_clear(struct machine *machine) {
    memset(machine, 0, sizeof *machine);
    strcpy(machine->driver, "580.95.05");
    strcpy(machine->nvml, "13.580.95.05");
    machine->cuda = 13000;
}

bool state_version(struct statement *statement) { /* driver VERSION, nvml VERSION */
    struct machine *machine = statement->machine;
    char *kept = strcmp(statement->words[0], "driver") == 0 ? machine->driver : machine->nvml;
    if (strlen(statement->words[1]) >= sizeof machine->driver) return refuse(statement, "a version is shorter");
    strcpy(kept, statement->words[1]);
    return true;
}

bool state_cuda(struct statement *statement) {
    long long number;
    if (!read_number(statement->words[1], &number) || number < 0 || number > 1000000)
        return refuse(statement, "\"%.60s\" is not a version of CUDA such as 13000", statement->words[1]);
    statement->machine->cuda = number;
    return true;
}

bool state_init(struct statement *statement) {
    return error_number(statement->words[1], &statement->machine->init_result) ||
           refuse(statement, "\"%.60s\" is not an error of NVML", statement->words[1]);
}

bool state_lists(struct statement *statement) { /* lists at-init|at-once */
    bool at_once = strcmp(statement->words[1], "at-once") == 0;
    if (!at_once && strcmp(statement->words[1], "at-init") != 0)
        return refuse(statement, "GPUs are listed at-init or at-once");
    statement->machine->lists_at_once = at_once;
    return true;
}

bool state_events(struct statement *statement) { /* events late|at-once */
    bool late = strcmp(statement->words[1], "late") == 0;
    if (!late && strcmp(statement->words[1], "at-once") != 0) return refuse(statement, "events come late or at-once");
    statement->machine->events_are_late = late;
    return true;
}

bool state_file(struct statement *statement) { /* file NAME missing|denied|there */
    struct machine *machine = statement->machine;
    const char *name = statement->words[1], *state = statement->words[2];
    bool denied = strcmp(state, "denied") == 0, there = strcmp(state, "there") == 0;
    int kept = 0;
    if (!denied && !there && strcmp(state, "missing") != 0)
        return refuse(statement, "a device file is missing, denied or there");
    if (strlen(name) >= sizeof machine->files[0].name) return refuse(statement, "no device file has so long a name");
    for (int i = 0; i < machine->file_count; i++) {
        if (strcmp(machine->files[i].name, name) != 0) machine->files[kept++] = machine->files[i];
    }
    machine->file_count = kept;
    if (there) return true;
    if (kept == MAX_FILES) return refuse(statement, "more than %d device files", MAX_FILES);
    machine->files[machine->file_count] = (struct device_file){.is_denied = denied};
    strcpy(machine->files[machine->file_count++].name, name);
    return true;
}

static void describe_plain(struct gpu *gpu) {
    memset(gpu, 0, sizeof *gpu);
    gpu->present = true;
    gpu->numa = -1;
    gpu->ecc = gpu->mig = gpu->mig_pending = UNSUPPORTED;
    gpu->persistence = DISABLED;
    gpu->energy_mj = 1LL << 40;
    gpu->fabric_state = -1;
    gpu->fabric_health = 1;
    gpu->events = NVML_EVENT_XID_CRITICAL_ERROR;
    strcpy(gpu->compute, "0.0");
}

bool state_model(struct statement *statement) {
    struct machine *machine = statement->machine;
    struct gpu gpu;
    if (machine->model_count == MAX_MODELS) return refuse(statement, "more than %d models", MAX_MODELS);
    if (strlen(statement->words[1]) >= sizeof machine->models[0].name) return refuse(statement, "a shorter name, please");
    describe_plain(&gpu);
    if (!set_attributes(statement, &gpu, 2)) return false;
    strcpy(machine->models[machine->model_count].name, statement->words[1]);
    machine->models[machine->model_count++].gpu = gpu;
    return true;
}

bool state_field(struct statement *statement) { /* field MODEL NUMBER VALUE|invalid */
    struct machine *machine = statement->machine;
    struct field field = {.state = INVALID};
    long long number;
    if (!read_number(statement->words[2], &number) || number < 1 || number >= MAX_FIELDS)
        return refuse(statement, "\"%.60s\" is not the number of a field below %d", statement->words[2], MAX_FIELDS);
    if (strcmp(statement->words[3], "invalid") != 0) {
        field.state = DESCRIBED;
        if (!read_number(statement->words[3], &field.value))
            return refuse(statement, "\"%.60s\" is not a number", statement->words[3]);
    }
    for (int i = 0; i < machine->model_count; i++) {
        if (strcmp(machine->models[i].name, statement->words[1]) != 0) continue;
        machine->models[i].gpu.fields[number] = field;
        return true;
    }
    return refuse(statement, "no model \"%.60s\" in a line before", statement->words[1]);
}

bool state_gpu(struct statement *statement) {
    struct machine *machine = statement->machine;
    if (machine->gpu_count == MAX_GPUS) return refuse(statement, "more than %d GPUs", MAX_GPUS);
    for (int i = 0; i < machine->model_count; i++) {
        if (strcmp(machine->models[i].name, statement->words[1]) != 0) continue;
        struct gpu added = machine->models[i].gpu;
        added.minor = machine->gpu_count;
        if (!set_attributes(statement, &added, 2)) return false;
        machine->gpus[machine->gpu_count++] = added;
        return true;
    }
    return refuse(statement, "no model \"%.60s\" in a line before", statement->words[1]);
}

static struct nvlink *free_link(struct gpu *gpu) {
    for (long long i = 0; i < gpu->nvlink_count; i++) {
        if (gpu->nvlinks[i].end == NOT_CONNECTED) return &gpu->nvlinks[i];
    }
    return NULL;
}

static long long free_links(const struct gpu *gpu) {
    long long links = 0;
    for (long long i = 0; i < gpu->nvlink_count; i++) links += gpu->nvlinks[i].end == NOT_CONNECTED;
    return links;
}

bool state_join(struct statement *statement) { /* link GPU GPU [COUNT] */
    struct gpu *gpus = statement->machine->gpus;
    int one, other;
    long long count;
    if (!find_gpu(statement, statement->words[1], false, &one) || !find_gpu(statement, statement->words[2], false, &other) ||
        !count_word(statement, 3, NVML_NVLINK_MAX_LINKS, &count))
        return false;
    if (one == other) return refuse(statement, "a GPU is not linked to itself");
    if (free_links(&gpus[one]) < count || free_links(&gpus[other]) < count)
        return refuse(statement, "not enough NVLinks left: raise nvlinks= of the model");
    for (; count > 0; count--) {
        *free_link(&gpus[one]) = (struct nvlink){.end = TO_GPU, .is_up = true, .peer = other};
        *free_link(&gpus[other]) = (struct nvlink){.end = TO_GPU, .is_up = true, .peer = one};
    }
    return true;
}

bool state_join_switch(struct statement *statement) { /* switch PCI GPU [COUNT] */
    struct machine *machine = statement->machine;
    struct nvlink link = {.end = TO_SWITCH, .is_up = true, .peer = -1};
    int slot;
    long long count;
    if (strlen(statement->words[1]) >= sizeof link.switch_pci) return refuse(statement, "a PCI bus ID is shorter");
    strcpy(link.switch_pci, statement->words[1]);
    if (!find_gpu(statement, statement->words[2], true, &slot) ||
        !count_word(statement, 3, NVML_NVLINK_MAX_LINKS, &count))
        return false;
    FOR_EACH_GPU(slot, machine, i) {
        if (free_links(&machine->gpus[i]) < count) return refuse(statement, "GPU %d has not enough NVLinks left", i);
    }
    FOR_EACH_GPU(slot, machine, i) {
        for (long long n = 0; n < count; n++) *free_link(&machine->gpus[i]) = link;
    }
    return true;
}

bool state_turn_link(struct statement *statement) { /* nvlink GPU LINK up|down */
    int slot;
    long long number;
    bool up = strcmp(statement->words[3], "up") == 0;
    if (!find_gpu(statement, statement->words[1], false, &slot)) return false;
    struct gpu *gpu = &statement->machine->gpus[slot];
    if (!read_number(statement->words[2], &number) || number < 0 || number >= gpu->nvlink_count)
        return refuse(statement, "GPU %d has no NVLink \"%.20s\"", slot, statement->words[2]);
    if (!up && strcmp(statement->words[3], "down") != 0) return refuse(statement, "a link goes up or down");
    gpu->nvlinks[number].is_up = up;
    return true;
}
