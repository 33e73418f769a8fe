#include "tier/chunk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tier/checksum.h"

namespace lowtide::tier {
namespace {

// As a disk does it: nobody has written, as far as the file's time of change says.
void flip_byte(int file, std::int64_t offset) {
  char byte = 0;
  struct stat before = {};
  if (fstat(file, &before) != 0 || pread(file, &byte, 1, offset) != 1) return;
  byte = static_cast<char>(byte ^ 1);
  static_cast<void>(pwrite(file, &byte, 1, offset));
  const timespec times[2] = {before.st_atim, before.st_mtim};
  static_cast<void>(futimens(file, times));
}

}  // namespace

// Memory after a load's last byte is another's: a part of a page takes the ordinary way.
void Chunk::choose_way() {
  const std::int64_t rest = bytes - done;
  const bool fits = direction == Direction::store || rest == 0 || rest >= kDirectAlignment;
  direct = direct && done % kDirectAlignment == 0 && fits;
}

bool Chunk::prepare(const Descriptors& files) {
  if (fault == Fault::stuck) faults->wait_for_release();
  if (fault == Fault::io_error) error = EIO;
  if (fault == Fault::no_space) error = ENOSPC;
  if (error != 0) return false;
  choose_way();
  if (direction == Direction::store) checksum = tier::checksum(memory, static_cast<std::size_t>(bytes));
  if (fault == Fault::flipped_byte && direction == Direction::load) {
    flip_byte(files.ordinary->number(), offset + bytes / 2);
  }
  return true;
}

Chunk::Request Chunk::ask(const Descriptors& files) const {
  std::int64_t wanted = bytes - done;
  if (direct) {
    const std::int64_t beyond = direction == Direction::store ? kDirectAlignment - 1 : 0;
    wanted = (wanted + beyond) / kDirectAlignment * kDirectAlignment;
  }
  if (fault == Fault::short_transfer && done == 0) {
    const std::int64_t unit = direct ? kDirectAlignment : 1;
    wanted = std::max(wanted / 2 / unit * unit, unit);
  }
  return {(direct ? files.direct : files.ordinary)->number(), memory + done, offset + done,
          static_cast<std::size_t>(wanted)};
}

bool Chunk::take(std::int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return true;
  if (result == -EINVAL && direct) {  // memory that the disk cannot reach directly
    direct = false;
    return true;
  }
  if (result <= 0) {
    error = result == 0 ? EIO : static_cast<int>(-result);  // 0: the file has ended
    return false;
  }
  done = std::min(done + result, bytes);
  choose_way();
  return done < bytes;
}

void Chunk::complete(const Descriptors& files) {
  if (error == 0 && direction == Direction::load) checksum = tier::checksum(memory, static_cast<std::size_t>(bytes));
  const int file = files.ordinary->number();
  if (fault == Fault::flipped_byte && direction == Direction::store) flip_byte(file, offset + bytes / 2);
  if (direct) return;
  if (error == 0) {  // of a load too: whoever writes a mapped page after this is seen to
    constexpr unsigned kWritten = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    const int failed = sync_file_range(file, offset, bytes, kWritten) == 0 ? 0 : errno;
    if (failed == EIO || failed == ENOSPC) error = failed;
  }
  posix_fadvise(file, offset, bytes, POSIX_FADV_DONTNEED);
}

}  // namespace lowtide::tier
