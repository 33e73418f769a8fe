// spans.h: a set of addresses, as spans in order that neither meet nor touch.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "layout/pieces.h"

namespace lowtide {

struct Span {
  Units begin;
  Units end;
};

class Spans {
 public:
  void add(Span span) {
    auto first = std::ranges::lower_bound(spans_, span.begin, {}, &Span::end);
    if (first == spans_.end() || span.end < first->begin) {
      spans_.insert(first, span);
      return;
    }
    auto last = first;
    for (; last != spans_.end() && last->begin <= span.end; ++last) span.end = std::max(span.end, last->end);
    first->begin = std::min(first->begin, span.begin);
    first->end = span.end;
    spans_.erase(first + 1, last);
  }
  void add(const Spans& others) {
    for (const Span& other : others.spans_) add(other);
  }
  void clear() { spans_.clear(); }
  std::span<const Span> all() const { return spans_; }

 private:
  std::vector<Span> spans_;
};

}  // namespace lowtide
