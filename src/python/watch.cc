#include "watch.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>

namespace lowtide::python {
namespace {

using namespace nb::literals;

PyObject* dictionary_of(PyObject* owner) {
  if (!PyType_Check(owner)) return owner;
  return reinterpret_cast<PyTypeObject*>(owner)->tp_dict;  // a class of Python's own has none, but those never change
}

// Borrowed; null if there is none.
PyObject* entry_of(PyObject* owner, PyObject* key) {
  PyObject* dictionary = dictionary_of(owner);
  if (dictionary == nullptr) return nullptr;
  PyObject* value = PyDict_GetItemWithError(dictionary, key);
  if (value == nullptr && PyErr_Occurred()) PyErr_Clear();
  return value;
}

// A number that is another one after every change of the dictionary, or 0 where Python has none: since 3.12 not every
// way of setting an attribute counts it up.
std::uint64_t version_of([[maybe_unused]] PyObject* dictionary) {
#if PY_VERSION_HEX < 0x030C0000
  return reinterpret_cast<PyDictObject*>(dictionary)->ma_version_tag;
#else
  return 0;
#endif
}

// Null if the attribute is not set.
nb::object attribute_of(PyObject* object, PyObject* descriptor) {
  PyObject* value = Py_TYPE(descriptor)->tp_descr_get(descriptor, object, reinterpret_cast<PyObject*>(Py_TYPE(object)));
  if (value == nullptr) PyErr_Clear();
  return nb::steal(value);
}

PyObject* field_of(PyObject* object, std::size_t offset) {
  PyObject* value = nullptr;
  std::memcpy(&value, reinterpret_cast<const char*>(object) + offset, sizeof(value));
  return value;
}

std::array<PyObject*, 3> parts_of(PyObject* function) {
  return {PyFunction_GetCode(function), PyFunction_GetDefaults(function), PyFunction_GetKwDefaults(function)};
}

// Calls `use(item)` for each item until it says false. Sets and deques iterate without running Python code.
template <typename Use>
bool each_item(PyObject* iterable, Use use) {
  const nb::object iterator = nb::steal(PyObject_GetIter(iterable));
  if (!iterator.is_valid()) nb::raise_python_error();
  while (PyObject* item = PyIter_Next(iterator.ptr())) {
    const nb::object owned = nb::steal(item);
    if (!use(item)) return false;
  }
  if (PyErr_Occurred()) nb::raise_python_error();
  return true;
}

}  // namespace

std::size_t Watch::add(Kind kind, nb::object object, nb::object key, PyTypeObject* type) {
  Py_XINCREF(reinterpret_cast<PyObject*>(type));
  places_.push_back({.kind = kind, .object = object.release().ptr(), .key = key.release().ptr(), .type = type});
  look(places_.back());
  return places_.size() - 1;
}

std::size_t Watch::add_mapping(nb::dict mapping, nb::object owner) {
  PyTypeObject* type = owner.is_none() ? nullptr : Py_TYPE(owner.ptr());
  return add(Kind::mapping, std::move(mapping), owner.is_none() ? nb::object() : std::move(owner), type);
}

std::size_t Watch::add_entry(nb::object owner, nb::str key) {
  if (!PyDict_Check(owner.ptr()) && !PyType_Check(owner.ptr())) throw nb::type_error("neither a dict nor a class");
  return add(Kind::entry, std::move(owner), std::move(key), nullptr);
}

std::size_t Watch::add_sequence(nb::list sequence) {
  return add(Kind::sequence, std::move(sequence), nb::object(), nullptr);
}

std::size_t Watch::add_iterable(nb::object iterable) {
  return add(Kind::iterable, std::move(iterable), nb::object(), nullptr);
}

std::size_t Watch::add_cell(nb::object cell) {
  if (!PyCell_Check(cell.ptr())) throw nb::type_error("not a closure cell");
  return add(Kind::cell, std::move(cell), nb::object(), nullptr);
}

std::size_t Watch::add_function(nb::object function) {
  if (!PyFunction_Check(function.ptr())) throw nb::type_error("not a function");
  return add(Kind::function, std::move(function), nb::object(), nullptr);
}

std::size_t Watch::add_attribute(nb::object object, nb::object descriptor) {
  if (Py_TYPE(descriptor.ptr())->tp_descr_get == nullptr) throw nb::type_error("not a descriptor");
  return add(Kind::attribute, std::move(object), std::move(descriptor), nullptr);
}

std::size_t Watch::add_field(nb::object object, std::size_t offset) {
  const auto size = static_cast<std::size_t>(Py_TYPE(object.ptr())->tp_basicsize);
  if (offset < sizeof(PyObject) || offset + sizeof(PyObject*) > size) throw nb::index_error("not in the object");
  Py_INCREF(object.ptr());
  places_.push_back({.kind = Kind::field, .object = object.ptr(), .key = nullptr, .type = nullptr, .offset = offset});
  look(places_.back());
  return places_.size() - 1;
}

bool Watch::same(const Place& place) const {
  PyObject* const* seen = seen_.data() + place.begin;
  switch (place.kind) {
    case Kind::mapping: {
      if (place.type != nullptr && Py_TYPE(place.key) != place.type) return false;
      const std::uint64_t version = version_of(place.object);
      if (version != 0 && version == place.version) return true;
      if (static_cast<std::size_t>(PyDict_Size(place.object)) * 2 != place.count) return false;
      Py_ssize_t position = 0;
      PyObject* key = nullptr;
      PyObject* value = nullptr;
      while (PyDict_Next(place.object, &position, &key, &value)) {
        if (seen[0] != key || seen[1] != value) return false;
        seen += 2;
      }
      place.version = version;
      return true;
    }
    case Kind::entry:
      return *seen == entry_of(place.object, place.key);
    case Kind::sequence: {
      const Py_ssize_t size = PyList_GET_SIZE(place.object);
      if (static_cast<std::size_t>(size) != place.count) return false;
      for (Py_ssize_t i = 0; i < size; ++i) {
        if (seen[i] != PyList_GET_ITEM(place.object, i)) return false;
      }
      return true;
    }
    case Kind::iterable: {
      std::size_t count = 0;
      const bool equal =
          each_item(place.object, [&](PyObject* item) { return count < place.count && seen[count++] == item; });
      return equal && count == place.count;
    }
    case Kind::cell:
      return *seen == PyCell_GET(place.object);
    case Kind::function: {
      const auto parts = parts_of(place.object);
      return seen[0] == parts[0] && seen[1] == parts[1] && seen[2] == parts[2];
    }
    case Kind::attribute:
      return *seen == attribute_of(place.object, place.key).ptr();
    case Kind::field:
      return *seen == field_of(place.object, place.offset);
  }
  return false;
}

void Watch::look(Place& place) {
  std::vector<nb::object> found;
  const auto keep = [&found](PyObject* object) {
    found.push_back(nb::borrow(object));
    return true;
  };
  switch (place.kind) {
    case Kind::mapping: {
      if (place.type != nullptr && place.type != Py_TYPE(place.key)) {
        PyTypeObject* before = std::exchange(place.type, Py_TYPE(place.key));
        Py_INCREF(reinterpret_cast<PyObject*>(place.type));
        Py_DECREF(reinterpret_cast<PyObject*>(before));
      }
      Py_ssize_t position = 0;
      PyObject* key = nullptr;
      PyObject* value = nullptr;
      while (PyDict_Next(place.object, &position, &key, &value)) {
        keep(key);
        keep(value);
      }
      place.version = version_of(place.object);
      break;
    }
    case Kind::entry:
      keep(entry_of(place.object, place.key));
      break;
    case Kind::sequence:
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(place.object); ++i) keep(PyList_GET_ITEM(place.object, i));
      break;
    case Kind::iterable:
      each_item(place.object, keep);
      break;
    case Kind::cell:
      keep(PyCell_GET(place.object));
      break;
    case Kind::function:
      for (PyObject* part : parts_of(place.object)) keep(part);
      break;
    case Kind::attribute:
      found.push_back(attribute_of(place.object, place.key));
      break;
    case Kind::field:
      keep(field_of(place.object, place.offset));
      break;
  }
  // Swapped in first, let go afterwards: a destructor may run any code, this sweep's included.
  if (found.size() > place.count) {
    place.begin = seen_.size();
    seen_.resize(seen_.size() + found.size(), nullptr);
  }
  const std::size_t before = std::exchange(place.count, found.size());
  const std::size_t begin = place.begin;
  std::vector<nb::object> dropped;
  for (std::size_t i = found.size(); i < before; ++i)
    dropped.push_back(nb::steal(std::exchange(seen_[begin + i], nullptr)));
  for (std::size_t i = 0; i < found.size(); ++i) {
    dropped.push_back(nb::steal(std::exchange(seen_[begin + i], found[i].release().ptr())));
  }
}

