// Handles of mapped memory for other processes.
//
// Pages of one size, as those of expandable segments, have PyTorch's form: a byte with its version, 'e', a header, and for each page a file descriptor of the process in
// the header or a name over a fabric. So they can be exchanged with processes that use PyTorch's own allocator of the same
// version. A header of version 3 says which of both it is. Those of version 1 have files, and for version 2 PyTorch expects
// the reader to use the same kind as the writer; here the length tells.
//
// The pages of other policies can have several sizes, for which PyTorch has no form. Their handles have the mark 'p' and say the
// bytes of each page. Only processes with Coalesce can open them.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <sys/syscall.h>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include "interface.h"
#include "torch.h"

namespace coalesce {

// A file descriptor that is closed with it.
class File {
 public:
  explicit File(long file) : file_(static_cast<int>(file)) {}
  File(File&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  File& operator=(File&&) = delete;
  ~File() {
    if (file_ != -1) close(file_);
  }
  int number() const { return file_; }

 private:
  int file_;
};

// Consecutive pages.
class SharedPages {
 public:
  static constexpr char kMark = 'e';
  static constexpr char kSizesMark = 'p';

  explicit SharedPages(std::vector<SharedPage> pages) : pages(std::move(pages)) {}

  // Reads what follows the mark of pages of several sizes. The files become files of this process.
  static SharedPages parse_sizes(const std::string& text) {
    Reader reader{text};
    const auto header = reader.take<Header>();
    TORCH_CHECK(reader.left() / sizeof(SizedFile) == header.count && reader.left() % sizeof(SizedFile) == 0,
                "this handle of shared memory is not complete");
    SharedPages result(std::vector<SharedPage>(header.count));
    const File process = open_process(header.process);
    for (SharedPage& page : result.pages) {
      const auto sized = reader.take<SizedFile>();
      page.bytes = sized.bytes;
      page.file = result.own(file_of(process, sized.file));
    }
    return result;
  }

  // Reads what follows the version and the mark of pages of one size. The files become files of this process.
  static SharedPages parse(int version, const std::string& text) {
    Reader reader{text};
    const auto header = reader.take<Header>();
    const size_t name_bytes = header.count == 0 ? 0 : (text.size() - sizeof header) / header.count;
    Kind kind = name_bytes < sizeof SharedPage::name ? Kind::kFile : Kind::kFabric;
    if (version >= kWithKind) kind = static_cast<Kind>(reader.take<KindField>().kind);
    const size_t bytes = kind == Kind::kFile ? sizeof(int) : sizeof SharedPage::name;
    TORCH_CHECK(kind == Kind::kFile || kind == Kind::kFabric, "this handle of shared memory has an unknown kind");
    TORCH_CHECK(reader.left() / bytes == header.count && reader.left() % bytes == 0,
                "this handle of shared memory is not complete");
    SharedPages result(std::vector<SharedPage>(header.count));
    for (SharedPage& page : result.pages) {
      page.bytes = header.page_size;
      page.file = -1;
      if (kind == Kind::kFabric) reader.take_to(&page.name);
    }
    if (kind == Kind::kFabric) return result;
    const File process = open_process(header.process);
    for (SharedPage& page : result.pages) {
      page.file = result.own(file_of(process, reader.take<int>()));
    }
    return result;
  }

  // Returns the version, the mark and the rest of the handle of at least one page.
  std::string handle() const {
    const bool are_files = pages.front().file != -1;
    const uint64_t page_size = pages.front().bytes;
    const auto has_that_size = [=](const SharedPage& page) { return page.bytes == page_size; };
    if (are_files && !std::all_of(pages.begin(), pages.end(), has_that_size)) return handle_with_sizes();
    std::string text{kVersion, kMark};
    append(&text, Header{getpid(), 0, page_size, pages.size()});
    if (kVersion >= kWithKind) append(&text, KindField{are_files ? Kind::kFile : Kind::kFabric, 0});
    for (const SharedPage& page : pages) are_files ? append(&text, page.file) : append(&text, page.name);
    return text;
  }

  std::vector<SharedPage> pages;

 private:
  // The first version whose header says the kind.
  static constexpr char kWithKind = 3;
  static constexpr char kVersion = TORCH >= 213 ? kWithKind : TORCH >= 208 ? 2 : 1;

  struct Header {
    int process;
    int zero;
    uint64_t page_size;
    uint64_t count;
  };
  enum class Kind : int { kFile = 1, kFabric = 2 };
  struct KindField {
    Kind kind;
    int zero;
  };
  static_assert(sizeof(Header) == 24 && sizeof(KindField) == 8, "as PyTorch's structures");
  struct SizedFile {
    uint64_t bytes;
    int file;
    int zero;
  };

  std::string handle_with_sizes() const {
    std::string text{kVersion, kSizesMark};
    append(&text, Header{getpid(), 0, 0, pages.size()});
    for (const SharedPage& page : pages) append(&text, SizedFile{page.bytes, page.file, 0});
    return text;
  }

  // Closes the file with these pages. Returns its number.
  int own(File file) {
    files_.push_back(std::move(file));
    return files_.back().number();
  }

  template <typename T>
  static void append(std::string* text, const T& value) {
    static_assert(std::is_trivially_copyable<T>::value, "its bytes are the value");
    text->append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  struct Reader {
    const std::string& text;
    size_t at = 0;

    size_t left() const { return text.size() - at; }

    template <typename T>
    void take_to(T* value) {
      static_assert(std::is_trivially_copyable<T>::value, "its bytes are the value");
      TORCH_CHECK(left() >= sizeof *value, "this handle of shared memory is not complete");
      std::memcpy(value, text.data() + at, sizeof *value);
      at += sizeof *value;
    }

    template <typename T>
    T take() {
      T value;
      take_to(&value);
      return value;
    }
  };

  // The numbers of the calls, which old headers lack.
#ifdef SYS_pidfd_open
  static constexpr long kPidfdOpen = SYS_pidfd_open;
#else
  static constexpr long kPidfdOpen = 434;
#endif
#ifdef SYS_pidfd_getfd
  static constexpr long kPidfdGetfd = SYS_pidfd_getfd;
#else
  static constexpr long kPidfdGetfd = 438;
#endif

  static File open_process(int process) {
    return checked(syscall(kPidfdOpen, process, 0), "pidfd_open", "pidfd_open:");
  }

  // A file of another process as one of this process.
  static File file_of(const File& process, int file) {
    return checked(syscall(kPidfdGetfd, process.number(), file, 0), "pidfd_getfd", "pidfd_getfd: ");
  }

  static File checked(long file, const char* call, const char* prefix) {
    const int error = errno;
    TORCH_CHECK(file != -1 || error != ENOSYS, "The kernel on this machine does not support the ", call,
                " syscall needed to use IPC for CUDA tensors when expandable_segments:True is set. Consider using "
                "expandable_segments:False via torch.cuda.memory._set_allocator_settings('expandable_segments:False') "
                "for this allocation.");
    TORCH_CHECK(file != -1, prefix, std::strerror(error));
    return File(file);
  }

  std::vector<File> files_;
};

}  // namespace coalesce
