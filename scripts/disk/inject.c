// inject FOLDER KIND N REPORT COMMAND...: runs a command and lets its Nth operation on files in FOLDER fail.
//
// KIND   how: ENOSPC, EFBIG, EIO or EACCES is returned and nothing done; "full" is ENOSPC from then on; "kill" kills the
//        process before the operation, "torn" after half of a write. N counts the operations that can fail so, from 1.
// FOLDER an absolute path without links. Other files, such as libraries and the terminal, do not count.
// REPORT receives the number of operations counted, and what failed.
//
// The process is traced (ptrace(2)), because some libraries make system calls without the C library, where a preloaded
// library would not see them. Threads and children are traced too. Exits as the command does, with 128 + its signal.
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

// What an operation does to a file, which decides how it can fail.
enum effect { READS = 1, LOOKS_UP = 2, NAMES = 4, WRITES = 8, ENDS = 16 };

static const struct operation {
  long number;
  const char *name;
  int descriptor;  // the argument that is one, or that of the folder of the path; -1: none
  int path;        // the argument that is one; -1: none
  enum effect effect;
} OPERATIONS[] = {
#define ON_FILE(name, effect) {SYS_##name, #name, 0, -1, effect},
#define ON_PATH(name, effect) {SYS_##name, #name, -1, 0, effect},
#define AT_PATH(name, effect) {SYS_##name, #name, 0, 1, effect},
    ON_FILE(read, READS) ON_FILE(pread64, READS) ON_FILE(readv, READS) ON_FILE(getdents64, READS)
    ON_FILE(lseek, READS) ON_FILE(flock, READS) ON_FILE(fstat, READS)
    ON_FILE(write, WRITES) ON_FILE(pwrite64, WRITES) ON_FILE(writev, WRITES)
    ON_FILE(ftruncate, ENDS) ON_FILE(fallocate, ENDS) ON_FILE(fsync, ENDS) ON_FILE(fdatasync, ENDS)
    ON_FILE(close, ENDS) ON_FILE(fchmod, ENDS)
    AT_PATH(openat, NAMES) AT_PATH(renameat, NAMES) AT_PATH(renameat2, NAMES) AT_PATH(linkat, NAMES)
    AT_PATH(unlinkat, NAMES) AT_PATH(mkdirat, NAMES) AT_PATH(fchmodat, NAMES)
    AT_PATH(newfstatat, LOOKS_UP) AT_PATH(statx, LOOKS_UP) AT_PATH(faccessat, LOOKS_UP)
    AT_PATH(readlinkat, LOOKS_UP)
#ifdef SYS_open  // the older calls, which newer architectures lack
    ON_PATH(open, NAMES) ON_PATH(creat, NAMES) ON_PATH(rename, NAMES) ON_PATH(link, NAMES)
    ON_PATH(unlink, NAMES) ON_PATH(mkdir, NAMES) ON_PATH(rmdir, NAMES) ON_PATH(chmod, NAMES)
    ON_PATH(stat, LOOKS_UP) ON_PATH(lstat, LOOKS_UP) ON_PATH(access, LOOKS_UP) ON_PATH(readlink, LOOKS_UP)
#endif
};

static const struct kind {
  const char *name;
  int error;    // 0: the process is killed
  int effects;  // the operations that can fail so
  int stays;    // whether all later ones fail too
} KINDS[] = {
    {"ENOSPC", ENOSPC, NAMES | WRITES | ENDS, 0}, {"full", ENOSPC, NAMES | WRITES | ENDS, 1},
    {"EFBIG", EFBIG, WRITES, 0},  {"EIO", EIO, READS | LOOKS_UP | NAMES | WRITES | ENDS, 0},
    {"EACCES", EACCES, LOOKS_UP | NAMES, 0}, {"kill", 0, NAMES | WRITES | ENDS, 0}, {"torn", 0, WRITES, 0},
};

static void die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("inject: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  exit(125);
}

// Where a link in /proc of the process leads, or "".
static void target(char *into, pid_t process, const char *format, int descriptor) {
  char link[64] = "", name[32];
  snprintf(name, sizeof name, format, descriptor);
  snprintf(link, sizeof link, "/proc/%d/%s", process, name);
  ssize_t length = readlink(link, into, PATH_MAX - 1);
  into[length < 0 ? 0 : length] = 0;
}

// The file that an operation is about.
static void file_of(char *into, pid_t process, const struct operation *one, const __uint64_t *arguments) {
  char given[PATH_MAX] = "";
  if (one->path >= 0) {
    // A page may end behind the text, so what is readable is taken.
    struct iovec here = {given, sizeof given - 1}, there = {(void *)arguments[one->path], 0};
    size_t left = 4096 - arguments[one->path] % 4096;
    there.iov_len = left < here.iov_len ? left : here.iov_len;
    process_vm_readv(process, &here, 1, &there, 1, 0);
  }
  if (given[0] == '/') {
    memcpy(into, given, sizeof given);
    return;
  }
  int folder = one->descriptor < 0 ? AT_FDCWD : (int)arguments[one->descriptor];
  target(into, process, folder == AT_FDCWD ? "cwd" : "fd/%d", folder);
  if (given[0]) {
    size_t used = strlen(into);
    snprintf(into + used, PATH_MAX - used, "/%s", given);
  }
}

