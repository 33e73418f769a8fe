#include "tier/nameless_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "tier/file_error.h"

namespace lowtide::tier {
namespace {

int open_nameless(const std::string& folder) {
  const int file = open(folder.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  // EISDIR: a kernel that does not know O_TMPFILE.
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string name = folder + "/lowtide-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) unlink(name.c_str());
  return named;
}

// Asked first: otherwise a disk that has too little would be full until that shows.
bool has_room(int file, std::int64_t bytes) {
  struct statvfs found = {};
  if (fstatvfs(file, &found) != 0) return true;
  return static_cast<std::uint64_t>(bytes) / found.f_frsize <= found.f_bavail;
}

}  // namespace

Descriptor::~Descriptor() {
  close(number_);
}

NamelessFile::NamelessFile(const std::string& folder) : folder_(folder) {
  const int file = open_nameless(folder);
  if (file < 0) throw FileError(errno, "cannot make a file", folder);
  descriptor_ = std::make_shared<const Descriptor>(file);
}

void NamelessFile::allocate(std::int64_t offset, std::int64_t bytes) const {
  int error = has_room(number(), bytes) ? EINTR : ENOSPC;
  while (error == EINTR) error = posix_fallocate(number(), offset, bytes);
  if (error == 0) return;
  deallocate(offset, bytes);  // the part that was there
  throw FileError(error, "cannot reserve " + std::to_string(bytes) + " bytes", folder_);
}

void NamelessFile::deallocate(std::int64_t offset, std::int64_t bytes) const {
  static_cast<void>(fallocate(number(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes));
}

}  // namespace lowtide::tier
