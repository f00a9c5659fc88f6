/* Statements of MIG: profiles of instances, and creating and destroying instances. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "statements.h"

/* The numbers after a profile's name. */
enum { INDEX, ID, SIZE, PLACEMENTS, SLICES, INSTANCES, SMS, COPY, DECODERS, ENCODERS, JPEG, OFA, MEMORY_MIB, NUMBER_COUNT };

bool state_profile(struct statement *statement) { /* profile MODEL NAME NUMBER... */
    struct machine *machine = statement->machine;
    unsigned n[NUMBER_COUNT];
    struct profile profile = {.name = ""};
    struct gpu *gpu = NULL;
    for (int i = 0; i < machine->model_count; i++) {
        if (strcmp(machine->models[i].name, statement->words[1]) == 0) gpu = &machine->models[i].gpu;
    }
    if (gpu == NULL) return refuse(statement, "no model \"%.60s\" in a line before", statement->words[1]);
    if (gpu->profile_count == MAX_PROFILES) return refuse(statement, "more than %d profiles", MAX_PROFILES);
    if (strlen(statement->words[2]) >= sizeof profile.name) return refuse(statement, "a shorter name, please");
    for (int i = 0; i < NUMBER_COUNT; i++) {
        long long number;
        if (!read_number(statement->words[3 + i], &number) || number < 0 || number > 1 << 24)
            return refuse(statement, "\"%.60s\" is not a number of a profile", statement->words[3 + i]);
        n[i] = (unsigned)number;
    }
    if (n[SIZE] == 0 || n[SIZE] > MIG_SLICES || (n[SIZE] & (n[SIZE] - 1)) != 0 || n[PLACEMENTS] > MIG_SLICES / n[SIZE] ||
        n[SLICES] == 0 || n[SLICES] > MAX_COMPUTES || n[INDEX] >= NVML_GPU_INSTANCE_PROFILE_COUNT)
        return refuse(statement, "a profile has an index below %d, a size of 1, 2, 4 or 8 memory slices, and 1 to %d slices",
                      NVML_GPU_INSTANCE_PROFILE_COUNT, MAX_COMPUTES);
    strcpy(profile.name, statement->words[2]);
    profile.index = n[INDEX], profile.size = n[SIZE], profile.placements = n[PLACEMENTS];
    profile.info = (nvmlGpuInstanceProfileInfo_t){n[ID],       0,       n[SLICES],   n[INSTANCES], n[SMS], n[COPY],
                                                  n[DECODERS], n[ENCODERS], n[JPEG], n[OFA],       n[MEMORY_MIB]};
    gpu->profiles[gpu->profile_count++] = profile;
    return true;
}

static bool is_free(const struct gpu *gpu, unsigned start, unsigned size) {
    for (unsigned id = 0; id < MAX_INSTANCES; id++) {
        if (!gpu->instances[id].is_there) continue;
        unsigned other_size = gpu->profiles[gpu->instances[id].profile].size, other = instance_start(id, other_size);
        if (start < other + other_size && other < start + size) return false;
    }
    return true;
}

/* The first place where an instance of this profile fits, from this memory slice on; MIG_SLICES if it does not fit. */
static unsigned place(const struct gpu *gpu, const struct profile *profile, unsigned from) {
    for (unsigned start = from; start < profile->placements * profile->size; start += profile->size) {
        if (is_free(gpu, start, profile->size)) return start;
    }
    return MIG_SLICES;
}

unsigned room_for(const struct gpu *gpu, const struct profile *profile) {
    unsigned count = 0;
    for (unsigned start = 0; start < profile->placements * profile->size; start += profile->size)
        count += is_free(gpu, start, profile->size);
    return count < profile->info.instanceCount ? count : profile->info.instanceCount;
}

static unsigned count_of(struct gpu *gpu, int profile) {
    unsigned count = 0;
    for (int i = 0; i < MAX_INSTANCES; i++) count += gpu->instances[i].is_there && gpu->instances[i].profile == profile;
    return count;
}

/* The lowest index that no MIG device of the GPU has; MAX_MIG_DEVICES if all are in use. */
static unsigned free_index(struct gpu *gpu) {
    unsigned taken = 0, index = 0;
    FOR_EACH_COMPUTE(gpu, instance, compute) taken |= compute->slices == 0 ? 0 : 1U << compute->index;
    while (index < MAX_MIG_DEVICES && taken >> index & 1) index++;
    return index;
}

/* The same for the same place of the same GPU. */
static void name_by_place(const struct gpu *gpu, unsigned instance, unsigned number, char *uuid, size_t size) {
    unsigned long long hash = 14695981039346656037ULL;
    char place[128];
    snprintf(place, sizeof place, "%s/%u/%u", gpu->uuid, instance, number);
    for (const char *at = place; *at != '\0'; at++) hash = (hash ^ (unsigned char)*at) * 1099511628211ULL;
    snprintf(uuid, size, "MIG-%08llx-%04llx-5%03llx-8%03llx-%012llx", hash >> 32, hash >> 16 & 0xffff, hash >> 4 & 0xfff,
             hash & 0xfff, hash * 31 & 0xffffffffffffULL);
}

