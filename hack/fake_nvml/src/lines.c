/* The language of descriptions and control files: one statement a line, the same words in both.
 *
 * README.md lists the statements. A line is carried out whole or not at all: files.c reports the error.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "statements.h"

bool refuse(struct statement *statement, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(statement->why, statement->why_size, format, arguments);
    va_end(arguments);
    return false;
}

/* Words are parted by blanks; a part in double quotes may hold blanks; # begins a comment. */
static bool cut(char *line, struct statement *statement) {
    char *read = line;
    for (;;) {
        while (*read == ' ' || *read == '\t' || *read == '\r') read++;
        if (*read == '\0' || *read == '#') return true;
        if (statement->count == MAX_WORDS) return refuse(statement, "more than %d words", MAX_WORDS);
        char *write = read;
        statement->words[statement->count++] = write;
        bool quoted = false;
        for (; *read != '\0' && (quoted || !strchr(" \t\r#", *read)); read++) {
            if (*read == '"') quoted = !quoted;
            else *write++ = *read;
        }
        if (quoted) return refuse(statement, "a quotation mark that is not closed");
        bool ends = *read == '\0' || *read == '#';
        if (!ends) read++;
        *write = '\0';
        if (ends) return true;
    }
}

static bool same_pci(const char *one, const char *other) {
    size_t a = strlen(one), b = strlen(other);
    return a != 0 && (strcasecmp(one, other) == 0 || (a > b && b >= 7 && strcasecmp(one + a - b, other) == 0));
}

bool find_gpu(struct statement *statement, const char *written, bool any_allowed, int *slot) {
    struct machine *machine = statement->machine;
    long long number;
    if (any_allowed && strcmp(written, "*") == 0) {
        *slot = ANY_GPU;
        return true;
    }
    if (read_number(written, &number) && number >= 0 && number < machine->gpu_count) {
        *slot = (int)number;
        return true;
    }
    for (int i = 0; i < machine->gpu_count; i++) {
        if (strcmp(machine->gpus[i].uuid, written) == 0 || same_pci(machine->gpus[i].pci, written)) {
            *slot = i;
            return true;
        }
    }
    return refuse(statement, "no GPU \"%.80s\": name one by slot (0 to %d), UUID or PCI bus ID", written,
                  machine->gpu_count - 1);
}

bool set_attributes(struct statement *statement, struct gpu *gpu, int from) {
    struct gpu changed = *gpu;
    for (int i = from; i < statement->count; i++) {
        char *value = strchr(statement->words[i], '=');
        if (value == NULL) return refuse(statement, "\"%.60s\" is not of the form KEY=VALUE", statement->words[i]);
        *value = '\0'; /* restored below: `set *` reads the same words once for each GPU */
        bool is_set = gpu_set(&changed, statement->words[i], value + 1, statement->why, statement->why_size);
        *value = '=';
        if (!is_set) return false;
    }
    *gpu = changed;
    return true;
}

bool count_word(struct statement *statement, int at, long long most, long long *count) {
    *count = 1;
    if (at >= statement->count) return true;
    if (read_number(statement->words[at], count) && *count >= 1 && *count <= most) return true;
    return refuse(statement, "\"%.60s\" is not a number from 1 to %lld", statement->words[at], most);
}

static const struct {
    const char *word;
    int least, most; /* words, the first one counted */
    bool (*does)(struct statement *statement);
} STATEMENTS[] = {
    {"driver", 2, 2, state_version},
    {"nvml", 2, 2, state_version},
    {"cuda", 2, 2, state_cuda},
    {"init", 2, 2, state_init},
    {"lists", 2, 2, state_lists},
    {"events", 2, 2, state_events},
    {"file", 3, 3, state_file},
    {"field", 4, 4, state_field},
    {"action", 3, 4, state_action},
    {"model", 2, MAX_WORDS, state_model},
    {"gpu", 2, MAX_WORDS, state_gpu},
    {"link", 3, 4, state_join},
    {"switch", 3, 4, state_join_switch},
    {"nvlink", 4, 4, state_turn_link},
    {"profile", 16, 16, state_profile},
    {"create", 3, 6, state_create},
    {"destroy", 3, 3, state_destroy},
    {"set", 3, MAX_WORDS, state_set},
    {"lose", 2, 2, state_lose},
    {"remove", 2, 2, state_lose},
    {"add", 2, 2, state_add},
    {"reset", 2, MAX_WORDS, state_reset},
    {"break", 4, 4, state_break_function},
    {"hang", 3, 4, state_hang},
    {"repair", 2, 3, state_repair},
    {"xid", 3, 5, state_xid},
    {"event", 4, 4, state_event},
};
enum { STATEMENT_COUNT = sizeof STATEMENTS / sizeof *STATEMENTS };

bool machine_apply(struct machine *machine, char *line, const struct listener *listener, char *why, size_t why_size) {
    struct statement statement = {.machine = machine, .listener = listener, .why = why, .why_size = why_size};
    if (!cut(line, &statement)) return false;
    if (statement.count == 0) return true;
    for (int i = 0; i < STATEMENT_COUNT; i++) {
        if (strcmp(STATEMENTS[i].word, statement.words[0]) != 0) continue;
        if (statement.count < STATEMENTS[i].least || statement.count > STATEMENTS[i].most)
            return refuse(&statement, "%s with %d words after it", statement.words[0], statement.count - 1);
        return STATEMENTS[i].does(&statement);
    }
    return refuse(&statement, "no statement begins with \"%.60s\"", statement.words[0]);
}
