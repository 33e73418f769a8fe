#include "io/read_bytes.h"

#include <poll.h>
#include <sys/stat.h>

#include <algorithm>

#include "io/descriptor.h"

namespace lowtide {
namespace {

constexpr std::size_t kMaxFile = std::size_t{8} << 30;  // no graph is as large
constexpr std::size_t kMaxStream = std::size_t{1} << 30;
constexpr std::size_t kFirstPiece = std::size_t{64} << 10;
constexpr std::size_t kReadAtOnce = std::size_t{16} << 20;
constexpr int kSecondsForWriter = 2;

class Reader {
 public:
  Reader(const std::filesystem::path& path, const Descriptor& file, const struct stat& status)
      : path_(path),
        file_(file.number()),
        pipe_(S_ISFIFO(status.st_mode)),
        most_(S_ISREG(status.st_mode) ? kMaxFile : kMaxStream),
        // One byte more than there should be, to see the end without growing.
        expected_(S_ISREG(status.st_mode) ? static_cast<std::size_t>(status.st_size) + 1 : 0) {}

  Result<Text> run() {
    if (expected_ > most_ + 1) return too_large();
    if (Status ready = await_writer(); !ready.ok()) return ready.error();
    make_room(kFirstPiece);
    while (true) {
      const ssize_t count = ::read(file_, text_.chars.get() + text_.size, std::min(room_ - text_.size, kReadAtOnce));
      if (count == 0) break;
      if (count < 0 && errno == EINTR && text_.size > 0) continue;
      if (count < 0) return failed(path_, "read it", errno);
      if (Status fine = take(static_cast<std::size_t>(count)); !fine.ok()) return fine.error();
    }
    text_.file_size = text_.size;
    return std::move(text_);
  }

 private:
  Error too_large() const {
    return {ErrorCode::file_too_large, words(path_.string(), " has more than ", most_, " bytes",
                                             most_ == kMaxStream ? ", the most that are read from a pipe or device"
                                                                 : ", the most that are read from a file")};
  }

  // The file was opened without waiting. From here on reads wait.
  Status await_writer() {
    if (pipe_) {
      pollfd waiting{file_, POLLIN, 0};
      const int ready = ::poll(&waiting, 1, 1000 * kSecondsForWriter);
      if (ready < 0) return failed(path_, "read it", errno);
      // A pipe without content that still has its writer asks to come again; any other has ended.
      char first = 0;
      const ssize_t count = ready == 0 ? ::read(file_, &first, 1) : -1;
      if (count == 0) {
        return Error{ErrorCode::file_error, words(path_.string(), ": expected a program that writes to this pipe, but ",
                                                  "none has opened it within ", kSecondsForWriter, " s")};
      }
      if (count == 1) {
        make_room(kFirstPiece);
        text_.chars[0] = first;
        if (Status fine = take(1); !fine.ok()) return fine;
      }
    }
    ::fcntl(file_, F_SETFL, ::fcntl(file_, F_GETFL) & ~O_NONBLOCK);
    return Done{};
  }

  void make_room(std::size_t room) {
    if (room <= room_) return;
    Text larger = Text::with_room(room);
    if (text_.size > 0) std::memcpy(larger.chars.get(), text_.chars.get(), text_.size);
    larger.size = text_.size;
    text_ = std::move(larger);
    room_ = room;
  }

  // `count` bytes more have come.
  Status take(std::size_t count) {
    const char* const piece = text_.chars.get() + text_.size;
    text_.size += count;
    if (text_.size > most_) return too_large();
    if (!is_compressed(text_.view())) {
      if (const void* const zero = std::memchr(piece, 0, count)) {
        return Error{ErrorCode::malformed_file, words(path_.string(), ": expected UTF-8 text, but byte ",
                                                      static_cast<const char*>(zero) - text_.chars.get(), " is zero")};
      }
    }
    if (text_.size == room_) {
      const std::size_t wanted = std::max(expected_, 2 * room_);
      make_room(wanted < most_ ? wanted : most_ + 1);
    }
    return Done{};
  }

  const std::filesystem::path& path_;
  int file_;
  bool pipe_;
  std::size_t most_;
  std::size_t expected_;  // bytes, of which one is beyond the end; 0 if nobody knows
  Text text_;
  std::size_t room_ = 0;
};

}  // namespace

bool is_compressed(std::string_view bytes) {
  return bytes.starts_with("\x28\xB5\x2F\xFD");
}

Result<Text> read_bytes(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);
  struct stat status{};
  if (!file.open() || ::fstat(file.number(), &status) != 0) return failed(path, "open it to read", errno);
  if (S_ISDIR(status.st_mode)) return failed(path, "read it", EISDIR);
  return Reader(path, file, status).run();
}

}  // namespace lowtide