bool Watch::same() const {
  for (const Place& place : places_) {
    if (!same(place)) return false;
  }
  return true;
}

std::vector<std::size_t> Watch::changed() const {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!same(places_[i])) indices.push_back(i);
  }
  return indices;
}

void Watch::renew(std::size_t index) {
  if (index >= places_.size()) throw nb::index_error(("there is no place " + std::to_string(index)).c_str());
  look(places_[index]);
}

int Watch::traverse(visitproc visit, void* arg) const {
  for (const Place& place : places_) {
    Py_VISIT(place.object);
    Py_VISIT(place.key);
    Py_VISIT(reinterpret_cast<PyObject*>(place.type));
  }
  for (PyObject* object : seen_) Py_VISIT(object);
  return 0;
}

void Watch::clear() {
  const std::vector<Place> places = std::exchange(places_, {});
  const std::vector<PyObject*> seen = std::exchange(seen_, {});
  for (PyObject* object : seen) Py_XDECREF(object);
  for (const Place& place : places) {
    Py_XDECREF(place.object);
    Py_XDECREF(place.key);
    Py_XDECREF(reinterpret_cast<PyObject*>(place.type));
  }
}

std::optional<std::size_t> field_offset(nb::handle holder, nb::handle value) {
  const auto size = static_cast<std::size_t>(Py_TYPE(holder.ptr())->tp_basicsize);
  for (std::size_t offset = sizeof(PyObject); offset + sizeof(PyObject*) <= size; offset += sizeof(PyObject*)) {
    if (field_of(holder.ptr(), offset) == value.ptr()) return offset;
  }
  return std::nullopt;
}