// Replaces the number of the system call that begins, so that none is made.
static void skip_call(pid_t thread) {
#if defined(__x86_64__)
  if (ptrace(PTRACE_POKEUSER, thread, offsetof(struct user_regs_struct, orig_rax), -1L)) die("cannot skip a call");
#elif defined(__aarch64__)
  int none = -1;
  struct iovec number = {&none, sizeof none};
  if (ptrace(PTRACE_SETREGSET, thread, 0x404 /* NT_ARM_SYSTEM_CALL */, &number)) die("cannot skip a call");
#else
#error "only for x86-64 and aarch64"
#endif
}

enum { RESULT, THIRD_ARGUMENT };

static void set_register(pid_t thread, int which, long value) {
  struct user_regs_struct registers;
  struct iovec all = {&registers, sizeof registers};
  if (ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &all)) die("cannot read registers");
#if defined(__x86_64__)
  *(which == RESULT ? &registers.rax : &registers.rdx) = value;
#else
  registers.regs[which == RESULT ? 0 : 2] = value;
#endif
  if (ptrace(PTRACE_SETREGSET, thread, NT_PRSTATUS, &all)) die("cannot write registers");
}

int main(int count, char **words) {
  if (count < 6) die("usage: inject FOLDER KIND N REPORT COMMAND...");
  const char *folder = words[1];
  const struct kind *kind = NULL;
  for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
    if (!strcmp(KINDS[i].name, words[2])) kind = &KINDS[i];
  if (!kind) die("no such kind: %s", words[2]);
  int is_torn = !strcmp(kind->name, "torn");
  long wanted = atol(words[3]), counted = 0;
  char failed[2 * PATH_MAX] = "nothing";

  pid_t process = fork();
  if (process < 0) die("cannot fork");
  if (!process) {
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    execvp(words[5], words + 5);
    die("cannot run %s", words[5]);
  }
  int status, ended = 0;
  if (waitpid(process, &status, 0) < 0 || !WIFSTOPPED(status)) die("cannot trace");
  long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                 PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
  if (ptrace(PTRACE_SETOPTIONS, process, 0, options)) die("cannot trace");

  pid_t thread = process, failing = 0;
  for (;;) {
    int signal = 0;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (thread == process) ended = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else {
      struct __ptrace_syscall_info call;
      if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
        // Not the stops of new threads, and those at an exec.
        signal = status >> 16 || WSTOPSIG(status) == SIGSTOP ? 0 : WSTOPSIG(status);
      } else if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof call, &call) > 0) {
        if (call.op == PTRACE_SYSCALL_INFO_EXIT && thread == failing) {
          failing = 0;
          if (kind->error)
            set_register(thread, RESULT, -kind->error);
          else
            kill(process, SIGKILL);
        }
        const struct operation *one = NULL;
        for (size_t i = 0; call.op == PTRACE_SYSCALL_INFO_ENTRY && i < sizeof OPERATIONS / sizeof *OPERATIONS; i++)
          if (OPERATIONS[i].number == (long)call.entry.nr && OPERATIONS[i].effect & kind->effects) one = &OPERATIONS[i];
        char file[PATH_MAX + 1] = "";
        if (one) file_of(file, thread, one, call.entry.args);
        struct stat there;
        int is_counted = one && !strncmp(file, folder, strlen(folder));
        // No file system fails to close a folder, and Rust's library does not expect it.
        if (one && one->number == SYS_close && !stat(file, &there) && S_ISDIR(there.st_mode)) is_counted = 0;
        counted += is_counted;
        if (is_counted && (counted == wanted || (kind->stays && wanted && counted > wanted))) {
          if (counted == wanted) snprintf(failed, sizeof failed, "%s of %s", one->name, file);
          if (kind->error) {
            skip_call(thread);
            failing = thread;
          } else if (!is_torn) {
            kill(process, SIGKILL);
          } else {
            // Half of the bytes, or of the buffers.
            set_register(thread, THIRD_ARGUMENT, call.entry.args[2] / 2);
            failing = thread;
          }
        }
      }
      ptrace(PTRACE_SYSCALL, thread, 0, signal);
    }
    while ((thread = waitpid(-1, &status, __WALL)) < 0 && errno == EINTR) {
    }
    if (thread < 0) break;
  }
  FILE *report = fopen(words[4], "w");
  if (!report || fprintf(report, "%ld %s\n", counted, failed) < 0 || fclose(report)) die("cannot write %s", words[4]);
  return ended;
}
