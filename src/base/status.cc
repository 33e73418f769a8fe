#include "lowtide/status.h"

#include "base/words.h"

namespace lowtide {

std::string code_text(ErrorCode code) {
  return words("E", static_cast<unsigned>(code));
}

}  // namespace lowtide
