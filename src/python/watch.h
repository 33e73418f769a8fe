// watch.h: whether any of many Python objects has changed since it was last looked at, in one sweep.
//
// A Watch is told of places: dictionaries, entries of dictionaries or classes, lists, sets, closure cells, functions,
// attributes behind a C descriptor. It keeps what it saw in each (strong references, so no address is used twice) and
// compares pointers: a place has changed when it holds another object, never when an object in it has changed. The
// sweep runs no Python code and allocates nothing, but for sets and deques, which need an iterator.
//
//     Watch watch;
//     watch.add_mapping(module.__dict__, module);  // 0
//     watch.add_cell(cell);                        // 1
//     watch.same();                                // true, until somebody assigns
//     watch.changed();                             // {1}
//     watch.renew(1);                              // what it holds now is what was seen
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lowtide::python {

namespace nb = nanobind;

class Watch {
 public:
  Watch() = default;
  ~Watch() { clear(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Each gives the index of the new place.
  std::size_t add_mapping(nb::dict mapping, nb::object owner);  // all entries, in order; and the class of `owner`
  std::size_t add_entry(nb::object owner, nb::str key);         // one entry of a dictionary or of a class, or none
  std::size_t add_sequence(nb::list sequence);
  std::size_t add_iterable(nb::object iterable);  // sets and deques
  std::size_t add_cell(nb::object cell);
  std::size_t add_function(nb::object function);                        // code and default arguments
  std::size_t add_attribute(nb::object object, nb::object descriptor);  // what the descriptor gives, or nothing
  std::size_t add_field(nb::object object, std::size_t offset);         // the pointer there in the object's own memory

  std::size_t size() const { return places_.size(); }
  bool same() const;
  std::vector<std::size_t> changed() const;
  void renew(std::size_t index);

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  enum class Kind : std::uint8_t { mapping, entry, sequence, iterable, cell, function, attribute, field };

  // One place and its window on `seen_`; object, key and class are owned.
  struct Place {
    Kind kind;
    PyObject* object;
    PyObject* key;       // the entry's key, the attribute's descriptor, the mapping's owner; or null
    PyTypeObject* type;  // of the mapping's owner, or null
    std::size_t begin = 0;
    std::size_t count = 0;
    std::size_t offset = 0;             // of the field
    mutable std::uint64_t version = 0;  // of the dictionary when it was last found to be the same
  };

  std::size_t add(Kind kind, nb::object object, nb::object key, PyTypeObject* type);
  bool same(const Place& place) const;
  void look(Place& place);

  std::vector<Place> places_;
  std::vector<PyObject*> seen_;  // owned; null stands for an empty cell or a missing entry
};

// Where in `holder`'s own memory a pointer to `value` stands. PyTorch's getters take 60 ns, mostly to set up handlers
// of errors and warnings; a look at the field behind one takes 1 ns.
std::optional<std::size_t> field_offset(nb::handle holder, nb::handle value);

void bind_watch(nb::module_& m);

}  // namespace lowtide::python
