/* The two files: a description, read when NVML is initialised, and a control file, followed while it is written.
 *
 * The description's lines and then the control file's lines build the machine. Lines that are appended to the
 * control file are carried out one by one. When it is written again, the machine is built again from the first line, and
 * events happen only for lines that were not there before. A last line without its end is not there yet.
 */
#include "gate.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 16 << 20, MAX_LINE_BYTES = 4096, MAX_COMPLAINTS = 20 };

struct file {
    char path[4096];
    char *text;      /* of whole lines; not ended by a NUL */
    size_t length;
};

static struct file description, control;
static struct stat control_status; /* when it was read */
static int complaints;

static void no_event(const struct event *event) { (void)event; }
static const struct listener PAST = {.on_event = no_event, .on_gone = gpu_is_gone};
static const struct listener PRESENT = {.on_event = queue_event, .on_gone = gpu_is_gone};

static void complain(const char *path, int line, const char *why) {
    if (complaints < MAX_COMPLAINTS) warn("%s:%d: %s; the line is left out", path, line, why);
    if (complaints == MAX_COMPLAINTS) warn("%s:%d: more such lines; no more of them are reported", path, line);
    complaints++;
}

static void apply_line(const char *path, int number, const char *text, size_t length, const struct listener *listener) {
    char line[MAX_LINE_BYTES], why[256];
    if (length >= sizeof line) return complain(path, number, "the line is too long");
    if (memchr(text, '\0', length) != NULL) return complain(path, number, "the line holds a NUL byte");
    memcpy(line, text, length);
    line[length] = '\0';
    if (!machine_apply(&machine, line, listener, why, sizeof why)) complain(path, number, why);
}

/* Carry out the lines from one that begins at this byte; listener_from: events happen from that byte on. */
static void apply(const struct file *file, size_t from, size_t live_from) {
    int number = 1;
    for (size_t i = 0; i < from; i++) number += file->text[i] == '\n';
    for (size_t at = from; at < file->length; number++) {
        size_t length = (size_t)((char *)memchr(file->text + at, '\n', file->length - at) - (file->text + at));
        apply_line(file->path, number, file->text + at, length, at >= live_from ? &PRESENT : &PAST);
        at += length + 1;
    }
}

/* The whole lines of an open file, or NULL. With whole_file the last line may lack its end. */
static char *read_lines(int descriptor, const struct stat *status, bool whole_file, size_t *length) {
    if (!S_ISREG(status->st_mode) || status->st_size > MAX_FILE_BYTES) return NULL;
    size_t room = (size_t)status->st_size + 1, read_bytes = 0;
    char *text = malloc(room);
    while (text != NULL && read_bytes < room - 1) {
        ssize_t got = read(descriptor, text + read_bytes, room - 1 - read_bytes);
        if (got <= 0) break;
        read_bytes += (size_t)got;
    }
    if (text == NULL) return NULL;
    if (whole_file && read_bytes > 0 && text[read_bytes - 1] != '\n') text[read_bytes++] = '\n';
    while (read_bytes > 0 && text[read_bytes - 1] != '\n') read_bytes--;
    *length = read_bytes;
    return text;
}

static bool read_file(struct file *file, bool whole_file, struct stat *status) {
    int descriptor = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return false;
    size_t length = 0;
    char *text = fstat(descriptor, status) == 0 ? read_lines(descriptor, status, whole_file, &length) : NULL;
    close(descriptor);
    if (text == NULL) {
        errno = EFBIG;
        return false;
    }
    free(file->text);
    file->text = text;
    file->length = length;
    return true;
}

static bool take_path(struct file *file, const char *variable) {
    const char *path = getenv(variable);
    if (path == NULL || *path == '\0' || strlen(path) >= sizeof file->path) return false;
    strcpy(file->path, path);
    return true;
}

static void forget_text(struct file *file) {
    free(file->text);
    file->text = NULL;
    file->length = 0;
}

bool load_files(void) {
    static const char DESCRIPTION[] = "NODEDEVICE_FAKE_NVML", CONTROL[] = "NODEDEVICE_FAKE_NVML_CONTROL";
    struct stat status;
    complaints = 0;
    machine_clear(&machine);
    if (!take_path(&description, DESCRIPTION)) {
        warn("%s names no file: set it to the description of a machine", DESCRIPTION);
        return false;
    }
    if (!read_file(&description, true, &status)) {
        warn("%s: cannot be read as a description: %s", description.path, strerror(errno));
        return false;
    }
    apply(&description, 0, description.length);
    forget_text(&control);
    memset(&control_status, 0, sizeof control_status);
    if (take_path(&control, CONTROL)) {
        watch_files();
        if (read_file(&control, false, &control_status)) apply(&control, 0, control.length);
    }
    return true;
}

static bool is_same(const struct stat *one, const struct stat *other) {
    return one->st_ino == other->st_ino && one->st_dev == other->st_dev && one->st_size == other->st_size &&
           one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

static size_t common_lines(const struct file *one, const struct file *other) {
    size_t begin = 0;
    for (size_t i = 0; i < one->length && i < other->length && one->text[i] == other->text[i]; i++) {
        if (one->text[i] == '\n') begin = i + 1;
    }
    return begin;
}

static void take_up(struct file *before) {
    size_t common = common_lines(before, &control);
    if (common == before->length) {
        apply(&control, common, common);
    } else {
        machine_clear(&machine);
        apply(&description, 0, description.length);
        apply(&control, 0, common);
    }
    if (machine.lists_at_once) list_gpus();
    pthread_cond_broadcast(&changed);
}

void refresh_files(void) {
    struct stat status;
    if (*control.path == '\0') return;
    bool is_there = stat(control.path, &status) == 0;
    if (is_there && is_same(&status, &control_status)) return;
    if (!is_there && control_status.st_ino == 0) return;
    struct file before = control;
    control.text = NULL;
    control.length = 0;
    /* a file that vanished is one without a line */
    if (!read_file(&control, false, &control_status)) memset(&control_status, 0, sizeof control_status);
    take_up(&before);
    free(before.text);
}

/* Waiters wake as soon as something is written. A call reads the file by itself, so nothing depends on this for being right. */
static void *watch(void *argument) {
    int descriptor = *(int *)argument;
    char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    for (;;) {
        ssize_t got = read(descriptor, events, sizeof events);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return NULL;
        pthread_mutex_lock(&lock);
        memset(&control_status.st_mtim, 0, sizeof control_status.st_mtim); /* two writes may share a time stamp */
        refresh_files();
        pthread_mutex_unlock(&lock);
    }
}

void watch_files(void) {
    static int descriptor = -1;
    if (descriptor >= 0) return;
    char path[sizeof control.path];
    pthread_t thread;
    strcpy(path, control.path);
    descriptor = inotify_init1(IN_CLOEXEC);
    int watched = inotify_add_watch(descriptor, dirname(path), IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE);
    if (watched < 0 || pthread_create(&thread, NULL, watch, &descriptor) != 0) {
        warn("%s: cannot be watched: %s", control.path, strerror(errno));
        return;
    }
    pthread_detach(thread);
}
