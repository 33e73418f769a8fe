#include "io/disk.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/words.h"
#include "io/descriptor.h"
#include "io/read_bytes.h"

namespace lowtide {
namespace {

Result<Text> decompress(const std::filesystem::path& path, const Text& compressed) {
  const std::size_t most = max_text_bytes(compressed.size);
  Text text = Text::with_room(most);  // pages that are not used are not taken
  text.file_size = compressed.size;
  const std::size_t size = ZSTD_decompress(text.chars.get(), most, compressed.chars.get(), compressed.size);
  if (!ZSTD_isError(size)) {
    text.size = size;
    return text;
  }
  if (ZSTD_getErrorCode(size) == ZSTD_error_dstSize_tooSmall) {
    return Error{ErrorCode::file_too_large,
                 words(path.string(), " holds more than ", most, " bytes of text, the most that are read from a ",
                       "compressed file of ", compressed.size, " bytes")};
  }
  return Error{ErrorCode::malformed_file, words(path.string(), ": cannot be decompressed: ", ZSTD_getErrorName(size))};
}

// Spreadsheets begin a CSV file with one.
void skip_byte_order_mark(Text& text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (!text.view().starts_with(kMark)) return;
  text.size -= kMark.size();
  std::memmove(text.chars.get(), text.chars.get() + kMark.size(), text.size);
}

// Takes text, gives it to a file as it is or compressed. Remembers the first error and then does nothing more.
class Writer {
 public:
  Writer(int file, bool compress) : file_(file), context_(compress ? ZSTD_createCCtx() : nullptr, ZSTD_freeCCtx) {
    if (!compress) return;
    ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 1);
    piece_.resize(ZSTD_CStreamOutSize());
  }

  void add(std::string_view text) {
    text_bytes_ += text.size();
    context_ ? compress(text, ZSTD_e_continue) : write(text);
  }
  int finish() {
    if (context_) {
      compress({}, ZSTD_e_end);
      pad();
    }
    return error_;
  }

 private:
  void compress(std::string_view text, ZSTD_EndDirective directive) {
    ZSTD_inBuffer in{text.data(), text.size(), 0};
    while (error_ == 0) {
      ZSTD_outBuffer out{piece_.data(), piece_.size(), 0};
      const std::size_t left = ZSTD_compressStream2(context_.get(), &out, &in, directive);
      if (ZSTD_isError(left)) error_ = ENOMEM;  // nothing else can go wrong here
      write({piece_.data(), out.pos});
      if (directive == ZSTD_e_end ? left == 0 : in.pos == in.size) break;
    }
  }

  // Text that is very regular compresses to less than read_text() believes. A frame that every reader skips makes up
  // for what is missing, so that what was written can be read.
  void pad() {
    constexpr std::size_t kMostInFrame = 0xFFFFFFFF;
    while (error_ == 0 && text_bytes_ > max_text_bytes(written_)) {
      const std::size_t missing = (text_bytes_ - max_text_bytes(written_)) / kTextBytesPerFileByte + 1;
      const auto size = static_cast<std::uint32_t>(std::min(missing, kMostInFrame));
      std::string frame = "\x50\x2A\x4D\x18";
      for (unsigned shift = 0; shift < 32; shift += 8) frame += static_cast<char>(size >> shift & 0xFF);
      write(frame.append(size, '\0'));
    }
  }

  void write(std::string_view bytes) {
    written_ += bytes.size();
    while (error_ == 0 && !bytes.empty()) {
      const ssize_t count = ::write(file_, bytes.data(), bytes.size());
      if (count >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(count));
      } else if (errno != EINTR) {
        error_ = errno;
      }
    }
  }

  int file_;
  std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context_;
  std::vector<char> piece_;
  std::size_t text_bytes_ = 0;
  std::size_t written_ = 0;
  int error_ = 0;
};

int write_all(Descriptor& file, bool compress, const std::function<void(const Drain&)>& make) {
  Writer writer(file.number(), compress);
  make([&](std::string_view text) { writer.add(text); });
  const int error = writer.finish();
  const int closing = file.close();
  return error != 0 ? error : closing;
}

}  // namespace

Result<Text> read_text(const std::filesystem::path& path) {
  Result<Text> text = read_bytes(path);
  if (text.ok() && is_compressed(text->view())) text = decompress(path, *text);
  if (text.ok()) skip_byte_order_mark(*text);
  return text;
}

Status write_text(const std::filesystem::path& path, const std::function<void(const Drain&)>& make) {
  const bool compress = path.extension() == ".zst";
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    Descriptor file(path, O_WRONLY);  // a pipe or a terminal: nothing to move into its place
    if (!file.open()) return failed(path, "open it to write", errno);
    if (const int error = write_all(file, compress, make)) return failed(path, "write it", error);
    return Done{};
  }

  static std::atomic<unsigned> counter = 0;
  std::filesystem::path place = path;
  if (std::filesystem::is_symlink(path, ignored)) place = std::filesystem::weakly_canonical(path, ignored);
  std::filesystem::path beside = place;
  beside += words(".", ::getpid(), ".", counter++, ".partial");
  Descriptor file(beside, O_WRONLY | O_CREAT | O_EXCL);
  if (!file.open()) return failed(path, "create a file in its directory", errno);
  int error = write_all(file, compress, make);
  if (error == 0 && ::rename(beside.c_str(), place.c_str()) != 0) error = errno;
  if (error == 0) return Done{};
  ::unlink(beside.c_str());
  return failed(path, "write it", error);
}

}  // namespace lowtide