/* Cut an instance into compute instances of so many slices each, as in 1,2. */
static bool cut_up(struct statement *statement, struct gpu *gpu, unsigned id, const char *slices) {
    struct instance *instance = &gpu->instances[id];
    unsigned left = gpu->profiles[instance->profile].info.sliceCount, all = left;
    for (unsigned i = 0; i < MAX_COMPUTES && *slices != '\0'; i++) {
        char *end;
        unsigned long count = strtoul(slices, &end, 10);
        if (end == slices || count == 0 || count > left || (*end != ',' && *end != '\0'))
            return refuse(statement, "\"%.60s\" is not how to divide %u slices", slices, all);
        if (free_index(gpu) == MAX_MIG_DEVICES) return refuse(statement, "more than %d MIG devices", MAX_MIG_DEVICES);
        struct compute compute = {.first_slice = all - left, .index = free_index(gpu)};
        name_by_place(gpu, id, i, compute.uuid, sizeof compute.uuid);
        compute.slices = (unsigned)count;
        instance->computes[i] = compute;
        left -= (unsigned)count;
        slices = *end == ',' ? end + 1 : end;
    }
    return true;
}

static bool read_options(struct statement *statement, long long *start, const char **slices, const char **uuid) {
    for (int i = 3; i < statement->count; i++) {
        const char *word = statement->words[i];
        if (strncmp(word, "compute=", 8) == 0) *slices = word + 8;
        else if (strncmp(word, "uuid=", 5) == 0 && strlen(word + 5) < sizeof((struct compute *)0)->uuid) *uuid = word + 5;
        else if (strncmp(word, "start=", 6) != 0 || !read_number(word + 6, start) || *start < 0 || *start >= MIG_SLICES)
            return refuse(statement, "\"%.60s\" is not start=, compute= or uuid= of an instance", word);
    }
    return true;
}

bool state_create(struct statement *statement) { /* create GPU PROFILE [start=N] [compute=N,...] [uuid=MIG-...] */
    int slot, profile = 0;
    long long start = -1;
    const char *slices = NULL, *uuid = NULL;
    char whole[8];
    if (!find_gpu(statement, statement->words[1], false, &slot) || !read_options(statement, &start, &slices, &uuid))
        return false;
    struct gpu *gpu = &statement->machine->gpus[slot];
    if (gpu->mig != ENABLED) return refuse(statement, "GPU %d is not in MIG mode: set mig=enabled first", slot);
    while (profile < gpu->profile_count && strcmp(gpu->profiles[profile].name, statement->words[2]) != 0) profile++;
    if (profile == gpu->profile_count) return refuse(statement, "GPU %d has no profile \"%.60s\"", slot, statement->words[2]);
    const struct profile *wanted = &gpu->profiles[profile];
    unsigned at = place(gpu, wanted, start < 0 ? 0 : (unsigned)start);
    if (at == MIG_SLICES || (start >= 0 && at != start) || count_of(gpu, profile) == wanted->info.instanceCount)
        return refuse(statement, "GPU %d has no room for an instance %s", slot, wanted->name);
    if (at % wanted->size != 0) return refuse(statement, "an instance %s begins at a multiple of %u", wanted->name, wanted->size);
    struct instance *made = &gpu->instances[instance_id(at, wanted->size)];
    *made = (struct instance){.is_there = true, .profile = profile};
    snprintf(whole, sizeof whole, "%u", wanted->info.sliceCount);
    if (!cut_up(statement, gpu, instance_id(at, wanted->size), slices == NULL ? whole : slices)) {
        *made = (struct instance){.is_there = false};
        return false;
    }
    if (uuid != NULL) strcpy(made->computes[0].uuid, uuid);
    report_mig_change(statement, slot);
    return true;
}

bool state_destroy(struct statement *statement) { /* destroy GPU INSTANCE */
    int slot;
    long long id = -1;
    if (!find_gpu(statement, statement->words[1], false, &slot)) return false;
    struct instance *instances = statement->machine->gpus[slot].instances;
    if (strcmp(statement->words[2], "*") == 0) {
        memset(instances, 0, MAX_INSTANCES * sizeof *instances);
    } else if (read_number(statement->words[2], &id) && id >= 0 && id < MAX_INSTANCES && instances[id].is_there) {
        memset(&instances[id], 0, sizeof *instances);
    } else {
        return refuse(statement, "GPU %d has no GPU instance \"%.20s\"", slot, statement->words[2]);
    }
    report_mig_change(statement, slot);
    return true;
}
