/* A line cut into words, and what every statement can ask of it.
 *
 * A statement returns whether it was carried out; if not, nothing is changed and the reason is in `why`.
 */
#ifndef FAKE_NVML_STATEMENTS_H
#define FAKE_NVML_STATEMENTS_H

#include "machine.h"

enum { MAX_WORDS = 64 };

struct statement {
    struct machine *machine;
    const struct listener *listener;
    int count;
    char *words[MAX_WORDS];
    char *why;
    size_t why_size;
};

/* Apply it to one GPU, or to each. */
#define FOR_EACH_GPU(slot, machine, i)                                                                                  \
    for (int i = (slot) == ANY_GPU ? 0 : (slot); i < ((slot) == ANY_GPU ? (machine)->gpu_count : (slot) + 1); i++)

__attribute__((format(printf, 2, 3))) bool refuse(struct statement *statement, const char *format, ...);

/* A GPU by its slot, its UUID or its PCI bus ID; `*` if all are allowed. */
bool find_gpu(struct statement *statement, const char *written, bool any_allowed, int *slot);

/* Set the attributes of the words from this one on, all of them or none. */
bool set_attributes(struct statement *statement, struct gpu *gpu, int from);

/* The event of a change of this GPU's instances. */
void report_mig_change(struct statement *statement, int slot);

/* The number in this word, from 1 to most; 1 without such a word. */
bool count_word(struct statement *statement, int at, long long most, long long *count);

/* statements_machine.c, statements_events.c, statements_mig.c */
bool state_model(struct statement *statement);
bool state_gpu(struct statement *statement);
bool state_join(struct statement *statement);
bool state_join_switch(struct statement *statement);
bool state_turn_link(struct statement *statement);
bool state_profile(struct statement *statement);
bool state_set(struct statement *statement);
bool state_lose(struct statement *statement);
bool state_add(struct statement *statement);
bool state_reset(struct statement *statement);
bool state_break_function(struct statement *statement);
bool state_hang(struct statement *statement);
bool state_repair(struct statement *statement);
bool state_xid(struct statement *statement);
bool state_event(struct statement *statement);
bool state_create(struct statement *statement);
bool state_destroy(struct statement *statement);
bool state_version(struct statement *statement);
bool state_cuda(struct statement *statement);
bool state_init(struct statement *statement);
bool state_lists(struct statement *statement);
bool state_events(struct statement *statement);
bool state_field(struct statement *statement);
bool state_file(struct statement *statement);
bool state_action(struct statement *statement);

#endif