void bind_watch(nb::module_& m) {
  // What is watched may well hold the watch: a trainer whose step is compiled is collected with it.
  static PyType_Slot slots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(+[](PyObject* self, visitproc visit, void* arg) -> int {
         Py_VISIT(Py_TYPE(self));
         return nb::inst_ready(self) ? nb::inst_ptr<Watch>(self)->traverse(visit, arg) : 0;
       })},
      {Py_tp_clear, reinterpret_cast<void*>(+[](PyObject* self) -> int {
         nb::inst_ptr<Watch>(self)->clear();
         return 0;
       })},
      {0, nullptr},
  };
  nb::class_<Watch>(m, "Watch", nb::type_slots(slots))
      .def(nb::init<>())
      .def("add_mapping", &Watch::add_mapping, "mapping"_a, "owner"_a = nb::none())
      .def("add_entry", &Watch::add_entry, "owner"_a, "key"_a)
      .def("add_sequence", &Watch::add_sequence, "sequence"_a)
      .def("add_iterable", &Watch::add_iterable, "iterable"_a)
      .def("add_cell", &Watch::add_cell, "cell"_a)
      .def("add_function", &Watch::add_function, "function"_a)
      .def("add_attribute", &Watch::add_attribute, "object"_a, "descriptor"_a)
      .def("add_field", &Watch::add_field, "object"_a, "offset"_a)
      .def("__len__", &Watch::size)
      .def("same", nb::overload_cast<>(&Watch::same, nb::const_))
      .def("changed", &Watch::changed)
      .def("renew", &Watch::renew, "index"_a);
  m.def("field_offset", field_offset, "holder"_a, "value"_a);
}

}  // namespace lowtide::python
